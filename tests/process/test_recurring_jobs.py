"""The real daemon starts the runs of recurring jobs: once each, never two at once, and reports missed times."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Marketplace
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver
from tests.process.audit import rows
from tests.process.daemon_child import Home, wait_for

DIED = 86
JOB = """
command = "python train.py"
resources = { gpu = "A100", disk_gb = 20 }
limit = { max_price = 2 }
schedule = "0 2 * * 6"
within = "6h"
"""
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=3, key="demo-key", size=4, odd_rows=False) as opened:
        for row in opened.offers():
            opened.withdraw(row["id"])
        opened.publish(gpu="A100 SXM4", count=1, usd_hour=1.5)
        yield opened


def submitted(home: Home, ago_ms: int, more: str = "") -> None:
    """Submit it, as if that had been before a time that came this long ago."""
    (home.folder / "nightly.toml").write_text(JOB + more)
    ran = home.run("jobs", "submit", "nightly.toml")
    assert ran.returncode == 0, ran.stderr
    path = home.database_url.removeprefix("sqlite:///")
    with sqlite_driver().connect(path, timeout=60) as connection:
        at_ms = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS - ago_ms
        connection.execute("UPDATE job_series SET next_at_ms = ?", (at_ms,))
    connection.close()


def runs(home: Home) -> list[str]:
    return [row["state"] for row in rows(home.database_url, "SELECT state FROM job WHERE series = 'nightly'")]


def test_a_run_rents_once_although_the_daemon_dies_while_it_starts(tmp_path: Path, market: Marketplace) -> None:
    home = Home(tmp_path, market.url)
    submitted(home, 0)
    with home.daemon(GPUWATCH_FAILPOINT="series.before_advance") as child:
        assert child.wait(timeout=240) == DIED
    assert runs(home) == []
    with home.daemon():
        wait_for(lambda: runs(home) == ["preparing"])
        (job,) = json.loads(home.run("jobs", "list", "--json").stdout)
        (launch,) = home.launches()
        assert job["series"] == "nightly"
        assert launch["watch_id"] == job["job_id"]
        # its next time comes while it runs
        submitted(home, 0)
        headlines = "SELECT headline FROM alert WHERE headline LIKE '%previous run%'"
        wait_for(lambda: rows(home.database_url, headlines))
        assert runs(home) == ["preparing"]
        ended = home.run("jobs", "cancel", "nightly")
        assert ended.returncode == 0, ended.stderr
        assert runs(home) == ["cancelled"]
        assert home.launches()[0]["state"] == "ended"
        assert len(market.ledger.creates) == 1
    assert market.instances() == []


def test_times_that_passed_without_a_daemon_are_one_alert_and_nothing_is_rented(
    tmp_path: Path, market: Marketplace
) -> None:
    home = Home(tmp_path, market.url)
    submitted(home, 21 * 24 * HOUR_MS)
    with home.daemon():
        missed = wait_for(lambda: rows(home.database_url, "SELECT headline FROM alert WHERE headline LIKE '%missed%'"))
        assert len(missed) == 1
        (one,) = json.loads(home.run("jobs", "series", "--json").stdout)
        assert one["missed"] >= 3
        assert (runs(home), market.ledger.creates) == ([], ())
