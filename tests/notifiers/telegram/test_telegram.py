"""Telegram: messages are always valid, requests are as documented, and each answer leads to the correct next step."""

from __future__ import annotations

import logging
import re

import httpx
import pytest
import respx
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.telegram import TelegramChannel, TelegramSettings, render
from gpuwatch.ports.alerts import MessageButton
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.notifiers.alerts import a_line, an_alert
from tests.sent_requests import sent
from tests.telegram_double import (
    BAD_GATEWAY,
    BLOCKED,
    CHAT,
    TOKEN,
    UNREADABLE,
    Fault,
    moved,
    parse,
    too_many,
)
from tests.telegram_routes import API, NO_ANSWER, NOT_SENT, PATH, message, ok, refused, shown

pytestmark = pytest.mark.respx(base_url=API)
NASTY = '</b><a href="tg://user?id=1">click</a> & <script> @admin t.me/evil /start #tag \u202e\r\nBcc: x 1.2.3.4'


@pytest.fixture
def channel(http: PooledHttpClient) -> TelegramChannel:
    settings = TelegramSettings(bot_token=TOKEN, chat_id=CHAT)
    return TelegramChannel(settings, http, sleep=lambda _s: None, jitter=lambda: 0.5)


@pytest.fixture
def posted(respx_mock: respx.MockRouter) -> respx.Route:
    """The route of `sendMessage`: accepts every message, unless a test lets it answer otherwise."""
    return respx_mock.post("/sendMessage").mock(return_value=message())


# --- the message -----------------------------------------------------------------------------------------------------
def test_an_alert_is_shown_with_all_its_parts(channel: TelegramChannel, posted: respx.Route) -> None:
    channel.send(an_alert())
    (seen,) = shown(posted)
    for part in (
        "h100-night", "H100 SXM × 2", "$3.48", "Listed: $2.90", "$6.96/h", "$3.50", "Iceland, IS", "99.2 %",
        "first_match", "Alerted only.", "gpuwatch check h100-night", "abcdefgh2345",
    ):  # fmt: skip
        assert part in seen.text
    assert seen.parse_mode == "HTML"


def test_the_offer_is_one_link_and_previews_are_off(channel: TelegramChannel, posted: respx.Route) -> None:
    channel.send(an_alert())
    links = [entity for entity in shown(posted)[0].entities if entity.kind == "text_link"]
    assert [link.text for link in links] == ["Open offer 28123456 at vastai"]
    assert links[0].url == "https://cloud.vast.ai/create/?id=28123456&x=1"
    assert not shown(posted)[0].previews


def test_a_silent_message_makes_no_sound_and_is_the_same(channel: TelegramChannel, posted: respx.Route) -> None:
    channel.send(an_alert())
    channel.send_silently(an_alert())
    assert [seen.silent for seen in shown(posted)] == [False, True]
    assert shown(posted)[0].text == shown(posted)[1].text


def test_only_web_addresses_become_links() -> None:
    assert "href" not in render(an_alert(offers=(a_line(url="tg://user?id=1"),)))


def test_what_a_host_wrote_stays_text(channel: TelegramChannel, posted: respx.Route) -> None:
    """W15: no tag, no link, no mention, no command, no line of its own."""
    hostile = a_line(gpu=NASTY, place=NASTY, reliability=NASTY, offer_id=NASTY, provider=NASTY, url=None)
    channel.send(an_alert(headline=NASTY, facts=((NASTY, NASTY),), offers=(hostile,), why=NASTY, did=NASTY))
    (seen,) = shown(posted)
    assert seen.parse_mode == "HTML"
    assert {entity.kind for entity in seen.entities} <= {"b", "code"}
    assert "<script>" in seen.text
    assert "\u202e" not in seen.text
    assert not re.search(r"^Bcc", seen.text, re.MULTILINE)


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


def test_a_long_alert_is_cut_between_lines_and_keeps_its_id(channel: TelegramChannel, posted: respx.Route) -> None:
    """A08."""
    channel.send(an_alert(facts=tuple((f"fact {n}", "x" * 250) for n in range(40))))
    (seen,) = shown(posted)
    assert len(seen.text) <= 4096
    assert "… truncated" in seen.text
    assert seen.text.endswith("abcdefgh2345")


def test_length_is_counted_as_telegram_does() -> None:
    """In UTF-16: an emoji counts twice."""
    text, _ = parse(render(an_alert(facts=(("f", "😀" * 250),) * 20)), "HTML")
    assert len(text.encode("utf-16-le")) // 2 <= 4096


def test_several_watches_are_one_message_with_every_id(channel: TelegramChannel, posted: respx.Route) -> None:
    parts = tuple(an_alert(alert_id=f"part{n}", headline=f"watch-{n}: H100 at $3.{n}0") for n in range(5))
    channel.send(an_alert(headline="5 watches have offers", facts=(), offers=(), parts=parts))
    (seen,) = shown(posted)
    for n in range(5):
        assert f"watch-{n}" in seen.text
        assert f"part{n}" in seen.text


def test_a_command_is_copied_by_one_tap() -> None:
    text = render(an_alert(can_do=("Rent it: gpuwatch approvals approve uoyauilxpk2f",)))
    assert "• Rent it: <code>gpuwatch approvals approve uoyauilxpk2f</code>" in text


def test_a_config_key_can_be_copied_as_it_is() -> None:
    assert "<code>[notify.telegram]</code>" in render(an_alert(can_do=("Set [notify.telegram] chat_id",)))


# --- Telegram's answers ----------------------------------------------------------------------------------------------
def test_a_message_is_one_documented_request(channel: TelegramChannel, posted: respx.Route) -> None:
    channel.send(an_alert())
    text = render(an_alert())
    wanted = {"chat_id": CHAT, "text": text, "parse_mode": "HTML", "link_preview_options": {"is_disabled": True}}
    assert sent(posted.calls) == [("POST", f"{PATH}/sendMessage", wanted)]
    assert posted.calls[0].request.headers["content-type"] == "application/json"


def test_buttons_are_an_inline_keyboard(channel: TelegramChannel, posted: respx.Route) -> None:
    class Buttons:
        def buttons_for(self, _alert: object) -> list[list[MessageButton]]:
            return [[MessageButton("Why", "w:1"), MessageButton("Silence 6 h", "s:2")]]

    channel.buttons = Buttons()
    channel.send_silently(an_alert())
    (body,) = (body for _, _, body in sent(posted.calls))
    assert body["disable_notification"] is True
    assert body["reply_markup"] == {
        "inline_keyboard": [[{"text": "Why", "callback_data": "w:1"}, {"text": "Silence 6 h", "callback_data": "s:2"}]]
    }


def test_half_a_character_does_not_stop_a_message(channel: TelegramChannel, posted: respx.Route) -> None:
    """A lone surrogate has no UTF-8 form: a host's text may contain it as JSON."""
    channel.send(an_alert(headline="H100 \ud800 at $3"))
    assert posted.call_count == 1


def test_a_message_telegram_cannot_read_is_sent_as_plain_text(channel: TelegramChannel, posted: respx.Route) -> None:
    posted.side_effect = [refused(UNREADABLE), message()]
    channel.send(an_alert())
    html, plain = shown(posted)
    assert (html.parse_mode, plain.parse_mode) == ("HTML", None)
    assert "$3.48" in plain.text
    assert "<b>" not in plain.text


def test_plain_text_is_tried_once_only(channel: TelegramChannel, posted: respx.Route) -> None:
    posted.return_value = refused(UNREADABLE)
    with pytest.raises(DeliveryRefused):
        channel.send(an_alert())
    assert posted.call_count == 2


@pytest.mark.parametrize(
    ("fault", "least_s", "most_s"),
    [
        (too_many(37), 37, 40),
        (Fault(429, raw=b"<html>slow down</html>", headers={"Retry-After": "12"}), 12.3, 12.3),  # a proxy's
    ],
)
def test_a_limit_is_waited_for_as_long_as_it_says_and_a_little_longer(
    channel: TelegramChannel, posted: respx.Route, fault: Fault, least_s: float, most_s: float
) -> None:
    """A01."""
    posted.return_value = refused(fault)
    with pytest.raises(DeliverLater) as caught:
        channel.send(an_alert())
    assert least_s <= round(caught.value.retry_after_s or 0, 6) <= most_s


def test_a_limit_without_a_number_is_left_to_the_backoff(channel: TelegramChannel, posted: respx.Route) -> None:
    posted.return_value = refused(Fault(429, raw=b"<html>slow down</html>"))
    with pytest.raises(DeliverLater) as caught:
        channel.send(an_alert())
    assert caught.value.retry_after_s is None


def test_a_moved_chat_gets_the_message_and_all_later_ones(channel: TelegramChannel, posted: respx.Route) -> None:
    """A04."""
    posted.side_effect = [refused(moved(-1007)), message(), message()]
    channel.send(an_alert())
    channel.send(an_alert())
    assert [seen.chat_id for seen in shown(posted)] == [CHAT, "-1007", "-1007"]
    assert channel.new_address == "-1007"


def test_the_check_asks_for_the_chat_and_sends_nothing(channel: TelegramChannel, respx_mock: respx.MockRouter) -> None:
    asked = respx_mock.post("/getChat").mock(return_value=ok({"id": -4001, "type": "group", "title": "GPUs"}))
    assert channel.check() == "its bot knows the chat"
    assert sent(asked.calls) == [("POST", f"{PATH}/getChat", {"chat_id": CHAT})]


def test_the_check_of_a_moved_chat_says_its_new_id(channel: TelegramChannel, respx_mock: respx.MockRouter) -> None:
    respx_mock.post("/getChat").mock(return_value=refused(moved(-1007)))
    with pytest.raises(DeliveryRefused, match='set chat_id = "-1007"'):
        channel.check()


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (BLOCKED, "403 Forbidden: bot was blocked by the user; unblock the bot in Telegram"),
        (Fault(403, "Forbidden: bot was kicked from the group chat"), "; add the bot to the chat again"),
        (Fault(401, "Unauthorized"), "401 Unauthorized; check bot_token"),
        (Fault(404, "Not Found"), "404 Not Found; check bot_token"),
        (Fault(400, "Bad Request: chat not found"), "chat not found; check chat_id, and send the bot a message first"),
        (Fault(400, "Bad Request: message thread not found"), "400 Bad Request: message thread not found"),
    ],
)
def test_a_refusal_is_final_and_says_what_to_do(
    channel: TelegramChannel, posted: respx.Route, fault: Fault, text: str
) -> None:
    """The token is blamed only for what a wrong token gets."""
    posted.return_value = refused(fault)
    with pytest.raises(DeliveryRefused) as caught:
        channel.send(an_alert())
    assert str(caught.value).endswith(text)
    assert posted.call_count == 1


@pytest.mark.parametrize(
    "fault",
    [
        BAD_GATEWAY,
        Fault(408, raw=b""),
        Fault(503, raw=b"busy"),
        Fault(200, raw=b"<html>log in</html>"),
        Fault(200, "Internal Server Error"),  # `ok` is false
    ],
)
def test_a_server_in_trouble_is_tried_later(channel: TelegramChannel, posted: respx.Route, fault: Fault) -> None:
    posted.return_value = refused(fault)
    with pytest.raises(DeliverLater):
        channel.send(an_alert())
    assert posted.call_count == 1


@pytest.mark.parametrize("error", [*NOT_SENT, *NO_ANSWER])
def test_without_an_answer_it_is_tried_later_and_the_copy_bears_the_same_id(
    channel: TelegramChannel, posted: respx.Route, error: type[httpx.TransportError]
) -> None:
    """A06: delivered at least once; one call sends one request."""
    posted.side_effect = [error("lost"), message()]
    with pytest.raises(DeliverLater):
        channel.send(an_alert())
    channel.send(an_alert())
    assert posted.call_count == 2
    assert all("abcdefgh2345" in seen.text for seen in shown(posted))


def test_no_error_shows_the_token(
    channel: TelegramChannel, posted: respx.Route, caplog: pytest.LogCaptureFixture
) -> None:
    """C06: the token is in the URL's path."""
    caplog.set_level(logging.DEBUG)
    posted.side_effect = httpx.ConnectError(f"cannot reach {API}/sendMessage")
    with pytest.raises(DeliverLater) as caught:
        channel.send(an_alert())
    assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(caught.value)
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(TelegramSettings(bot_token=TOKEN, chat_id=CHAT))


def test_messages_to_a_chat_are_a_second_apart(posted: respx.Route, http: PooledHttpClient) -> None:
    """A09."""
    slept: list[float] = []
    at = [100.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        at[0] += seconds

    settings = TelegramSettings(bot_token=TOKEN, chat_id=CHAT)
    channel = TelegramChannel(settings, http, monotonic=lambda: at[0], sleep=sleep)
    for _ in range(3):
        channel.send(an_alert())
    assert slept == [0.0, pytest.approx(1.05), pytest.approx(1.05)]
    assert posted.call_count == 3
