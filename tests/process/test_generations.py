"""Leases belong to a process and a generation: a reload sends nothing twice, a start after a kill waits for nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving
from tests.process.daemon_child import (
    Home,
    bargain,
    notify_by,
    terminate,
    wait_for,
    wait_for_searches,
    wait_until_delivered,
)
from tests.process.test_chat import OWNER, a_message, chat_by
from tests.telegram_double import Fault, TelegramDouble, telegram

pytestmark = pytest.mark.slow


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=8, delays=Delays(running_s=0.3)) as opened:
        yield opened


@pytest.fixture
def chat() -> Iterator[TelegramDouble]:
    with telegram() as opened:
        opened.chats = {str(OWNER)}
        yield opened


def test_a_reload_while_a_slow_channel_takes_an_alert_sends_it_once(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, action="alert", repeat_every="6h", extra=notify_by(double))
    with home.daemon() as child:
        wait_for(lambda: "watching" in home.log())
        double.faults.append(Fault(accepted=True, slow_s=4.0))
        bargain(market)
        wait_for(lambda: double.shown)
        child.send_signal(signal.SIGHUP)
        wait_for(lambda: home.log().count("watching") == 2)
        wait_for_searches(market, 10)
        time.sleep(12.0)  # its answer comes meanwhile; a second one would be sent by now
        wait_until_delivered(home.database_url)
        terminate(child)
    assert len(double.shown) == 1
    assert "does not accept alerts" not in home.log()


def test_a_reload_while_a_slow_hook_runs_calls_it_once(market: Marketplace, tmp_path: Path) -> None:
    calls: list[str] = []

    def answer(request: ReceivedRequest, wire: ReplyWriter) -> None:
        calls.append(request.headers["x-gpuwatch-event"])
        time.sleep(6.0)
        wire.answer(204, b"")

    with serving(answer) as server:
        home = Home(tmp_path, market.url)
        file = tmp_path / "gpuwatch.toml"
        file.write_text(file.read_text() + f'on_running = {{ url = "{server.url}" }}\n')
        bargain(market)
        with home.daemon() as child:
            wait_for(lambda: calls)
            child.send_signal(signal.SIGHUP)
            wait_for(lambda: home.log().count("watching") == 2)
            wait_for_searches(market, 10)
            time.sleep(8.0)
            terminate(child)
    assert calls == ["on_running"]


def test_a_press_while_a_killed_daemon_is_down_is_answered_within_15_s_of_the_start(
    market: Marketplace, chat: TelegramDouble, tmp_path: Path
) -> None:
    bargain(market, 0.5)
    home = Home(tmp_path, market.url, action="ask", repeat_every="1h", extra=chat_by(chat))
    with home.daemon() as child:
        alert = a_message(chat, "gpuwatch approvals approve", "Approve")
        chat.write("/status", OWNER)
        a_message(chat, "Status at")
        child.kill()
        child.wait()
    press_id = chat.press(alert, "Approve", OWNER)
    with home.daemon() as child:
        wait_for(lambda: press_id in chat.answers, within_s=300)
        wait_for(lambda: home.states() == ["running"])
        terminate(child)
    assert len(market.ledger.creates) == 1


def test_an_alert_that_a_kill_interrupted_is_sent_at_the_next_start(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, action="alert", repeat_every="6h", extra=notify_by(double))
    double.faults.append(Fault(hangs_s=3600.0))
    bargain(market)
    with home.daemon() as child:
        wait_for(lambda: "sendMessage" in double.hanging.values())
        child.kill()
        child.wait()
    with home.daemon() as child:
        wait_for(lambda: len(double.shown) == 1, within_s=300)
        terminate(child)
