"""When a running job moves to a cheaper machine: all that the move costs is counted, and a risk stops it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuwatch.domain.jobs.job import Job, JobRun, JobState
from gpuwatch.domain.jobs.job_values import CheckpointSpec
from gpuwatch.domain.jobs.job_watch import MoveFacts, MoveVerdict, judged_move, watch_for_a_move
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.market.traffic import Traffic
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import JobRelocateSpec
from gpuwatch.domain.watches.watch import SpotPolicy
from tests.builders import NOON, a_match, an_offer, changed, seen_at
from tests.builders_jobs import a_definition, a_job
from tests.domain.launches.guard_values import a_running_launch

MOVES = JobRelocateSpec(action="move")
NOW = NOON + timedelta(hours=4)
LAUNCH = a_running_launch(watch="job:train")  # at 4 $/h since noon
RUN = JobRun(job_id="jobaaaa2", run_number=1, launch_id=LAUNCH.launch_id, started_at=NOON + timedelta(minutes=30))


def a_runner(**changes: Any) -> Job:
    """Four of twenty to thirty hours are done, at 4 $/h."""
    definition = a_definition(checkpoint=CheckpointSpec(path="ckpt"), hours=FigureRange(23.5, 33.5), relocate=MOVES)
    definition = changed(definition, **changes.pop("of_file", {}))
    return a_job(**{"state": JobState.RUNNING, "definition": definition} | changes)


def quote(usd_hour: float = 2.0) -> Match:
    offer = changed(an_offer(quoted_usd_hour=usd_hour, provider="runpod"), disk_usd_gb_month=None)
    return seen_at(a_match(offer, commission="0"), NOW)


def judged(job: Job | None = None, usd_hour: float = 2.0, run: JobRun = RUN, **facts: Any) -> MoveVerdict:
    plain = {"now": NOW, "limit_usd_gpu_hour": Decimal("3.60"), "checkpoint_at": NOW - timedelta(minutes=10)}
    return judged_move(job or a_runner(), run, LAUNCH, [quote(usd_hour)], MoveFacts(**(plain | facts)))


def test_the_saving_is_what_is_left_after_all_that_the_move_costs() -> None:
    """Twenty hours: 80 $ here; there 30 min of start, 10 min done again, at 2 $, and two more minutes at 4 $."""
    found = judged().found
    assert judged().stays is None
    assert found is not None
    assert found.cost_here_microusd == 80_000_000
    assert found.cost_there_microusd == pytest.approx((20 + 40 / 60) * 2e6 + 2 / 60 * 4e6, abs=1)
    assert found.work.left == timedelta(hours=20)


@pytest.mark.parametrize(
    ("usd_hour", "facts", "job", "stays"),
    [
        (3.5, {}, {}, "moving to runpod would save $7.53 (9%); min_saving is 15%"),
        (4.0, {}, {}, "moving to runpod would cost more; min_saving is 15%"),
        (2.0, {"limit_usd_gpu_hour": Decimal("1.9")}, {}, "the offer is over the limit that the job would have after"),
        (2.0, {}, {"deadline": NOW + timedelta(hours=31)}, "its deadline would be at risk"),
        (2.0, {}, {"deadline": NOW + timedelta(hours=32)}, None),
        (2.0, {"moved_at": (NOON, NOON - timedelta(hours=3), NOON)}, {}, "it moved 3 times within 24 hours"),
        (2.0, {"moved_at": (NOON - timedelta(hours=30),) * 3}, {}, None),
        (2.0, {}, {"progress": 0.96}, "it may be done within 1h"),
        (2.0, {"ends_at": (NOW + timedelta(minutes=50), NOW + timedelta(hours=9))}, {}, "it may be done within 1h"),
        (2.0, {}, {"of_file": {"hours": None}}, "how long its work still takes is unknown: it reports no progress"),
        (2.0, {"ends_at": (NOW + timedelta(hours=8), NOW + timedelta(hours=9))}, {"of_file": {"hours": None}}, None),
        (2.0, {}, {"of_file": {"active": ("22:00-08:00",)}}, "it could not start again now (active)"),
        (2.0, {"now": NOON + timedelta(hours=1)}, {}, "it has been on its machine for less than 2h (after)"),
    ],
)  # fmt: skip
def test_it_stays_where_the_move_is_not_worth_it_or_a_risk(
    usd_hour: float, facts: dict[str, Any], job: dict[str, Any], stays: str | None
) -> None:
    found = judged(a_runner(**job), usd_hour, **facts).stays
    assert found == stays or (stays is not None and found is not None and found.startswith(stays))


def test_the_limit_after_the_move_contains_traffic_as_the_job_s_prices_do() -> None:
    """At 2 $/h the rent fits under 2.05 $; with 30 GB at 10 ct over 30 h in it, the price does not."""
    limit = {"limit_usd_gpu_hour": Decimal("2.05")}
    offer = changed(quote().offer, download_usd_gb=0.1)
    there = [changed(quote(), offer=offer)]
    facts = {"now": NOW, "checkpoint_at": NOW - timedelta(minutes=10)} | limit
    assert judged_move(a_runner(), RUN, LAUNCH, there, MoveFacts(**facts)).stays is None
    moved = MoveFacts(**facts, traffic=Traffic(30.0, 0.0, 30 * 3600.0))
    stays = judged_move(a_runner(), RUN, LAUNCH, there, moved).stays
    assert stays == "the offer is over the limit that the job would have after the move"


def test_work_since_the_checkpoint_is_done_again_and_a_move_waits_for_one_that_is_not_older_than_its_interval() -> None:
    old = judged(checkpoint_at=NOW - timedelta(hours=3)).found
    assert old is not None
    assert old.work.repeated == timedelta(minutes=20)
    without = judged(a_runner(of_file={"checkpoint": None}), checkpoint_at=None).found
    assert without is not None
    assert without.work.repeated == timedelta(hours=3, minutes=30), "all of it begins anew"


def test_earlier_runs_count_as_done_for_the_saving_and_as_lost_for_the_deadline() -> None:
    run = changed(RUN, run_number=2)
    found = judged(run=run, ran_before_h=5.0).found
    assert found is not None
    assert found.work.left == timedelta(hours=15)
    assert judged(a_runner(deadline=NOW + timedelta(hours=31)), run=run, ran_before_h=5.0).stays is not None


def test_on_an_instance_that_another_job_rented_the_time_counts_from_then() -> None:
    taken = changed(RUN, held_from=NOW - timedelta(hours=1))
    assert judged(run=taken).stays == "it has been on its machine for less than 2h (after)"
    assert judged(run=changed(RUN, held_from=NOON)).found is not None


def test_what_is_observed_are_offers_like_its_machine_that_are_cheap_enough() -> None:
    watch = watch_for_a_move(a_runner(), LAUNCH, NOW)
    assert watch is not None
    assert (watch.name, watch.gpu_names, watch.gpu_count_max, watch.spot) == (
        "job:train",
        ("H100 SXM",),
        1,
        SpotPolicy.NO,
    )
    assert watch.max_price_usd_gpu_hour == Decimal("3.40"), "4 $ less 15 %"
    assert (watch.only_observed, watch.rents_alone) == (True, False)
    assert watch_for_a_move(a_runner(), changed(LAUNCH, spot=True), NOW).spot is SpotPolicy.ONLY  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("job", "launch", "hours"),
    [
        ({"of_file": {"relocate": None}}, {}, 4.0),
        ({"state": JobState.QUEUED}, {}, 4.0),
        ({}, {"state": LaunchState.STOPPING}, 4.0),
        ({}, {}, 1.5),
    ],
)
def test_otherwise_nothing_is_observed(job: dict[str, Any], launch: dict[str, Any], hours: float) -> None:
    assert watch_for_a_move(a_runner(**job), changed(LAUNCH, **launch), NOON + timedelta(hours=hours)) is None
