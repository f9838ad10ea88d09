"""The pilot of a job: checks of the items that the job requires of it, and a faster GPU if it exceeds a limit. Pure.

The faster GPU is sought among the offers seen last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from statistics import fmean, median
from typing import Final, NamedTuple

import msgspec

from gpuwatch.domain.jobs.job import Job, JobEvent, JobRun
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_values import PilotSpec
from gpuwatch.domain.jobs.job_watch import START_H, work_hours_left
from gpuwatch.domain.jobs.run_progress import spent_usd
from gpuwatch.domain.jobs.run_sample import RunSample
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.life.owner_decisions import ChecklistTick
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.money import MICRO, dollars
from gpuwatch.domain.market.offer import priced_units
from gpuwatch.domain.plan.buy import LOW_UTILISATION_PERCENT
from gpuwatch.domain.plan.figures import FigureRange, exactly
from gpuwatch.domain.plan.job_hours import VARIATION
from gpuwatch.domain.plan.own_rows import OWN, OwnRow, shape_keys
from gpuwatch.domain.plan.roofline import has_fast_link
from gpuwatch.domain.plan.throughput import speed_keys, speed_task_of
from gpuwatch.domain.plan.workload import ModelKeys
from gpuwatch.domain.watches.decide import Match, current_quotes

PILOT_EVENT: Final = "pilot"
FULL_MEMORY: Final = 0.97  # above this share of memory in use, a longer batch does not fit (assumed)
_LEAST_LOSSES: Final = 4
_PATIENCE_S: Final = 300.0  # the first figures may come late (assumed)
_KEY: Final = "checklist"


class PilotFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One checked item. `passed` None: not measured, or not yet."""

    item: str
    passed: bool | None
    text: str


class PilotObservation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a run at one moment.

    Attributes:
        samples: of this run, oldest first; the last one is from this moment.
        losses: the newest losses that the run printed or recorded, oldest first.
    """

    samples: Sequence[RunSample]
    losses: Sequence[float] = ()
    checkpoint: str | None = None
    needs_checkpoint: bool = False


class BetterGpu(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job continues: its new definition, and a description of it."""

    definition: JobDefinition
    text: str


def pilot_findings(items: Sequence[str], seen: PilotObservation) -> list[PilotFinding]:
    """The results for these items, in the same order."""
    found = {
        "dry_epoch": _ran,
        "loss_falls": _loss,
        "util_70": _use,
        "memory_fits": _memory,
        "tokens_per_s": _speed,
    }
    return [
        PilotFinding(item=item, passed=judged[0], text=judged[1]) for item in items if (judged := found[item](seen))
    ]


def pilot_is_over(pilot: PilotSpec, run: JobRun, fraction: float | None, now: datetime, times: float = 1.0) -> bool:
    """Whether the duration of the pilot has passed, or this many times its duration."""
    if run.started_at is None:
        return False
    if pilot.duration_s is not None:
        return now - run.started_at >= timedelta(seconds=pilot.duration_s * times)
    return fraction is not None and pilot.share is not None and fraction >= pilot.share * times


def is_measured_enough(job: Job, run: JobRun, fraction: float | None, now: datetime) -> bool:
    """Whether it is too late for anything still unmeasured: twice the pilot has passed, and some minutes.

    A run that reports no progress is judged by its estimated hours; one with checkpoints has had time to write one.
    """
    pilot, checkpoint = job.definition.pilot, job.definition.checkpoint
    if pilot is None or run.started_at is None:
        return False
    ran_s = (now - run.started_at).total_seconds()
    least_s = max(_PATIENCE_S, 0.0 if checkpoint is None else 1.5 * checkpoint.every_s)
    if pilot.share is not None and fraction is None:
        return ran_s >= max(least_s, 2 * pilot.share * work_hours_left(job) * 3600)
    return ran_s >= least_s and pilot_is_over(pilot, run, fraction, now, times=2)


def failed_text(findings: Sequence[PilotFinding]) -> str:
    """The items that did not pass, in one line."""
    return "; ".join(f"{finding.item}: {finding.text}" for finding in findings if not finding.passed)


def findings_detail(findings: Sequence[PilotFinding]) -> dict[str, dict[str, str]]:
    """The evidence stored with the event of a pilot: one entry for each item that passed."""
    passed = {finding.item: finding.text for finding in findings if finding.passed}
    return {_KEY: passed} if passed else {}


def pilot_ticks(events: Sequence[JobEvent]) -> list[ChecklistTick]:
    """The items that the pilots of a job ticked, oldest first."""
    found: dict[str, ChecklistTick] = {}
    for event in events:
        kept = event.detail.get(_KEY) if event.kind == PILOT_EVENT else None
        for item, text in (kept if isinstance(kept, dict) else {}).items():
            words = f"measured by the pilot of run {event.run_number}: {text}"
            found[item] = ChecklistTick(item=item, at=event.at, words=words)
    return list(found.values())


def pilot_row(
    definition: JobDefinition, run: JobRun, launch: Launch, tokens_per_s: float, now: datetime
) -> OwnRow | None:
    """The measured speed of a pilot as a row of the planner; None: the job's file does not say what it trains.

    `[plan]` must name the model, its size or its name, and may name the method, batch, context and precision.
    """
    stated = {key: value for key, value in (definition.plan or {}).items() if key in ModelKeys.model_fields}
    try:
        work = ModelKeys.model_validate(stated).workload()
    except ValueError:  # of pydantic
        return None
    specs = gpu_specs().get(launch.gpu)
    if work is None or specs is None or tokens_per_s <= 0:
        return None
    return OwnRow(
        key=f"{run.job_id}-{run.run_number}",
        name=f"{OWN} by the pilot of job {definition.name}, {now:%Y-%m-%d}",
        at=now,
        signed="the job's own software",
        model=work.model.name,
        shape=shape_keys(work.model),
        method=speed_task_of(work).method,
        precision=work.precision,
        gpu=launch.gpu,
        count=launch.gpu_count,
        nvlink=launch.gpu_count > 1 and has_fast_link(specs),
        batch=work.at_once,
        context=work.context,
        tokens_per_s=exactly(tokens_per_s),
        memory_keys=speed_keys(work),
    )


# --- one item ---------------------------------------------------------------------------------------------------------
def _ran(seen: PilotObservation) -> tuple[bool | None, str]:
    now = seen.samples[-1]
    if (now.progress or None, now.tokens_per_s, now.loss) == (None,) * 3:
        return None, "it reports no progress, speed or loss"
    if seen.needs_checkpoint and seen.checkpoint is None:
        return None, "no complete checkpoint was saved"
    done = "it ran" if now.progress is None else f"{now.progress:.3g} of the work is done"
    return True, done + (f", checkpoint {seen.checkpoint} was fetched" if seen.needs_checkpoint else "")


def _loss(seen: PilotObservation) -> tuple[bool | None, str]:
    losses = [*(sample.loss for sample in seen.samples[:-1] if sample.loss is not None), *seen.losses]
    if len(losses) < _LEAST_LOSSES:
        return None, f"{len(losses)} losses were reported, {_LEAST_LOSSES} are required"
    part = len(losses) // 4
    first, last = fmean(losses[:part]), fmean(losses[-part:])
    return last < first, f"{first:.4g} at first, {last:.4g} at last (means of quarters of {len(losses)})"


def _use(seen: PilotObservation) -> tuple[bool | None, str]:
    known = [sample.gpu_percent for sample in seen.samples if sample.gpu_percent is not None and _computes(sample)]
    if not known:
        return None, "GPU utilisation was not measured while it trained"
    middle = median(known)
    why = seen.samples[-1].waits_for
    text = f"GPU utilisation {middle:.0f} % (median of {len(known)})"
    fits = middle >= LOW_UTILISATION_PERCENT
    return fits, text if fits or why is None else f"{text}, probably waiting for: {why}"


def _memory(seen: PilotObservation) -> tuple[bool | None, str]:
    known = [
        sample.gpu_memory_share for sample in seen.samples if sample.gpu_memory_share is not None and _computes(sample)
    ]
    if not known:
        return None, "GPU memory was not measured while it trained"
    return max(known) <= FULL_MEMORY, f"at most {max(known):.0%} of the GPU memory in use ({len(known)} readings)"


def _speed(seen: PilotObservation) -> tuple[bool | None, str]:
    known = [sample.tokens_per_s for sample in seen.samples if sample.tokens_per_s is not None]
    if not known or not known[-1]:
        return None, "it reports no tokens/s"
    return True, f"{known[-1]:,.0f} tokens/s"


def _computes(sample: RunSample) -> bool:
    """Whether a sample is from after the loading phase."""
    return bool(sample.progress or sample.tokens_per_s) or sample.loss is not None


class _WayToFinish(NamedTuple):
    usd: float  # from here; the cheapest way is the smallest tuple
    gpu: str
    total_h: float  # of the whole job
    still_h: float  # from here


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
            usd = still_h * match.price_microusd_gpu_hour / MICRO * priced_units(launch.gpu_count)
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
