"""The queue's policy: the order, the limits, who waits, who could share an instance."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.job_values import JobLimit
from gpuwatch.domain.jobs.job_watch import waiting_job_watch
from gpuwatch.domain.jobs.queue import (
    failed_dependency,
    group_states,
    latest_start,
    queue_order,
    saving_usd,
    schedule,
    searching_jobs,
)
from gpuwatch.domain.jobs.shared_instance import InstanceHolder, SharedInstances, costs_less_here
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.watches.watch import Action
from tests.builders import NOON, a_watch
from tests.builders_jobs import a_definition, a_job

S = JobState


def job(name: str, hours: float = 10, in_hours: float | None = None, **changes: Any) -> Job:
    deadline = None if in_hours is None else NOON + timedelta(hours=in_hours)
    of_job = {key: changes.pop(key) for key in ("state", "priority", "spent_microusd") if key in changes}
    definition = a_definition(name=name, hours=FigureRange(hours, hours), **changes)
    return a_job(job_id=f"{name:>8}", name=name, definition=definition, deadline=deadline, **of_job)


def names(jobs: list[Job]) -> list[str]:
    return [one.name for one in jobs]


def test_priority_then_slack_then_age() -> None:
    jobs = [job("later", in_hours=90), job("never"), job("soon", in_hours=30), job("high", in_hours=99, priority=1)]
    assert names(queue_order(jobs)) == ["high", "soon", "later", "never"]


def test_a_long_job_must_start_before_a_short_one_with_an_earlier_deadline() -> None:
    assert names(queue_order([job("short", hours=1, in_hours=20), job("long", hours=20, in_hours=24)])) == [
        "long",
        "short",
    ]


def test_of_one_offer_the_job_that_saves_most_goes_first_unless_another_must_start() -> None:
    small, large = job("small", hours=2), job("large", hours=40)
    assert names(searching_jobs([small, large], NOON, {}, lambda one: 2.0)) == ["large", "small"]
    urgent = job("urgent", hours=5, in_hours=5.5)
    assert names(searching_jobs([small, large, urgent], NOON, {}, lambda one: 2.0)) == ["urgent", "large", "small"]
    assert saving_usd(large, 2.0) == pytest.approx(1.6 * 40)
    assert saving_usd(large, None) == saving_usd(large, 9.0) == 0.0


def test_only_so_many_look_at_once_and_the_others_say_why_they_wait() -> None:
    jobs = [job(f"job{n}") for n in range(5)]
    found = schedule(jobs, NOON, {}, at_once=2)
    assert [one.waits for one in found] == [None, None, *["waits for its turn"] * 3]


def test_a_job_waits_for_those_it_depends_on() -> None:
    after = job("after", depends_on=("prep",))
    for state in (None, S.QUEUED, S.RUNNING):
        states = {} if state is None else {"prep": state}
        assert searching_jobs([after], NOON, states) == []
    assert searching_jobs([after], NOON, {"prep": S.DONE}) == [after]
    assert schedule([after], NOON, {})[0].waits == "waits for another job: prep"
    assert failed_dependency(after, {"prep": S.CANCELLED}) == "prep"
    assert failed_dependency(after, {"prep": S.RUNNING}) is None


def test_an_array_is_done_when_all_of_it_is_and_failed_when_one_is() -> None:
    parts = [job(f"grid-{n}", group="grid", state=S.DONE) for n in (1, 2)]
    assert group_states(parts)["grid"] is S.DONE
    assert group_states([*parts, job("grid-3", group="grid")])["grid"] is S.RUNNING
    assert group_states([*parts, job("grid-3", group="grid", state=S.FAILED)])["grid"] is S.FAILED


def test_nothing_left_of_max_usd_rents_nothing() -> None:
    spent = job("spent", limit=JobLimit(max_usd=Decimal(10)), spent_microusd=10_000_000)
    assert schedule([spent], NOON, {})[0].waits == "nothing is left of max_usd"


def test_the_limit_rises_until_the_latest_start_by_the_advice_and_then_it_is_the_cap() -> None:
    one = job("train", hours=10, in_hours=34)
    assert latest_start(one) == NOON + timedelta(hours=24)
    watch = waiting_job_watch(one, Decimal(3), NOON)
    assert watch.auto is not None
    assert (watch.auto.cap_usd_gpu_hour, watch.auto.deadline_at) == (Decimal(3), latest_start(one))
    assert waiting_job_watch(one, Decimal(3), NOON + timedelta(hours=24)).auto is None
    assert waiting_job_watch(job("free"), Decimal(3), NOON).auto is None


def merged(queued: list[Job], min_billing_h: float = 0.0, holders: tuple[InstanceHolder, ...] = ()) -> list[list[str]]:
    shared = SharedInstances(holders, NOON, min_billing_h)
    for one in queued:
        shared.holder_for(one)
    return [names(list(found.jobs)) for found in shared.merges({})]


def test_small_jobs_share_an_instance_where_that_is_cheaper() -> None:
    jobs = [job(f"small{n}", hours=0.5) for n in range(4)]
    shared = SharedInstances((), NOON, min_billing_h=1.0)
    assert [shared.holder_for(one) for one in jobs] == [None, jobs[0], jobs[0], jobs[0]]
    (found,) = shared.merges({one.job_id: 2.0 for one in jobs})
    assert (len(found.jobs), found.separate_usd, found.combined_usd) == (4, 8.0, pytest.approx(2.2 * 2.0))
    assert found.saving_usd == pytest.approx(3.6)


def test_a_job_that_would_miss_its_deadline_or_needs_something_else_stays_apart() -> None:
    assert merged([job("soon", hours=0.5, in_hours=1), job("late", hours=0.5, in_hours=1)]) == []
    one = job("one", hours=0.5)
    assert merged([one, job("two", hours=0.5)]) == [["one", "two"]]
    others = [
        job("setup", hours=0.5, setup="apt-get install -y jq"),
        job("alone", hours=0.5, share_instance=False),
        job("large", hours=3),  # its set-up is a sixteenth of it
        job("asks", hours=0.5, resources=a_watch(name="job:asks", action=Action.ASK)),
        job("nodes", hours=0.5, nodes=2),
    ]
    assert [merged([one, other]) for other in others] == [[]] * len(others)
    cheap = job("cheap", hours=0.5, limit=JobLimit(max_price_usd_gpu_hour=Decimal("3.50")))
    assert (merged([cheap, one]), merged([one, cheap])) == ([], [["one", "cheap"]])  # no job waits for a lower price
    billed = [job("one", hours=3, in_hours=30), job("two", hours=2, in_hours=30)]
    assert (merged(billed), merged(billed, 3.0)) == ([], [["one", "two"]])


def test_work_that_waits_for_one_instance_is_bounded() -> None:
    """An array of forty jobs must not become one queue of forty hours."""
    found = merged([job(f"n{number:02}", hours=1) for number in range(12)])
    assert [len(one) for one in found] == [5, 5, 2]


def test_a_patient_job_does_not_hold_up_one_that_takes_what_comes() -> None:
    patient, free = job("patient", hours=0.5, in_hours=99), job("free", hours=0.5)
    assert merged([patient, free]) == []
    assert merged([free, patient]) == [["free", "patient"]]


def test_a_running_instance_is_waited_for_while_its_price_and_its_end_suit() -> None:
    first, second = job("first", hours=2, state=S.RUNNING), job("second", hours=0.5)
    at = [InstanceHolder(job=first, price_microusd_hour=price, gpu_count=1) for price in (3_600_000, 3_600_001)]
    assert (merged([second], holders=(at[0],)), merged([second], holders=(at[1],))) == ([["first", "second"]], [])
    assert merged([job("soon", hours=0.5, in_hours=2.6)], holders=(at[0],)) == []  # then no time is left for its own
    assert merged([job("soon", hours=0.5, in_hours=2.8)], holders=(at[0],)) == [["first", "soon"]]
    assert (costs_less_here(second, 2.7, 2.0), costs_less_here(second, 2.9, 2.0)) == (True, False)


def test_who_waits_for_an_instance_looks_for_none_and_says_so() -> None:
    one, two = job("one", hours=0.5), job("two", hours=0.5)
    assert names(searching_jobs([one, two], NOON, {}, shared=SharedInstances((), NOON))) == ["one"]
    found = schedule([one, two], NOON, {}, shared=SharedInstances((), NOON))
    assert [(each.job.name, each.waits) for each in found] == [
        ("one", None),
        ("two", "runs on the instance of job one"),
    ]
