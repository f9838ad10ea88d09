"""Progress from a command's output or files, and its consequences."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.jobs.job import JobRun
from gpuwatch.domain.jobs.run_progress import (
    bottleneck,
    extrapolate,
    grown,
    parse_progress,
    run_cost_microusd,
    spent_usd,
)
from gpuwatch.domain.launches.launch import Intent, LaunchState, PriceSpan, new_launch
from tests.builders import NOON, a_match, a_watch, changed
from tests.builders_jobs import a_job


@pytest.mark.parametrize(
    ("log", "fraction", "speed", "loss"),
    [
        ("step 30/120 loss: 2.5", 0.25, None, 2.5),
        (" 37%|###7      | 370/1000 [00:10<00:17, 36.1it/s]", 0.37, None, None),
        ("iter 5/10, 12,345.5 tokens/s", 0.5, 12345.5, None),
        ("tokens/sec: 900\nloss=1e-3", None, 900.0, 0.001),
        ("step 1/10\rstep 9/10", 0.9, None, None),
        ("step 12/10", None, None, None),
        ("nothing of use", None, None, None),
    ],
)
def test_a_log_is_read(log: str, fraction: float | None, speed: float | None, loss: float | None) -> None:
    """The newest figure counts; an impossible one is ignored."""
    found = parse_progress(log)
    assert (found.fraction, found.tokens_per_s, found.loss) == (fraction, speed, loss)


def test_a_record_comes_before_the_log() -> None:
    """metrics.jsonl states it explicitly; its first line may be torn."""
    metrics = b'ep": 3}\n{"step": 40, "total_steps": 80, "loss": 1.5}\n{"step": 60, "tokens_per_s": 1e4}\n'
    found = parse_progress("step 1/100", metrics)
    assert (found.fraction, found.tokens_per_s, found.loss) == (0.75, 10_000.0, 1.5)


def test_the_state_of_a_trainer_is_read_from_its_end() -> None:
    """Its beginning may be missing."""
    state = b'ry": [{"loss": 2.25, "step": 400}, {"loss": 2.0, "step": 500}], "max_steps": 1000, "num"'
    found = parse_progress("", state)
    assert (found.fraction, found.loss) == (0.5, 2.0)


@given(st.text(max_size=300), st.binary(max_size=300))
def test_no_text_is_an_error(log: str, metrics: bytes) -> None:
    """A machine may print anything."""
    found = parse_progress(log, metrics)
    assert found.fraction is None or 0 <= found.fraction <= 1


def test_a_forecast_goes_on_at_the_speed_so_far() -> None:
    """A run that resumed at half, and did a tenth in an hour, needs four more hours."""
    ahead = extrapolate(NOON, 0.6, (NOON - timedelta(hours=1), 0.5), 2.0, 10.0)
    assert ahead is not None
    assert ahead.usd.low < 18.0 < ahead.usd.high
    assert ahead.ends_at[0] < NOON + timedelta(hours=4) < ahead.ends_at[1]
    assert extrapolate(NOON, 0.5, (NOON - timedelta(hours=1), 0.5), 2.0, 10.0) is None


def _forecasts(drawn: random.Random, minutes: float) -> Iterator[tuple[bool, int]]:
    """Simulate a run that is polled every few seconds: whether each forecast held its end, and its reports."""
    steps, start_s, tail_s = drawn.choice([10, 30, 100, 500]), drawn.uniform(5, 90), drawn.uniform(0, 60)
    drift, at, times = drawn.uniform(-0.3, 0.3), start_s, list[float]()
    for number in range(steps):
        at += minutes * 60 / steps * (1 + drift * number / steps) * drawn.lognormvariate(0, 0.3)
        times.append(at)
    ends_at, seen, poll_s = NOON + timedelta(seconds=at + tail_s), ((NOON, 0.0),), drawn.uniform(0, 6)
    while poll_s < at + tail_s:
        now, fraction = NOON + timedelta(seconds=poll_s), sum(one <= poll_s for one in times) / steps
        seen = grown(seen, (now, fraction))
        found = extrapolate(now, fraction, seen[0], 2.0, poll_s / 1800, seen=seen)
        if found is not None:
            assert found.usd.low >= poll_s / 1800, "no less than is spent"
            yield found.ends_at[0] <= ends_at <= found.ends_at[1], found.reports
        poll_s += drawn.uniform(5, 8)


@pytest.mark.parametrize("minutes", [2, 5, 10, 30])
def test_nine_of_ten_forecasts_of_runs_of_minutes_hold_their_end(minutes: float) -> None:
    """With a start, a last evaluation, steps that scatter by a third and drift: ± 10 % held a quarter to a half."""
    drawn = random.Random(7)
    held = [is_held for _ in range(60) for is_held, _ in _forecasts(drawn, minutes)]
    assert len(held) > 500
    assert sum(held) / len(held) >= 0.9


def test_a_forecast_is_wider_the_fewer_reports_there_are_and_absent_in_the_first_minute() -> None:
    def width(reports: int, total_s: float = 600.0) -> float:
        seen = tuple((NOON + timedelta(seconds=total_s * n / reports), 0.5 * n / reports) for n in range(reports + 1))
        found = extrapolate(seen[-1][0], 0.5, seen[0], 2.0, 1.0, seen=seen)
        assert found is not None
        assert found.reports == reports
        return (found.ends_at[1] - found.ends_at[0]).total_seconds()

    assert width(1) > width(2) > width(10) > width(60) > 60
    seen = ((NOON, 0.0), (NOON + timedelta(seconds=30), 0.5))
    assert extrapolate(seen[-1][0], 0.5, seen[0], 2.0, 1.0, seen=seen) is None


def test_of_very_many_reports_some_are_kept() -> None:
    seen = ((NOON, 0.0),)
    for number in range(1, 1001):
        seen = grown(seen, (NOON + timedelta(seconds=number), number / 1000))
    assert len(seen) <= 66
    assert (seen[0], seen[-1][1]) == ((NOON, 0.0), 1.0)
    assert grown(seen, (NOON + timedelta(hours=1), 0.5)) == seen


@pytest.mark.parametrize(
    ("gpu", "more", "begins"),
    [
        (95.0, {}, None),
        (None, {"cpu_busy": 1.0}, None),
        (40.0, {"io_wait": 0.3, "cpu_busy": 0.9}, "disk"),
        (40.0, {"cpu_busy": 0.95}, "CPU"),
        (40.0, {"cpu_busy": 0.06, "cpus": 16}, "data loader: only one"),
        (40.0, {"cpu_busy": 0.5, "cpus": 16, "memory_share": 0.2}, "small batch"),
        (40.0, {"cpu_busy": 0.06, "cpus": 16, "memory_share": 0.9}, "data loader: only one processor"),
        (40.0, {}, "data loader: the GPU"),
    ],
)
def test_what_an_idle_gpu_waits_for_is_named(gpu: float | None, more: dict[str, float], begins: str | None) -> None:
    """Below 70 %, according to the machine."""
    found = bottleneck(gpu, **more)  # type: ignore[arg-type]
    assert found is None if begins is None else (found or "").startswith(begins)


def test_one_busy_processor_and_an_empty_gpu_memory_name_both() -> None:
    found = bottleneck(40.0, cpu_busy=0.06, cpus=16, memory_share=0.2) or ""
    assert "data loader: only one processor" in found
    assert "small batch" in found


@pytest.mark.parametrize(("noted", "usd"), [(0, 2.0), (1_990_000, 2.0), (7_000_000, 7.0)])
def test_what_a_run_costs_is_counted_once(noted: int, usd: float) -> None:
    """It was added to the queue's figure for the same launch, so a pilot stopped a job that just fitted."""
    span = PriceSpan(since=NOON - timedelta(hours=1), listed_microusd_hour=2_000_000, price_microusd_hour=2_000_000)
    changes = {"state": LaunchState.RUNNING, "requested_at": span.since, "running_at": span.since, "spans": (span,)}
    intent = Intent(watch=a_watch(), match=a_match(), launch_id="a" * 12, dry_run=False)
    launch = changed(new_launch(intent, 0, NOON), **changes)
    run = JobRun(job_id="jobaaaa2", run_number=1, launch_id=launch.launch_id)
    assert spent_usd(a_job(spent_microusd=noted), run, launch, NOON) == usd


def test_a_shared_instance_is_charged_to_each_run_by_its_time_and_the_rest_of_an_hour_to_the_last() -> None:
    begin = NOON - timedelta(hours=1)
    intent = Intent(watch=a_watch(), match=a_match(), launch_id="a" * 12, dry_run=False)
    promised = changed(new_launch(intent, 0, NOON).promised, billing_step_s=3600.0)
    changes = {
        "state": LaunchState.ENDED,
        "requested_at": begin,
        "running_at": begin,
        "ended_at": NOON,
        "promised": promised,
    }
    span = PriceSpan(since=begin, listed_microusd_hour=2_000_000, price_microusd_hour=2_400_000)
    launch = changed(new_launch(intent, 0, NOON), **changes, spans=(span,))
    first = JobRun(job_id="one", run_number=1, launch_id="a" * 12, held_until=begin + timedelta(minutes=15))
    last = JobRun(job_id="two", run_number=1, launch_id="a" * 12, held_from=first.held_until)
    assert [run_cost_microusd(run, launch, NOON) for run in (first, last, None)] == [600_000, 1_800_000, 2_400_000]
    launch = changed(launch, ended_at=NOON + timedelta(minutes=1))  # a second hour begins, and is billed completely
    assert [run_cost_microusd(run, launch, NOON) for run in (first, last, None)] == [600_000, 4_200_000, 4_800_000]
