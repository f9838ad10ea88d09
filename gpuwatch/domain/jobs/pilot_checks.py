"""Checks of the items that a job requires of its pilot. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import fmean, median
from typing import Final

import msgspec

from gpuwatch.domain.jobs.job import Job, JobEvent, JobRun, PilotSpec
from gpuwatch.domain.jobs.job_watch import work_hours_left
from gpuwatch.domain.jobs.run_sample import RunSample
from gpuwatch.domain.launches.life.checklist import ChecklistTick
from gpuwatch.domain.plan.utilisation import LOW_UTILISATION_PERCENT

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
