"""Telegram's webhook mode: updates arrive at the daemon's own web server, which the double reaches through a proxy."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, terminate, wait_for, wait_for_searches
from tests.process.test_chat import OWNER, a_message, chat_by, edited, pressed
from tests.telegram_double import TOKEN, TelegramDouble, telegram

pytestmark = pytest.mark.slow
WEB = '[web]\nenabled = true\nlisten = "127.0.0.1:0"\ntrusted_proxies = ["127.0.0.1"]\n'
ADDRESS = "https://gpus.example.org"
HOOK = f'webhook = "{ADDRESS}"\n'
BOT = TOKEN.partition(":")[0]


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=40, delays=Delays(running_s=0.5)) as opened:
        yield opened


@pytest.fixture
def double() -> Iterator[TelegramDouble]:
    with telegram() as opened:
        opened.chats = {str(OWNER)}
        yield opened


def served_at(home: Home, start: int = 0) -> str:
    """Return the address that the daemon's web server printed, after this position of its log."""
    return str(wait_for(lambda: re.search(r"web page: (http://127\.0\.0\.1:\d+)/", home.log()[start:]))[1])


def test_commands_and_presses_come_by_the_webhook_once_and_only_with_its_secret(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    bargain(market, 0.5)
    home = Home(tmp_path, market.url, action="ask", repeat_every="1h", extra=WEB + chat_by(double, more=HOOK))
    with home.daemon() as child:
        double.proxy_to = served_at(home)
        wait_for(lambda: double.webhook)
        assert double.webhook == f"{ADDRESS}/telegram/{BOT}"
        double.write("/status", OWNER)
        assert "1 watch, renting is on" in a_message(double, "Status at").text
        alert = a_message(double, "gpuwatch approvals approve", "Approve")
        forged = {"update_id": 1, "message": {"message_id": 1, "chat": {"id": OWNER}, "from": {"id": OWNER}}}
        forged["message"] |= {"text": "/approve " + alert.data("Approve").split(".")[1]}  # type: ignore[operator]
        assert double.hand_in(forged, X_Telegram_Bot_Api_Secret_Token="") == 401
        assert double.hand_in(forged, X_Telegram_Bot_Api_Secret_Token="x" * 64) == 401
        assert double.hand_in(b"no update") == 400
        assert double.hand_in({"update_id": 2, "message": {"text": 5}}) == 200  # otherwise it would be sent forever
        wait_for_searches(market)
        assert market.ledger.creates == ()
        pressed(double, alert, "Approve")
        again = {"update_id": 700_000_002, "callback_query": {"id": "again", "from": {"id": OWNER}, "data": "x"}}
        edited(double, alert, "▸ rented H100 SXM")
        assert double.hand_in(again) == 200
        wait_for(lambda: home.states() == ["running"])
        terminate(child)
    assert len(market.ledger.creates) == 1
    assert set(double.handed_over) == {200}
    assert double.offsets == []  # nothing was polled
    assert double.secret not in home.log()
    assert "Traceback" not in home.log()


def test_what_came_while_nothing_ran_is_done_after_the_start_and_modes_can_be_switched(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, extra=WEB + chat_by(double, more=HOOK))
    with home.daemon() as child:
        double.proxy_to = served_at(home)
        wait_for(lambda: double.webhook)
        terminate(child)
    double.write("/help", OWNER)
    wait_for(lambda: 502 in double.handed_over)
    before = len(home.log())
    with home.daemon() as child:
        double.proxy_to = served_at(home, before)
        a_message(double, "gpuwatch in this chat")
        terminate(child)
    home.write(url=market.url, extra=WEB + chat_by(double))
    with home.daemon() as child:  # polls again: getUpdates is refused (409) until the webhook is gone
        wait_for(lambda: not double.webhook)
        double.write("/status", OWNER)
        a_message(double, "Status at")
        home.write(url=market.url, extra=WEB + chat_by(double, more=HOOK))
        before = len(home.log())
        child.send_signal(signal.SIGHUP)
        double.proxy_to = served_at(home, before)
        wait_for(lambda: double.webhook)
        double.write("/watches", OWNER)
        a_message(double, "cheap: H100")
        terminate(child)
    assert "Traceback" not in home.log()


def test_a_webhook_of_another_program_stays(market: Marketplace, double: TelegramDouble, tmp_path: Path) -> None:
    double.webhook = "https://other.example.org/bot"
    home = Home(tmp_path, market.url, extra=chat_by(double))
    with home.daemon() as child:
        wait_for(lambda: "another program" in home.log())
        terminate(child)
    assert double.webhook == "https://other.example.org/bot"


def test_without_the_web_server_the_bot_is_polled(market: Marketplace, double: TelegramDouble, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url, extra=chat_by(double, more=HOOK))
    with home.daemon() as child:
        wait_for(lambda: "updates require [web]" in home.log())
        double.write("/help", OWNER)
        a_message(double, "gpuwatch in this chat")
        terminate(child)
    assert double.webhook == ""
