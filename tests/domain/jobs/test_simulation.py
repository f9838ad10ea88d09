"""A queue on recorded prices, with hand-made series whose outcome can be computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.domain.history.price_series import PriceSeries
from gpuwatch.domain.jobs.job_values import CheckpointSpec
from gpuwatch.domain.jobs.simulation.queue_simulation import (
    QueuePolicy,
    SimulatedJob,
    SimulatedStart,
    is_covered,
    simulate_queue,
)
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.watches.launch_spec import JobRelocateSpec
from tests.builders_jobs import a_definition, a_job

Q = QueuePolicy


def series(*usd: float | None, polled: tuple[bool, ...] | None = None) -> PriceSeries:
    lows = [None if one is None else round(one * 1e6) for one in usd]
    return PriceSeries(first_hour=100, lows=lows, polled=polled or tuple(True for _ in usd), source="test")


def job(name: str = "a", **changes: Any) -> SimulatedJob:
    plain: dict[str, Any] = {
        "name": name, "market": "h100", "gpus": 2, "hours": 3.0, "submitted_h": 100, "deadline_h": 110,
        "cap_usd_gpu_hour": 5.0,
    }  # fmt: skip
    return SimulatedJob(**(plain | changes))


def run(policy: QueuePolicy, *jobs: SimulatedJob, limit: float = 2.0, slots: int | None = None) -> list[SimulatedStart]:
    lows = {"h100": series(3.0, 3.0, 2.0, 4.0, None, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)}
    medians = {"h100": series(*[6.0] * 11)}
    return simulate_queue(jobs, policy, lows, medians, lambda *_: limit, slots)


def test_the_queue_waits_for_its_limit_and_the_others_do_not() -> None:
    (waited,), (cheapest,), (listed,) = run(Q.QUEUE, job()), run(Q.CHEAPEST_NOW, job()), run(Q.LIST_PRICE, job())
    assert (waited.started_h, waited.usd) == (102, 2.0 * 2 * 3)
    assert (cheapest.started_h, cheapest.usd) == (100, 3.0 * 2 * 3)
    assert (listed.started_h, listed.usd) == (100, 6.0 * 2 * 3)
    assert not waited.is_late


def test_spot_first_takes_spot_offers_until_its_time_and_then_any() -> None:
    lows = {"h100": series(1.5, 1.5, 1.5, 1.5, 1.5, 1.5), "spot": series(None, None, 1.8, 1.2, None, None)}
    both = lows | {"spot": series(*[None] * 6)}
    first = job(spot_market="spot", spot_until_h=104.8, deadline_h=108)

    def started(lows: dict[str, PriceSeries]) -> tuple[int | None, float | None]:
        (found,) = simulate_queue([first], Q.QUEUE, lows, lows, lambda *_: 1.6)
        return found.started_h, found.usd_gpu_hour

    assert started(lows) == (103, 1.2), "the spot offer of 102 is over the limit"
    assert started(both) == (105, 1.5)


def test_a_job_starts_in_its_windows_alone_whatever_the_policy() -> None:
    """Hour 100 is 05:00 in Berlin in January, and 04:00 in UTC."""
    night = job(active=("07:30-09:00",), zone="Europe/Berlin")
    assert [run(policy, night)[0].started_h for policy in Q] == [102, 102, 102], "the window opens within the hour"
    assert run(Q.QUEUE, night, limit=1.0)[0].started_h is None, "the limit is met from 10:00 on, when it is closed"
    assert run(Q.CHEAPEST_NOW, job(active=("07:30-09:00",)))[0].started_h == 103, "07:00 in UTC"


def test_a_run_of_a_recurring_job_is_skipped_while_another_one_is_open() -> None:
    """At once each takes three hours; with the limit, the first one waits until 102, and the fourth to its deadline."""
    runs = [job(str(at), submitted_h=at, deadline_h=at + 4, series="nightly") for at in (100, 101, 103, 106, 110)]
    at_once = {one.job.name: (one.started_h, one.is_skipped, one.is_late) for one in run(Q.CHEAPEST_NOW, *runs)}
    assert at_once == {
        "100": (100, False, False), "101": (None, True, False), "103": (103, False, False),
        "106": (106, False, False), "110": (110, False, False),
    }  # fmt: skip
    waits = {one.job.name: one.started_h for one in run(Q.QUEUE, *runs, limit=2.0)}
    assert waits == {"100": 102, "101": None, "103": None, "106": 106, "110": 110}, "late ones end at their deadline"
    never = [(one.started_h, one.is_skipped) for one in run(Q.QUEUE, *runs, limit=0.5)]
    assert never == [(None, False), (None, True), (None, True), (None, False), (None, False)]


def test_a_job_moves_by_the_rule_of_the_daemon() -> None:
    """At 4 $ for two GPUs, twenty hours, and at 1 $ from 105 on, when it has been there for two hours."""
    lows = {"h100": series(*[4.0] * 5, *[1.0] * 30)}

    def ended(after_s: float = 7200.0, price: float = 1.0, hours: float = 20.0) -> SimulatedStart:
        spec = JobRelocateSpec(action="move", after_s=after_s)
        figures = FigureRange(hours, hours)
        definition = a_definition(checkpoint=CheckpointSpec(path="ckpt"), hours=figures, relocate=spec)
        moving = job(hours=hours, deadline_h=160, moving=a_job(definition=definition), alike={("H100", False): "h100"})
        prices = {"h100": series(*[4.0] * 5, *[price] * 30)}
        (found,) = simulate_queue([moving], Q.QUEUE, prices, prices, lambda *_: 5.0)
        return found

    moved = ended()
    done_h = 105 + 2 / 60 + 0.2 + 15 + 20 / 60  # paid two minutes more, 12 minutes to start, 20 minutes once more
    assert moved.moves is not None
    assert (moved.moves.count, moved.ended_h) == (1, pytest.approx(done_h))
    assert moved.usd == pytest.approx(2 * (4 * (5 + 2 / 60) + 0.2 + 15 + 20 / 60))
    assert moved.usd_stayed == 160.0
    for stays in (ended(after_s=40 * 3600.0), ended(price=3.6), ended(hours=5.5)):
        assert stays.moves is not None
        assert (stays.moves.count, stays.usd) == (0, pytest.approx(stays.usd_stayed))
    (at_once,) = simulate_queue([job(hours=20.0)], Q.CHEAPEST_NOW, lows, lows, lambda *_: 5.0)
    assert at_once.moves is None


def test_a_limit_that_nothing_reaches_is_a_missed_deadline() -> None:
    (missed,) = run(Q.QUEUE, job(), limit=0.5)
    assert (missed.started_h, missed.usd, missed.is_late) == (None, 0.0, True)


def test_a_start_that_is_too_late_is_late() -> None:
    (late,) = run(Q.QUEUE, job(deadline_h=107), limit=1.0)
    assert (late.started_h, late.is_late) == (105, True)


def test_with_one_slot_the_job_that_must_start_first_goes_first() -> None:
    easy, urgent, high = job("easy"), job("urgent", deadline_h=105), job("high", priority=1)
    found = {start.job.name: start.started_h for start in run(Q.CHEAPEST_NOW, easy, urgent, high, slots=1)}
    assert found == {"high": 100, "urgent": 103, "easy": 106}


def test_a_job_that_nobody_looked_for_is_not_counted() -> None:
    assert is_covered(job(), series(*[1.0] * 11))
    assert not is_covered(job(deadline_h=200), series(*[1.0] * 11))
    assert not is_covered(job(submitted_h=99), series(*[1.0] * 11))
    seldom = tuple(at % 2 == 0 for at in range(11))
    assert not is_covered(job(), series(*[1.0] * 11, polled=seldom))
