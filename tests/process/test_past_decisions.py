"""The real daemon stores what its watches decide, and a command answers for a time that is over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, terminate, wait_for


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=0, delays=Delays(running_s=0.1)) as opened:
        yield opened


def asked(home: Home, at: datetime) -> dict[str, Any]:
    done = home.run("watches", "cheap", "--why", at.isoformat(), "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)[0])


def reasons(home: Home) -> list[str]:
    return [one["reason"] for one in asked(home, real_now())["changes"]]


def test_what_kept_a_watch_from_renting_is_known_afterwards(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url)
    with home.daemon() as child:
        wait_for(lambda: "no_offer" in reasons(home), every_s=0.5)
        assert home.run("pause", "cheap", "--why", "budget talk").returncode == 0
        bargain(market)
        wait_for(lambda: reasons(home)[-1] == "paused", every_s=0.5)
        paused_at = real_now()
        assert home.run("resume", "cheap").returncode == 0
        wait_for(lambda: "rented" in reasons(home), every_s=0.5)
        assert terminate(child)[0] == 0
    then = asked(home, paused_at)
    decision = then["decision"]
    assert (decision["reason"], decision["blocked_by"], decision["acted"]) == ("paused", "paused", False)
    assert "budget talk" in then["sentence"]
    assert then["known"]
    assert then["best_usd_gpu_hour"] == pytest.approx(1.5, rel=0.3)  # by the history, with its commission and disk
    assert decision["limit_usd_gpu_hour"] == 2.4
    assert datetime.fromisoformat(then["until"]) >= paused_at.replace(microsecond=0)
    before = asked(home, paused_at - timedelta(days=2))
    assert (before["known"], before["decision"]) == (False, None)
    plain = home.run("watches", "cheap", "--why", f"{paused_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}")
    assert "it did not act, because" in plain.stdout
    wrong = home.run("watches", "cheap", "--why", "quarter past three")
    assert (wrong.returncode, "expected a time such as 03:12" in wrong.stderr) == (2, True)
