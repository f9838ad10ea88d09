"""The webhook at Telegram: set as documented, checked every minute, and set again if another program changed it."""

from __future__ import annotations

import logging
from datetime import timedelta

import httpx
import pytest
import respx

from gpuwatch.chat.telegram.telegram_webhook import WebhookIntake, WebhookTarget
from tests.chat.telegram_bot import Bot
from tests.chat.telegram_chat import NOON
from tests.sent_requests import sent
from tests.telegram_double import BAD_GATEWAY, TOKEN, Fault, too_many
from tests.telegram_routes import API, NO_ANSWER, NOT_SENT, PATH, bodies, ok, refused

pytestmark = pytest.mark.respx(base_url=API)
ADDRESS = "https://gpus.example.org:8443/telegram/8123456789"
SECRET = "a1b2c3_the-secret"
REGISTERED = {"url": ADDRESS, "has_custom_certificate": False, "pending_update_count": 0}
SET = {
    "url": ADDRESS,
    "secret_token": SECRET,
    "allowed_updates": ["message", "callback_query"],
    "max_connections": 4,
}
MINUTE = timedelta(minutes=1)


@pytest.fixture
def intake(bot: Bot) -> WebhookIntake:
    return WebhookIntake(bot.api, bot.inbox, bot.receiver, bot.clock, bot.stopping, WebhookTarget(ADDRESS, SECRET))


@pytest.fixture
def registered(respx_mock: respx.MockRouter) -> respx.Route:
    """The route of `setWebhook`: accepts it, unless a test lets it answer otherwise."""
    return respx_mock.post("/setWebhook").mock(return_value=ok())


@pytest.fixture
def checked(respx_mock: respx.MockRouter) -> respx.Route:
    """The route of `getWebhookInfo`: the webhook works, unless a test lets it answer otherwise."""
    return respx_mock.post("/getWebhookInfo").mock(return_value=ok(REGISTERED))


def after(bot: Bot, intake: WebhookIntake, seconds: float) -> None:
    bot.clock.now += timedelta(seconds=seconds)
    intake.poll()


def test_it_is_set_once_as_documented_and_checked_every_minute(
    bot: Bot, intake: WebhookIntake, registered: respx.Route, checked: respx.Route
) -> None:
    for _ in range(2):
        assert intake.poll() == 1.0
    after(bot, intake, 59)
    assert sent(registered.calls) == [("POST", f"{PATH}/setWebhook", SET)]
    assert not checked.called
    after(bot, intake, 1)
    assert sent(checked.calls) == [("POST", f"{PATH}/getWebhookInfo", {})]
    assert registered.call_count == 1


@pytest.mark.respx(base_url=API, assert_all_called=False)
def test_while_another_daemon_has_the_lease_nothing_is_sent(
    bot: Bot, intake: WebhookIntake, registered: respx.Route
) -> None:
    bot.other_inbox.lease(bot.clock(), 40.0)
    assert intake.poll() == 5.0
    assert not registered.called


@pytest.mark.parametrize(
    ("answer", "pause_s"),
    [
        (refused(Fault(400, "Bad Request: bad webhook: Failed to resolve host: Name or service not known")), 1.0),
        (refused(Fault(401, "Unauthorized")), 300.0),
        (refused(too_many(30)), 30.0),
        (refused(BAD_GATEWAY), 1.0),
        *((error, 1.0) for error in (*NO_ANSWER, *NOT_SENT)),
    ],
)
def test_a_webhook_that_telegram_does_not_accept_is_logged_and_set_again_after_a_pause(
    bot: Bot,
    intake: WebhookIntake,
    registered: respx.Route,
    caplog: pytest.LogCaptureFixture,
    answer: httpx.Response | type[httpx.TransportError],
    pause_s: float,
) -> None:
    caplog.set_level(logging.INFO)
    registered.side_effect = [answer, ok()]
    intake.poll()
    after(bot, intake, pause_s - 0.5)
    assert registered.call_count == 1
    after(bot, intake, 0.5)
    assert bodies(registered) == [SET, SET]
    assert caplog.text.count(f"Telegram does not accept the webhook {ADDRESS}") == 1
    assert "the Telegram webhook works again" in caplog.text
    assert TOKEN not in caplog.text


def test_a_webhook_that_another_program_changed_is_set_again(
    bot: Bot, intake: WebhookIntake, registered: respx.Route, checked: respx.Route, caplog: pytest.LogCaptureFixture
) -> None:
    checked.return_value = ok({"url": "", "has_custom_certificate": False, "pending_update_count": 0})
    intake.poll()
    after(bot, intake, 60)
    assert bodies(registered) == [SET, SET]
    assert "another program changed the bot's webhook" in caplog.text


def test_a_delivery_that_failed_in_the_last_minute_is_logged_until_it_works(
    bot: Bot, intake: WebhookIntake, registered: respx.Route, checked: respx.Route, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    failed = REGISTERED | {
        "pending_update_count": 1,
        "last_error_date": int((NOON + MINUTE).timestamp()) - 5,
        "last_error_message": "Wrong response from the webhook: 502 Bad Gateway",
    }
    checked.side_effect = [ok(failed), ok(failed), ok(failed | {"pending_update_count": 0})]
    intake.poll()
    for _ in range(3):
        after(bot, intake, 60)
    assert caplog.text.count(f"Telegram cannot deliver updates to {ADDRESS} (Wrong response from the webhook: 502") == 1
    assert caplog.text.count("the Telegram webhook works again") == 1
    assert registered.call_count == 1


@pytest.mark.parametrize("answer", [refused(BAD_GATEWAY), ok("not an object"), *NO_ANSWER, *NOT_SENT])
def test_a_check_without_an_answer_changes_nothing(
    bot: Bot,
    intake: WebhookIntake,
    registered: respx.Route,
    checked: respx.Route,
    answer: httpx.Response | type[httpx.TransportError],
) -> None:
    checked.side_effect = [answer, ok(REGISTERED)]
    intake.poll()
    after(bot, intake, 60)
    after(bot, intake, 60)
    assert (registered.call_count, checked.call_count) == (1, 2)
