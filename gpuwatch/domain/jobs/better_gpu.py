"""Finds a faster GPU for a job whose pilot exceeds a limit, among the offers seen last. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from gpuwatch.domain.jobs.job import Job, JobDefinition, JobRun
from gpuwatch.domain.jobs.merge import START_H
from gpuwatch.domain.jobs.run_progress import VARIATION, spent_usd
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.gpu_specs import gpu_specs
from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.domain.planning.figures import FigureRange
from gpuwatch.domain.watches.decide import Match


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
        seen: offers within the job's limits.
        resumes: the job resumes from a checkpoint; otherwise all its work is repeated.
    """
    done = job.progress or 0.0
    if run.run_number != 1 or job.retries_left <= 0 or not done or run.started_at is None or run.ended_at is None:
        return None
    hours = (run.ended_at - run.started_at).total_seconds() / 3600
    spent = spent_usd(job, run, launch, now)
    most, found = job.definition.limit.max_usd, []
    for match in seen:
        faster = _speed_ratio(launch.gpu, match.offer.gpu)
        if match.offer.gpu_count != launch.gpu_count or faster is None or faster <= 1:
            continue
        whole_h = hours / done / faster * VARIATION
        still_h = whole_h * (1 - done if resumes else 1) + START_H
        usd = still_h * match.price_microusd_gpu_hour / MICRO * launch.gpu_count
        in_budget = most is None or spent + usd <= float(most)
        in_time = job.deadline is None or (job.deadline - now).total_seconds() / 3600 >= still_h
        if in_budget and in_time:
            found.append((usd, match.offer.gpu, whole_h, still_h))
    if not found:
        return None
    usd, gpu, whole_h, still_h = min(found)
    resources = msgspec.structs.replace(
        job.definition.resources,
        gpu=(gpu,),
        gpu_names=(gpu,),
        gpu_count_min=launch.gpu_count,
        gpu_count_max=launch.gpu_count,
    )
    definition = msgspec.structs.replace(
        job.definition, resources=resources, hours=FigureRange(whole_h / VARIATION**2, whole_h)
    )
    return BetterGpu(definition=definition, text=f"{gpu}: up to {still_h:.1f} h and {dollars(usd)} from here")


def _speed_ratio(old: str, new: str) -> float | None:
    a, b = gpu_specs().get(old), gpu_specs().get(new)
    if a is None or b is None:
        return None
    if not (a.fp16_tflops and b.fp16_tflops and a.bandwidth_gb_s and b.bandwidth_gb_s):
        return None
    return min(b.fp16_tflops / a.fp16_tflops, b.bandwidth_gb_s / a.bandwidth_gb_s)
