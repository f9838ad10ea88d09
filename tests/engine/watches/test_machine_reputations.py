"""A watch with `min_reputation` uses the results of launches; a failing store changes nothing."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec
import pytest

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.past_limits import MachineRecord, MachineRecords
from gpuwatch.engine.watches.current_limits import REPUTATIONS_READ_EVERY, MachineReputations
from gpuwatch.engine.watches.hunt import CurrentLimit, Hunter
from gpuwatch.errors import StoreError
from tests.builders import a_watch, an_offer
from tests.engine.uow_fakes import NOON, ScriptedMarket, an_answer
from tests.engine.watches.test_evaluator import Bench

WANTS = a_watch(min_reputation=0.9)


class Launches:
    def __init__(self) -> None:
        self.reads, self.bad, self.is_down = 0, 1, False

    def __call__(self, _now: datetime) -> MachineRecords:
        self.reads += 1
        if self.is_down:
            raise StoreError("the database is gone")
        return {("vastai", "77"): MachineRecord(bad=self.bad)}


def bad_of(known: MachineReputations, now: datetime) -> int:
    return known.with_records(WANTS, now).records["vastai", "77"].bad


def _with_records(launches: Launches) -> CurrentLimit:
    known = MachineReputations(launches)
    return lambda watch, now, _polled_at: known.with_records(watch, now)


def test_launches_are_read_once_a_minute_for_all_watches_that_ask() -> None:
    launches = Launches()
    known = MachineReputations(launches)
    assert known.with_records(a_watch(), NOON) == a_watch()
    assert (bad_of(known, NOON), bad_of(known, NOON), launches.reads) == (1, 1, 1)
    launches.bad = 2
    assert (bad_of(known, NOON + REPUTATIONS_READ_EVERY), launches.reads) == (2, 2)


@pytest.mark.parametrize("of_job", [False, True])
def test_a_hunt_refuses_a_machine_once_it_has_failed(of_job: bool) -> None:
    launches, now = Launches(), NOON
    launches.bad = 0
    bench, market = Bench(WANTS), ScriptedMarket(an_answer())
    hunter = Hunter(
        market, [] if of_job else [WANTS], Commission("0"), bench.evaluator, lambda *_: None, threading.Event(),
        current_limit=_with_records(launches), job_watches=lambda: [WANTS] if of_job else [],
    )  # fmt: skip
    fired = []
    for bad, usd in ((0, 2.0), (3, 1.0)):
        launches.bad, now = bad, now + REPUTATIONS_READ_EVERY
        market.script = [an_answer(an_offer(quoted_usd_hour=usd, reliability=0.99, observed_at=now), at=now)]
        hunter.run_round(lambda now=now: now, 30.0, 30.0)  # type: ignore[misc]
        fired.append(len(bench.uow_factory.alerts))
    assert fired == [1, 1]


def test_a_store_that_fails_leaves_what_was_known() -> None:
    launches = Launches()
    known = MachineReputations(launches)
    bad_of(known, NOON)
    launches.is_down = True
    assert bad_of(known, NOON + timedelta(hours=1)) == 1


def test_a_queued_job_gets_the_limits_of_this_moment_like_any_watch() -> None:
    launches, job = Launches(), a_watch(name="job:train", min_reputation=0.9)
    launches.bad = 3
    bench, market = Bench(job), ScriptedMarket(an_answer())
    hunter = Hunter(
        market, [], Commission("0"), bench.evaluator, lambda *_: None, threading.Event(),
        current_limit=_with_records(launches), job_watches=lambda: [job],
    )  # fmt: skip
    fired = []
    for now in (NOON, NOON + REPUTATIONS_READ_EVERY):
        market.script = [an_answer(an_offer(quoted_usd_hour=1.0, reliability=0.99, observed_at=now), at=now)]
        hunter.run_round(lambda now=now: now, 30.0, 30.0)  # type: ignore[misc]
        fired.append(len(bench.uow_factory.alerts))
        launches.bad = 0
    assert fired == [0, 1]


def test_the_automatic_limit_of_a_job_is_what_it_is_hunted_at() -> None:
    job = a_watch(name="job:train", max_price_usd_gpu_hour=Decimal(4))
    bench, market = Bench(job), ScriptedMarket(an_answer(an_offer(quoted_usd_hour=2.0)))
    hunter = Hunter(
        market, [], Commission("0"), bench.evaluator, lambda *_: None, threading.Event(),
        current_limit=lambda watch, _now, _polled_at: msgspec.structs.replace(watch, max_price_usd_gpu_hour=Decimal(1)),
        job_watches=lambda: [job],
    )  # fmt: skip
    hunter.run_round(lambda: NOON, 30.0, 30.0)
    assert len(bench.uow_factory.alerts) == 0
