"""Long polling: each request as documented, updates confirmed only after they are stored, and every fault contained."""

from __future__ import annotations

import logging
from datetime import timedelta

import httpx
import pytest
import respx

from gpuwatch.chat.chat_actions import COMMANDS
from gpuwatch.chat.telegram.poller import UpdatePoller
from tests.chat.telegram_bot import Bot, written
from tests.chat.telegram_chat import OWNER
from tests.sent_requests import sent
from tests.telegram_double import BAD_GATEWAY, TOKEN, Fault, too_many
from tests.telegram_routes import API, NO_ANSWER, NOT_SENT, PATH, bodies, message, ok, refused, shown

pytestmark = pytest.mark.respx(base_url=API)
FOLLOWED = {"timeout": 20, "limit": 50, "allowed_updates": ["message", "callback_query"]}
OTHER_POLLS = Fault(409, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is"
                         " running")  # fmt: skip
HAS_WEBHOOK = Fault(
    409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
)


@pytest.fixture
def polled(respx_mock: respx.MockRouter) -> respx.Route:
    """The route of `getUpdates`: nothing is new, unless a test lets it answer otherwise."""
    return respx_mock.post("/getUpdates").mock(return_value=ok([]))


@pytest.fixture
def poller(bot: Bot) -> UpdatePoller:
    return UpdatePoller(bot.api, bot.inbox, bot.receiver, bot.clock, bot.stopping)


def test_a_poll_is_one_documented_request_that_telegram_may_hold_open(
    poller: UpdatePoller, polled: respx.Route
) -> None:
    assert poller.poll() == 0.0
    assert sent(polled.calls) == [("POST", f"{PATH}/getUpdates", FOLLOWED)]
    assert polled.calls[0].request.extensions["timeout"]["read"] > FOLLOWED["timeout"]


def test_who_takes_the_updates_sends_the_menu_once(
    bot: Bot, poller: UpdatePoller, polled: respx.Route, menu: respx.Route
) -> None:
    poller.poll()
    poller.poll()
    bot.finish()
    ((_, path, body),) = sent(menu.calls)
    assert path == f"{PATH}/setMyCommands"
    assert body == {"commands": [{"command": name, "description": one.about} for name, one in COMMANDS.items()]}


def test_updates_are_stored_answered_and_confirmed_by_the_next_poll(
    bot: Bot, poller: UpdatePoller, polled: respx.Route, respx_mock: respx.MockRouter
) -> None:
    posted = respx_mock.post("/sendMessage").mock(return_value=message())
    polled.side_effect = [ok([written(700, "hello", user=OWNER + 1), written(701, "/help")]), ok([])]
    poller.poll()
    lease = bot.inbox.lease(bot.clock(), 40.0)
    assert lease is not None
    assert lease.next_update_id == 702
    poller.poll()
    assert bodies(polled) == [FOLLOWED, FOLLOWED | {"offset": 702}]
    bot.finish()
    assert [seen.chat_id for seen in shown(posted)] == [str(OWNER)]


def test_after_a_week_the_offset_is_left_out(bot: Bot, poller: UpdatePoller, polled: respx.Route) -> None:
    """Telegram then numbers at random: an old offset could confirm updates that were never received."""
    polled.side_effect = [ok([{"update_id": 700, "poll": {}}]), ok([])]
    poller.poll()
    bot.clock.now += timedelta(days=7)
    poller.poll()
    assert bodies(polled) == [FOLLOWED, FOLLOWED]


def test_what_arrives_while_gpuwatch_stops_is_left_to_the_next_start(
    bot: Bot, poller: UpdatePoller, polled: respx.Route
) -> None:
    def stop(_request: httpx.Request) -> httpx.Response:
        bot.stopping.set()
        return ok([written(700, "/help")])

    polled.side_effect = stop
    poller.poll()
    lease = bot.inbox.lease(bot.clock(), 40.0)
    assert lease is not None
    assert lease.next_update_id == 0


@pytest.mark.respx(base_url=API, assert_all_called=False)
def test_while_another_daemon_polls_nothing_is_sent(bot: Bot, poller: UpdatePoller, polled: respx.Route) -> None:
    bot.other_inbox.lease(bot.clock(), 40.0)
    assert poller.poll() == 5.0
    assert not polled.called


@pytest.mark.parametrize(
    ("answer", "text", "waits_s"),
    [
        (refused(OTHER_POLLS), "another program polls this bot", [10.0, 10.0, 10.0]),
        (refused(Fault(401, "Unauthorized")), "Telegram rejects the bot's token", [300.0, 300.0, 300.0]),
        (refused(Fault(404, "Not Found")), "Telegram rejects the bot's token", [300.0, 300.0, 300.0]),
        (refused(BAD_GATEWAY), "returns no updates", [1.0, 2.0, 4.0]),
        (refused(too_many(30)), "returns no updates", [30.0, 30.0, 30.0]),
        (refused(Fault(200, raw=b"<html>log in</html>")), "returns no updates", [1.0, 2.0, 4.0]),
        (ok({"not": "a list"}), "cannot read Telegram updates", [1.0, 2.0, 4.0]),
        *((error, "returns no updates", [1.0, 2.0, 4.0]) for error in (*NO_ANSWER, *NOT_SENT)),
    ],
)
def test_a_fault_is_logged_once_and_the_next_poll_waits(
    poller: UpdatePoller,
    polled: respx.Route,
    caplog: pytest.LogCaptureFixture,
    answer: httpx.Response | type[httpx.TransportError],
    text: str,
    waits_s: list[float],
) -> None:
    caplog.set_level(logging.INFO)
    polled.side_effect = [answer, answer, answer, ok([])]
    assert [poller.poll() for _ in range(3)] == waits_s
    assert caplog.text.count(text) == 1
    assert poller.poll() == 0.0
    assert caplog.text.count("reading Telegram updates again") == 1
    assert TOKEN not in caplog.text


def test_a_webhook_of_gpuwatch_is_removed_and_its_updates_come_by_polling(
    poller: UpdatePoller, polled: respx.Route, respx_mock: respx.MockRouter
) -> None:
    polled.return_value = refused(HAS_WEBHOOK)
    info = respx_mock.post("/getWebhookInfo").mock(
        return_value=ok({"url": "https://gpus.example.org/telegram/8123456789", "pending_update_count": 2})
    )
    removed = respx_mock.post("/deleteWebhook").mock(return_value=ok())
    assert poller.poll() == 0.0
    assert sent([*info.calls, *removed.calls]) == [
        ("POST", f"{PATH}/getWebhookInfo", {}),
        ("POST", f"{PATH}/deleteWebhook", {}),
    ]


@pytest.mark.parametrize("url", ["https://other.example.org/bot", None])
def test_a_webhook_of_another_program_stays(
    poller: UpdatePoller,
    polled: respx.Route,
    respx_mock: respx.MockRouter,
    caplog: pytest.LogCaptureFixture,
    url: str | None,
) -> None:
    """So does one that Telegram does not name now."""
    polled.return_value = refused(HAS_WEBHOOK)
    answer = refused(BAD_GATEWAY) if url is None else ok({"url": url, "pending_update_count": 0})
    respx_mock.post("/getWebhookInfo").mock(return_value=answer)
    assert poller.poll() == 60.0
    assert "another program's webhook" in caplog.text
