"""A job as a watch: the price and the time that its limits allow."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest

from gpuwatch.domain.jobs.job_values import JobLimit
from gpuwatch.domain.jobs.job_watch import max_runtime_s, price_cap, waiting_job_watch, work_hours_left
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.watches.owner_names import Purpose
from gpuwatch.domain.watches.watch import Action, SpotPolicy
from tests.builders import NOON, a_watch
from tests.builders_jobs import a_definition, a_job


def test_the_watch_has_the_name_the_limit_and_one_instance() -> None:
    watch = waiting_job_watch(a_job(), Decimal(2), NOON)
    assert (watch.name, watch.action, watch.max_price_usd_gpu_hour) == ("job:train", Action.LAUNCH, Decimal(2))
    assert watch.launch is not None
    assert (watch.launch.max_active, watch.launch.max_total) == (1, 0)
    assert watch.launch.max_runtime_s == 36 * 3600


@pytest.mark.parametrize(("watch", "job"), [("cheap 4090", None), ("job:train", "train"), ("my job:train", None)])
def test_a_stored_name_says_whether_it_is_a_job(watch: str, job: str | None) -> None:
    assert Purpose.of(watch) == Purpose(watch, job) == a_watch(name=watch).purpose
    assert job is None or Purpose.of_job(job) == Purpose.of(watch)


def test_with_spot_first_the_deadline_sets_the_end_of_the_wait() -> None:
    """A machine ordered then starts its work at the latest start; at that time the limit is reached, too."""
    spot = a_watch(spot=SpotPolicy.FIRST)
    definition = a_definition(resources=spot, hours=FigureRange(2, 4))
    job = a_job(definition=definition, deadline=NOON + timedelta(hours=10))
    watch = waiting_job_watch(job, price_cap(job), NOON)
    assert watch.spot_until == NOON + timedelta(hours=6) - timedelta(minutes=12)
    assert watch.auto is not None
    assert watch.auto.deadline_at == watch.spot_until
    half = waiting_job_watch(msgspec.structs.replace(job, progress=0.5), price_cap(job), NOON)
    assert half.spot_until == watch.spot_until + timedelta(hours=2), "after a lost machine there is less to do"
    timeless = msgspec.structs.replace(job, deadline=None)
    assert waiting_job_watch(timeless, price_cap(job), NOON).spot_until is None


def test_no_limit_of_the_queue_exceeds_that_of_the_job() -> None:
    assert waiting_job_watch(a_job(), Decimal(50), NOON).max_price_usd_gpu_hour == Decimal("3.60")


@pytest.mark.parametrize(
    ("limit", "gpus", "spent", "cap"),
    [
        (JobLimit(max_price_usd_gpu_hour=Decimal("2.5")), 1, 0, "2.5"),
        (JobLimit(max_usd_hour=Decimal(8)), 4, 0, "2"),
        (JobLimit(max_usd=Decimal(100)), 1, 0, "4.991680"),  # 20 hours, and two minutes until its end is proven
        (JobLimit(max_usd=Decimal(100)), 2, 20_000_000, "1.996672"),
        (JobLimit(max_usd=Decimal(100), max_price_usd_gpu_hour=Decimal(3)), 1, 0, "3"),
        (JobLimit(max_usd=Decimal(10)), 1, 11_000_000, "0.000001"),
    ],
)
def test_the_strictest_limit_holds(limit: JobLimit, gpus: int, spent: int, cap: str) -> None:
    resources = a_watch(gpu_count_min=gpus, gpu_count_max=gpus, max_price_usd_gpu_hour=Decimal(10_000))
    definition = a_definition(limit=limit, resources=resources, hours=FigureRange(10, 20))
    assert price_cap(a_job(definition=definition, spent_microusd=spent)) == Decimal(cap)


def test_a_run_never_costs_more_than_is_left() -> None:
    definition = a_definition(limit=JobLimit(max_usd=Decimal(100)), hours=FigureRange(10, 20))
    job = a_job(definition=definition, spent_microusd=40_000_000)
    limit = price_cap(job)
    assert float(limit) * max_runtime_s(job, limit, NOON) / 3600 <= 60.0
    assert max_runtime_s(job, Decimal(1), NOON) == 30 * 3600


def test_a_run_ends_at_the_deadline_and_is_shorter_after_progress() -> None:
    job = a_job(deadline=NOON + timedelta(hours=5))
    assert max_runtime_s(job, Decimal(2), NOON) == 5 * 3600
    half = a_job(definition=a_definition(hours=FigureRange(10, 20)), progress=0.5)
    assert work_hours_left(half) == 10
    assert max_runtime_s(half, Decimal(2), NOON) == 15 * 3600


def test_the_usd_per_hour_are_a_budget_of_the_watch() -> None:
    definition = a_definition(limit=JobLimit(max_usd_hour=Decimal(8)))
    assert waiting_job_watch(a_job(definition=definition), Decimal(9), NOON).budget.max_usd_hour == Decimal(8)
