"""Tasks of the real daemon that hang or raise: reported once with their cause, and once more when they work again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for
from tests.telegram_double import TelegramDouble, telegram

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=8, delays=Delays(running_s=0.3)) as opened:
        yield opened


@pytest.fixture
def double() -> Iterator[TelegramDouble]:
    with telegram() as opened:
        yield opened


class Manager:
    """The service manager's end of the socket: what the daemon sends there."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self.lines: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.lines += self._socket.recv(8192).decode().splitlines()

    def pings(self) -> int:
        return self.lines.count("WATCHDOG=1")

    def status(self) -> str:
        return next((line for line in reversed(self.lines) if line.startswith("STATUS=")), "")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    opened = Manager(tmp_path / "notify")
    yield opened
    opened.close()


def alerts(double: TelegramDouble, text: str) -> list[str]:
    return [one.text for one in double.shown if text in one.text]


def test_a_task_that_hangs_is_reported_with_its_place_and_the_watchdog_starves(
    market: Marketplace, double: TelegramDouble, manager: Manager, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, extra=f'timeout = "1s"\n{notify_by(double)}')
    env = {"GPUWATCH_FAILPOINT": "reconcile.listed:3@sleep22", "GPUWATCH_TEST_PACE": "4"}
    bargain(market)
    with home.daemon(**env, NOTIFY_SOCKET=manager.path, WATCHDOG_USEC="2000000") as child:
        wait_for(lambda: manager.pings() >= 3)
        (report,) = wait_for(lambda: alerts(double, "task follow vastai hangs"))
        assert "failpoint.py" in report
        starved = manager.pings()
        wait_for(lambda: "task follow vastai hangs" in manager.status())
        assert manager.pings() <= starved + 1  # one may have been under way
        assert "the watchdog is no longer fed" in home.log()
        wait_for(lambda: alerts(double, "task follow vastai works again"))
        wait_for(lambda: manager.pings() > starved + 2)
        assert len(alerts(double, "task follow vastai hangs")) == 1
        assert terminate(child)[0] == 0
    assert "in reconcile" in home.log()  # the stack of the waiting thread


def test_a_task_that_raises_each_time_is_one_alert_and_one_traceback_until_it_works_again(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, extra=notify_by(double))
    bargain(market)
    with home.daemon(GPUWATCH_FAILPOINT="reconcile.listed:2@raise14", GPUWATCH_TEST_PACE="4") as child:
        (report,) = wait_for(lambda: alerts(double, "task follow vastai fails"))
        assert "RuntimeError: failpoint reconcile.listed" in report
        wait_for(lambda: alerts(double, "task follow vastai works again"))
        assert terminate(child)[0] == 0
    assert home.log().count("Traceback (most recent call last)") == 1
    assert len(alerts(double, "task follow vastai fails")) == 1


def test_what_a_task_did_before_a_restart_is_taken_back_after_it(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    """As systemd does with a daemon whose watchdog starves: the next process knows what the last one reported."""
    home = Home(tmp_path, market.url, extra=notify_by(double))
    with home.daemon(GPUWATCH_FAILPOINT="reconcile.listed:2@raise1000", GPUWATCH_TEST_PACE="4") as child:
        wait_for(lambda: alerts(double, "task follow vastai fails"))
        child.kill()
    with home.daemon() as child:
        wait_for(lambda: alerts(double, "task follow vastai works again"))
        assert terminate(child)[0] == 0
