"""Two daemons on one PostgreSQL that both lead: unique rows decide, whichever sleeps (M01–M03, B15, B16)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

from gpuwatch.emulator import Delays, Marketplace
from tests.process.audit import Audit, Limits, launches, rows
from tests.process.crash_matrix import somebody_rents
from tests.process.daemon_child import bargain, terminate, wait_for
from tests.process.two_daemons import BOTH_LEAD, KEY, Crossing, home_of, orders, until

pytestmark = pytest.mark.slow

GPUS = (
    "H100 SXM", "RTX 4090", "RTX 3090", "RTX 5090", "L40S", "L40", "A40", "RTX A6000", "RTX A5000", "RTX A4000",
)  # fmt: skip
RACES = 10  # of each model and seed: 200 in all
PACE = "60"
TO_PROVE = "240"  # the half hour that proves absence takes eight seconds


@pytest.mark.parametrize("seed", [3, 4])
def test_of_two_that_fire_on_one_offer_exactly_one_rents_two_hundred_times(
    tmp_path: Path, store_url: str, seed: int
) -> None:
    watches = {gpu.lower().replace(" ", "-"): gpu for gpu in GPUS}
    delays = Delays(running_s=0.2)
    with Crossing(GPUS, RACES, seed=seed, key=KEY, size=0, delays=delays, credit_usd=1e6) as market:
        somebody_rents(market, KEY)
        pair = [
            home_of(tmp_path / name, market.url, store_url, watches, max_active=1000, max_total=0)
            for name in ("a", "b")
        ]
        first, second = (home.start(GPUWATCH_TEST_PACE=PACE, **BOTH_LEAD) for home in pair)
        with _ended(first), _ended(second):
            until(market, stalled_s=60)
            wait_for(lambda: not _moving(store_url), every_s=0.5)
            assert [terminate(child)[0] for child in (first, second)] == [0, 0]
        raced = set().union(*market.raced.values())
        assert len(raced) >= len(GPUS) * RACES
        ordered = orders(market)
        assert {offer: ordered[str(offer)] for offer in raced if ordered[str(offer)] != 1} == {}
        assert max(ordered.values()) == 1  # including offers that only one of them saw
        limits = {name: Limits(1000, 0) for name in watches}
        assert Audit(market, store_url, limits, None).faults() == []
        for home in pair:
            assert "Traceback" not in home.log()


def test_one_that_slept_sends_nothing_that_the_other_gave_up(tmp_path: Path, store_url: str) -> None:
    """M03: stopped just before its last check, for longer than the proof of absence takes; then it continues."""
    with Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as market:
        somebody_rents(market, KEY)
        for n in range(3):
            bargain(market, 1.5 + n / 10)
        a, b = (home_of(tmp_path / name, market.url, store_url, {"cheap": "H100"}) for name in ("a", "b"))
        with a.daemon(GPUWATCH_FAILPOINT="launch.before_look@stop", **BOTH_LEAD) as sleeper:
            wait_for(lambda: _is_stopped(sleeper.pid))
            assert len(market.ledger.creates) == 1  # of either daemon
            bargain(market, 1.0)  # the other one takes this: the sleeper's offer stays available
            with b.daemon(GPUWATCH_TEST_PACE=TO_PROVE, **BOTH_LEAD) as other:
                wait_for(lambda: sorted(_states(store_url)) == ["failed", "running"])
                os.kill(sleeper.pid, signal.SIGCONT)
                wait_for(lambda: "launch" in a.log() and "took it over" in a.log())
                time.sleep(3)
                assert terminate(sleeper)[0] == 0
                assert terminate(other)[0] == 0
        assert len(orders(market)) == 2
        assert Audit(market, store_url, {"cheap": Limits(1, 1)}, None).faults() == []


def test_one_that_sleeps_with_the_order_under_way_is_followed_by_the_other(tmp_path: Path, store_url: str) -> None:
    """M02, M03: the answer was read but not recorded; the other one adopts, then the sleeper wakes."""
    with Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as market:
        somebody_rents(market, KEY)
        bargain(market)
        a, b = (home_of(tmp_path / name, market.url, store_url, {"cheap": "H100"}) for name in ("a", "b"))
        with a.daemon(GPUWATCH_FAILPOINT="launch.after_send@stop", **BOTH_LEAD) as sleeper:
            wait_for(lambda: _is_stopped(sleeper.pid))
            with b.daemon(**BOTH_LEAD) as other:
                wait_for(lambda: _states(store_url) == ["running"])
                os.kill(sleeper.pid, signal.SIGCONT)
                time.sleep(4)
                assert _states(store_url) == ["running"]
                assert terminate(sleeper)[0] == 0
                assert terminate(other)[0] == 0
        assert Audit(market, store_url, {"cheap": Limits(1, 1)}, None).faults() == []


@pytest.mark.parametrize("point", ["launch.before_send", "launch.after_send"])
def test_connections_that_die_while_an_order_is_under_way(tmp_path: Path, store_url: str, point: str) -> None:
    """M02, B16: every session is terminated during a create; the result is recorded or found."""
    with Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as market:
        somebody_rents(market, KEY)
        bargain(market)
        home = home_of(tmp_path / "a", market.url, store_url, {"cheap": "H100"})
        with home.daemon(GPUWATCH_FAILPOINT=f"{point}@sleep3") as child:
            wait_for(lambda: f"failpoint {point}" in home.log())
            for _ in range(3):
                _cut_all_connections(store_url)
                time.sleep(0.4)
            wait_for(lambda: _states(store_url) == ["running"])
            assert terminate(child)[0] == 0
        assert sum(orders(market).values()) == 2
        assert Audit(market, store_url, {"cheap": Limits(1, 1)}, None).faults() == []


@contextmanager
def _ended(child: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()


def _states(store_url: str) -> list[str]:
    return [str(row["state"]) for row in launches(store_url)]


def _moving(store_url: str) -> int:
    query = "SELECT launch_id FROM launch WHERE state NOT IN ('running', 'ended', 'failed', 'held')"
    return len(rows(store_url, query))


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _cut_all_connections(store_url: str) -> None:
    name = make_url(store_url).database
    admin = create_engine(make_url(store_url).set(database="postgres"), isolation_level="AUTOCOMMIT")
    try:
        with admin.connect() as connection:
            connection.exec_driver_sql(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
    finally:
        admin.dispose()
