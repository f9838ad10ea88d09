"""Telegram: messages are always valid, and each answer leads to the correct next step."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.telegram import TelegramChannel, TelegramSettings, render
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.notifiers.alerts import a_line, an_alert
from tests.telegram_double import (
    BAD_GATEWAY,
    BLOCKED,
    CHAT,
    REPLY_LOST,
    TOKEN,
    UNREADABLE,
    Fault,
    TelegramDouble,
    moved,
    parse,
    telegram,
    too_many,
)

NASTY = '</b><a href="tg://user?id=1">click</a> & <script> @admin t.me/evil /start #tag \u202e\r\nBcc: x 1.2.3.4'


@pytest.fixture
def server() -> Iterator[TelegramDouble]:
    with telegram() as double:
        yield double


@pytest.fixture
def http() -> Iterator[PooledHttpClient]:
    made = PooledHttpClient()
    yield made
    made.close()


@pytest.fixture
def channel(server: TelegramDouble, http: PooledHttpClient) -> TelegramChannel:
    settings = TelegramSettings(bot_token=TOKEN, chat_id=CHAT, base_url=server.base_url)
    return TelegramChannel(settings, http, sleep=lambda _s: None, jitter=lambda: 0.5)


# --- the message -----------------------------------------------------------------------------------------------------
def test_an_alert_is_shown_with_all_its_parts(channel: TelegramChannel, server: TelegramDouble) -> None:
    channel.send(an_alert())
    (shown,) = server.shown
    for part in (
        "h100-night", "H100 SXM × 2", "$3.48", "Listed: $2.90", "$6.96 per hour", "$3.50", "Iceland, IS", "99.2 %",
        "first_match", "Alerted only.", "gpuwatch check h100-night", "abcdefgh2345",
    ):  # fmt: skip
        assert part in shown.text
    assert shown.parse_mode == "HTML"


def test_the_offer_is_one_link_and_previews_are_off(channel: TelegramChannel, server: TelegramDouble) -> None:
    channel.send(an_alert())
    links = [entity for entity in server.shown[0].entities if entity.kind == "text_link"]
    assert [link.text for link in links] == ["Open offer 28123456 at vastai"]
    assert links[0].url == "https://cloud.vast.ai/create/?id=28123456&x=1"
    assert not server.shown[0].previews


def test_a_silent_message_makes_no_sound_and_is_the_same(channel: TelegramChannel, server: TelegramDouble) -> None:
    channel.send(an_alert())
    channel.send_silently(an_alert())
    assert [shown.silent for shown in server.shown] == [False, True]
    assert server.shown[0].text == server.shown[1].text


def test_only_web_addresses_become_links() -> None:
    assert "href" not in render(an_alert(offers=(a_line(url="tg://user?id=1"),)))


def test_what_a_host_wrote_stays_text(channel: TelegramChannel, server: TelegramDouble) -> None:
    """W15: no tag, no link, no mention, no command, no line of its own."""
    hostile = a_line(gpu=NASTY, place=NASTY, reliability=NASTY, offer_id=NASTY, provider=NASTY, url=None)
    channel.send(an_alert(headline=NASTY, facts=((NASTY, NASTY),), offers=(hostile,), why=NASTY, did=NASTY))
    (shown,) = server.shown
    assert shown.parse_mode == "HTML"
    assert {entity.kind for entity in shown.entities} <= {"b", "code"}
    assert "<script>" in shown.text
    assert "\u202e" not in shown.text
    assert not re.search(r"^Bcc", shown.text, re.MULTILINE)


@pytest.mark.parametrize("word", ["#0a", "#tag", "@name", "/start", "$TSLA", "t.me", "tg://x", "1.2.3.4", "é.рф"])
def test_a_word_that_telegram_would_link_by_itself_is_code(word: str) -> None:
    _, entities = parse(render(an_alert(facts=(("Place", f"in {word} here"),), offers=())), "HTML")
    assert {entity.kind for entity in entities} <= {"b", "code"}
    assert word in {entity.text for entity in entities if entity.kind == "code"}


@settings(max_examples=500, deadline=None)
@given(st.text(max_size=400), st.text(alphabet="<>&\"'/ab;#x0 @.", max_size=400))
def test_any_text_can_be_read_by_telegram(one: str, other: str) -> None:
    """A03: Telegram's own strict parser accepts the message, and shows at most 4096 characters."""
    hostile = a_line(gpu=one, place=other, offer_id=one + other, url="https://x.example/" + other)
    alert = an_alert(headline=one, facts=((one, other),) * 3, offers=(hostile,) * 3, why=other, can_do=(one, other))
    text, entities = parse(render(alert), "HTML")
    assert len(text.encode("utf-16-le")) // 2 <= 4096
    assert {entity.kind for entity in entities} <= {"b", "code", "text_link"}


def test_a_long_alert_is_cut_between_lines_and_keeps_its_id(channel: TelegramChannel, server: TelegramDouble) -> None:
    """A08."""
    channel.send(an_alert(facts=tuple((f"fact {n}", "x" * 250) for n in range(40))))
    (shown,) = server.shown
    assert len(shown.text) <= 4096
    assert "… truncated" in shown.text
    assert shown.text.endswith("abcdefgh2345")


def test_length_is_counted_as_telegram_does() -> None:
    """In UTF-16: an emoji counts twice."""
    text, _ = parse(render(an_alert(facts=(("f", "😀" * 250),) * 20)), "HTML")
    assert len(text.encode("utf-16-le")) // 2 <= 4096


def test_several_watches_are_one_message_with_every_id(channel: TelegramChannel, server: TelegramDouble) -> None:
    parts = tuple(an_alert(alert_id=f"part{n}", headline=f"watch-{n}: H100 at $3.{n}0") for n in range(5))
    channel.send(an_alert(headline="5 watches have offers", facts=(), offers=(), parts=parts))
    (shown,) = server.shown
    for n in range(5):
        assert f"watch-{n}" in shown.text
        assert f"part{n}" in shown.text


def test_a_command_is_copied_by_one_tap() -> None:
    shown = render(an_alert(can_do=("Rent it: gpuwatch approve uoyauilxpk2f",)))
    assert "• Rent it: <code>gpuwatch approve uoyauilxpk2f</code>" in shown


def test_a_config_key_can_be_copied_as_it_is() -> None:
    assert "<code>[notify.telegram]</code>" in render(an_alert(can_do=("Set [notify.telegram] chat_id",)))


# --- Telegram's answers ----------------------------------------------------------------------------------------------
def test_a_message_telegram_cannot_read_is_sent_as_plain_text(channel: TelegramChannel, server: TelegramDouble) -> None:
    server.faults = [UNREADABLE]
    channel.send(an_alert())
    (shown,) = server.shown
    assert shown.parse_mode is None
    assert "$3.48" in shown.text
    assert "<b>" not in shown.text


def test_plain_text_is_tried_once_only(channel: TelegramChannel, server: TelegramDouble) -> None:
    server.faults = [UNREADABLE, UNREADABLE]
    with pytest.raises(DeliveryRefused):
        channel.send(an_alert())
    assert len(server.asked) == 2


def test_a_limit_is_waited_for_as_long_as_it_says_and_a_little_longer(
    channel: TelegramChannel, server: TelegramDouble
) -> None:
    """A01: with retry_after 37 the next try is 37 to 40 s later."""
    server.faults = [too_many(37)]
    with pytest.raises(DeliverLater) as caught:
        channel.send(an_alert())
    assert 37 <= (caught.value.retry_after_s or 0) <= 40


def test_a_limit_reported_by_a_proxy_in_its_header_counts(channel: TelegramChannel, server: TelegramDouble) -> None:
    server.faults = [Fault(429, raw=b"<html>slow down</html>", headers={"Retry-After": "12"})]
    with pytest.raises(DeliverLater) as caught:
        channel.send(an_alert())
    assert caught.value.retry_after_s == pytest.approx(12.3)


def test_a_limit_without_a_number_is_left_to_the_backoff(channel: TelegramChannel, server: TelegramDouble) -> None:
    server.faults = [Fault(429, raw=b"<html>slow down</html>")]
    with pytest.raises(DeliverLater) as caught:
        channel.send(an_alert())
    assert caught.value.retry_after_s is None


def test_a_moved_chat_gets_the_message_and_all_later_ones(channel: TelegramChannel, server: TelegramDouble) -> None:
    """A04."""
    server.chats = {"-1007"}
    server.faults = [moved(-1007)]
    channel.send(an_alert())
    channel.send(an_alert())
    assert [shown.chat_id for shown in server.shown] == ["-1007", "-1007"]
    assert channel.new_address == "-1007"
    assert len(server.asked) == 3


def test_the_check_of_a_moved_chat_says_its_new_id(channel: TelegramChannel, server: TelegramDouble) -> None:
    server.faults = [moved(-1007)]
    with pytest.raises(DeliveryRefused, match='set chat_id = "-1007"'):
        channel.check()


def test_a_blocked_bot_is_refused(channel: TelegramChannel, server: TelegramDouble) -> None:
    server.faults = [BLOCKED]
    with pytest.raises(DeliveryRefused, match=r"403.*blocked by the user; unblock the bot in Telegram"):
        channel.send(an_alert())


def test_a_revoked_token_is_refused_without_showing_it(channel: TelegramChannel, server: TelegramDouble) -> None:
    server.token = "another"
    with pytest.raises(DeliveryRefused, match=r"401.*; check bot_token") as caught:
        channel.send(an_alert())
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault(404, "Not Found"), "404 Not Found; check bot_token"),
        (Fault(400, "Bad Request: message thread not found"), "400 Bad Request: message thread not found"),
    ],
)
def test_the_token_is_blamed_only_for_what_a_wrong_token_gets(
    channel: TelegramChannel, server: TelegramDouble, fault: Fault, text: str
) -> None:
    server.always = fault
    with pytest.raises(DeliveryRefused) as caught:
        channel.send(an_alert())
    assert str(caught.value).removeprefix("telegram: ") == text


def test_an_unknown_chat_is_refused(channel: TelegramChannel, server: TelegramDouble) -> None:
    server.chats = set()
    with pytest.raises(DeliveryRefused, match="chat not found; check chat_id"):
        channel.send(an_alert())


@pytest.mark.parametrize("fault", [BAD_GATEWAY, Fault(503, raw=b"busy"), Fault(200, raw=b"<html>log in</html>")])
def test_a_server_in_trouble_is_tried_later(channel: TelegramChannel, server: TelegramDouble, fault: Fault) -> None:
    server.faults = [fault]
    with pytest.raises(DeliverLater):
        channel.send(an_alert())


def test_a_lost_reply_is_tried_later_and_the_copy_bears_the_same_id(
    channel: TelegramChannel, server: TelegramDouble
) -> None:
    """A06."""
    server.faults = [REPLY_LOST]
    with pytest.raises(DeliverLater):
        channel.send(an_alert())
    channel.send(an_alert())
    assert len(server.shown) == 2
    assert all("abcdefgh2345" in shown.text for shown in server.shown)


def test_nobody_listening_is_tried_later_and_shows_no_token(
    http: PooledHttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    """C06: the token is in the URL's path."""
    caplog.set_level(logging.DEBUG)
    settings = TelegramSettings(bot_token=TOKEN, chat_id=CHAT, base_url="http://127.0.0.1:9")
    with pytest.raises(DeliverLater) as caught:
        TelegramChannel(settings, http).send(an_alert())
    assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(caught.value)
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(settings)


def test_messages_to_a_chat_are_a_second_apart(server: TelegramDouble, http: PooledHttpClient) -> None:
    """A09."""
    slept: list[float] = []
    at = [100.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        at[0] += seconds

    settings = TelegramSettings(bot_token=TOKEN, chat_id=CHAT, base_url=server.base_url)
    channel = TelegramChannel(settings, http, monotonic=lambda: at[0], sleep=sleep)
    for _ in range(3):
        channel.send(an_alert())
    assert slept == [0.0, pytest.approx(1.05), pytest.approx(1.05)]
