"""Tasks of the real daemon that hang or raise: reported once with their cause, and again when they recover."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.emulator import Marketplace
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for
from tests.process.service_manager import ServiceManager
from tests.telegram_double import TelegramDouble

pytestmark = pytest.mark.slow


def alerts(double: TelegramDouble, text: str) -> list[str]:
    return [one.text for one in double.shown if text in one.text]


def test_a_task_that_hangs_is_reported_with_its_place_and_the_watchdog_starves(
    market: Marketplace, double: TelegramDouble, manager: ServiceManager, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, extra=f'timeout = "1s"\n{notify_by(double)}')
    env = {"GPUWATCH_FAILPOINT": "reconcile.listed:3@sleep22", "GPUWATCH_TEST_PACE": "4"}
    bargain(market)
    with home.daemon(**env, NOTIFY_SOCKET=manager.path, WATCHDOG_USEC="2000000") as child:
        wait_for(lambda: manager.pings() >= 3)
        (report,) = wait_for(lambda: alerts(double, "task follow vastai hangs"))
        assert "it waits in gpuwatch/engine/" in report
        starved = manager.pings()
        wait_for(lambda: "task follow vastai hangs" in manager.status())
        assert manager.pings() <= starved + 1  # one may have been under way
        wait_for(lambda: "the watchdog is no longer fed" in home.log())
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
    """Like systemd with a daemon whose watchdog is not fed: the next process knows the last one's reports."""
    home = Home(tmp_path, market.url, extra=notify_by(double))
    with home.daemon(GPUWATCH_FAILPOINT="reconcile.listed:2@raise1000", GPUWATCH_TEST_PACE="4") as child:
        wait_for(lambda: alerts(double, "task follow vastai fails"))
        child.kill()
    with home.daemon() as child:
        wait_for(lambda: alerts(double, "task follow vastai works again"))
        assert terminate(child)[0] == 0
