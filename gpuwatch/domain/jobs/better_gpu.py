"""Finds a faster GPU for a job whose pilot exceeds a limit, among the offers seen last. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from gpuwatch.domain.jobs.job import Job, JobDefinition, JobRun
from gpuwatch.domain.jobs.run_progress import VARIATION, spent_usd
from gpuwatch.domain.jobs.shared_instance import START_H
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.gpu_specs import gpu_specs
from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.watches.decide import Match, current_quotes


class BetterGpu(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job continues: its new definition, and a description of it."""

    definition: JobDefinition
    text: str


def better_gpu(
    job: Job, run: JobRun, launch: Launch, seen: Sequence[Match], now: datetime, *, resumes: bool
) -> BetterGpu | None:
    """The cheapest way to finish on the same number of faster GPUs, within budget and deadline; None: there is none.

    Only the first run moves, and only if a retry is left, so that a job does not wander from machine to machine. The
    speed-up is the smaller of the ratios of arithmetic and of memory bandwidth.

    Args:
        seen: offers within the job's limits; only current quotes count, because an instance is destroyed for them.
        resumes: the job resumes from a checkpoint; otherwise all its work is repeated.
    """
    done = job.progress or 0.0
    if run.run_number != 1 or job.retries_left <= 0 or not done or run.started_at is None or run.ended_at is None:
        return None
    hours = (run.ended_at - run.started_at).total_seconds() / 3600
    spent = spent_usd(job, run, launch, now)
    ways = _ways_to_finish(launch, current_quotes(seen, now), hours / done, 1 - done if resumes else 1)
    best = min((way for way in ways if _is_within_limits(way, job, spent, now)), default=None)
    if best is None:
        return None
    text = f"{best.gpu}: up to {best.still_h:.1f} h and {dollars(best.usd)} from here"
    return BetterGpu(definition=_on(best, job.definition, launch.gpu_count), text=text)


class _WayToFinish(NamedTuple):
    usd: float  # from here; the cheapest way is the smallest tuple
    gpu: str
    total_h: float  # of the whole job
    still_h: float  # from here


def _ways_to_finish(launch: Launch, seen: Sequence[Match], total_h: float, left: float) -> Iterator[_WayToFinish]:
    """Yield each offer of the same number of faster GPUs.

    Args:
        total_h: hours of the whole job on the launch's GPUs.
        left: the fraction of the work that would be done there.
    """
    for match in seen:
        faster = _speed_ratio(launch.gpu, match.offer.gpu)
        if match.offer.gpu_count == launch.gpu_count and faster is not None and faster > 1:
            faster_h = total_h / faster * VARIATION
            still_h = faster_h * left + START_H
            usd = still_h * match.price_microusd_gpu_hour / MICRO * launch.gpu_count
            yield _WayToFinish(usd, match.offer.gpu, faster_h, still_h)


def _is_within_limits(way: _WayToFinish, job: Job, spent: float, now: datetime) -> bool:
    most = job.definition.limit.max_usd
    in_budget = most is None or spent + way.usd <= float(most)
    return in_budget and (job.deadline is None or (job.deadline - now).total_seconds() / 3600 >= way.still_h)


def _on(way: _WayToFinish, definition: JobDefinition, gpu_count: int) -> JobDefinition:
    """Return the job for these GPUs alone, with the hours that it takes there."""
    resources = msgspec.structs.replace(
        definition.resources, gpu=(way.gpu,), gpu_names=(way.gpu,), gpu_count_min=gpu_count, gpu_count_max=gpu_count
    )
    hours = FigureRange(way.total_h / VARIATION**2, way.total_h)
    return msgspec.structs.replace(definition, resources=resources, hours=hours)


def _speed_ratio(old: str, new: str) -> float | None:
    a, b = gpu_specs().get(old), gpu_specs().get(new)
    if a is None or b is None:
        return None
    if not (a.fp16_tflops and b.fp16_tflops and a.bandwidth_gb_s and b.bandwidth_gb_s):
        return None
    return min(b.fp16_tflops / a.fp16_tflops, b.bandwidth_gb_s / a.bandwidth_gb_s)
