"""Moves a running job to a cheaper machine, or reports one: `relocate` in its file.

The decision is stored with the run before its command is stopped, and the end of the run before its instance is ended:
after a crash the move goes on, and only once. The queue rents again once the old instance is proven gone.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gpuwatch.domain.alerts import job_texts as texts
from gpuwatch.domain.alerts.alert import without_numbers
from gpuwatch.domain.jobs.job import (
    ADVICE_EVENT,
    MOVE_EVENT,
    MOVING,
    RELOCATED,
    Job,
    JobMove,
    JobRun,
    JobState,
    move_in,
    move_text,
)
from gpuwatch.domain.jobs.job_watch import (
    MoveFacts,
    MoveVerdict,
    judged_move,
    price_cap,
    waiting_job_watch,
)
from gpuwatch.domain.jobs.run_status import RunPhase
from gpuwatch.domain.launches.launch import EndReason, Launch
from gpuwatch.domain.launches.money.bids_and_relocation import Relocation
from gpuwatch.domain.launches.money.launch_costs import END_PROVEN_S
from gpuwatch.domain.market.money import MICRO, dollars, per_hour
from gpuwatch.domain.setup.durations import format_duration, is_recent
from gpuwatch.domain.watches.decide import current_quotes
from gpuwatch.engine.jobs.job_parts import JobParts
from gpuwatch.engine.jobs.run_monitor import RunMonitor, RunObservation
from gpuwatch.engine.setup.failpoint import failpoint, pace

STOPPED = "its job moves to a cheaper machine"  # the runner's reason, and that of the launch
RELOCATION_END = (EndReason.FINISHED, STOPPED)
_JUDGED_EVERY = timedelta(seconds=60)
_NOTED_EVERY = timedelta(hours=1)
_FRESH = timedelta(minutes=2)  # a younger checkpoint is not fetched again before a move
_SAVING_STEP = 0.05  # a report is repeated when the saving changes by this share


class JobRelocation:
    """Judges and carries out moves. Its memory between two rounds may be lost at any moment."""

    def __init__(self, parts: JobParts, monitor: RunMonitor) -> None:
        self._parts, self._monitor = parts, monitor
        self._judged_at: dict[str, datetime] = {}
        self._noted: dict[str, tuple[tuple[int, str], datetime]] = {}  # job -> its last note of a run, and when

    def forget_except(self, job_ids: Collection[str]) -> None:
        """Forget all other jobs."""
        self._judged_at = {job_id: at for job_id, at in list(self._judged_at.items()) if job_id in job_ids}
        self._noted = {job_id: one for job_id, one in list(self._noted.items()) if job_id in job_ids}

    def consider(self, seen: RunObservation, launch: Launch) -> None:
        """Decide whether a running job moves, and stop its command for it. Raises RemoteUnreachable, RemoteRefused."""
        job, run, now = seen.job, seen.run, self._parts.clock()
        if run.step == MOVING:  # gpuwatch may have died before the command was stopped
            self._monitor.stop(run, STOPPED)
            return
        if not _may_be_judged(seen) or _is_recent(self._judged_at.get(job.job_id), now, _JUDGED_EVERY / pace()):
            return
        self._judged_at[job.job_id] = now
        verdict = self._judged(seen, launch, now)
        if verdict.stays is not None or verdict.found is None:
            self._note(run, verdict.stays or "", now)
            return
        wanted = job.definition.relocate
        assert wanted is not None
        if wanted.action == "alert":
            self._report(job, run, launch, verdict.found, now)
        else:
            self._begin(seen, launch, verdict.found)

    def finish(self, job: Job, run: JobRun, launch: Launch) -> None:
        """End the run of a job whose command was stopped for a move, then its instance."""
        events = self._parts.jobs.events(job.job_id)
        moves = (move for event in reversed(events) if (move := move_in(event)) is not None)
        move = next((move for move in moves if move.run_number == run.run_number), None)
        why = STOPPED if move is None else f"moves {move_text(move)}"
        if move is not None:
            self._parts.report(job, texts.MOVES, **_fields(move))
        run = msgspec.structs.replace(run, step=RELOCATED, exit_code=None, end_reason=why)
        failpoint("move.before_record")
        self._parts.record(job, JobState.PREEMPTED, why, run)
        failpoint("move.before_end")
        self._parts.end_launch(launch, *RELOCATION_END)

    def _judged(self, seen: RunObservation, launch: Launch, now: datetime) -> MoveVerdict:
        """Judge by the offers that could be rented: the first that could is compared, not one that cannot be had."""
        job, run = seen.job, seen.run
        paid = round(launch.price_microusd_hour * END_PROVEN_S / 3600)
        after = msgspec.structs.replace(job, spent_microusd=job.spent_microusd + paid)
        earlier = [one for one in self._parts.jobs.runs(job.job_id) if one.run_number < run.run_number]
        spans = [one.ended_at - one.started_at for one in earlier if one.ended_at and one.started_at]
        waits = waiting_job_watch(after, price_cap(after), now)
        facts = MoveFacts(
            now=now,
            limit_usd_gpu_hour=self._parts.limit_now(waits, now),
            traffic=waits.traffic,
            ends_at=None if seen.sample is None else seen.sample.ends_at,
            checkpoint_at=self._monitor.written_at(job.job_id),
            moved_at=tuple(one.ended_at for one in earlier if one.step == RELOCATED and one.ended_at is not None),
            ran_before_h=sum(spans, timedelta(0)) / timedelta(hours=1),
            zone=self._parts.zone,
        )
        offers = sorted(current_quotes(self._parts.seen(job), now), key=lambda one: one.price.price_microusd_hour)
        verdict = judged_move(job, run, launch, offers, facts)
        if verdict.stays is not None:
            return verdict
        first, why = self._parts.rentable_instead(job, launch, offers)
        if first is None:
            return MoveVerdict(stays=f"what is cheaper cannot be rented now: {why}")
        return judged_move(job, run, launch, [first], facts)

    def _begin(self, seen: RunObservation, launch: Launch, found: Relocation) -> None:
        """Store the decision and stop the command, once a checkpoint is here that loses little."""
        job, run, now = seen.job, seen.run, self._parts.clock()
        assert job.definition.checkpoint is not None
        every_s = job.definition.checkpoint.every_s
        if not _is_recent(self._monitor.written_at(job.job_id), now, _FRESH):
            run = self._monitor.fetch_one_more(job, run, seen.status)
            now = self._parts.clock()
        if not _is_recent(self._monitor.written_at(job.job_id), now, timedelta(seconds=every_s)):
            self._note(
                run, f"moving would pay, but it wrote no whole checkpoint within {format_duration(every_s)}", now
            )
            return
        move = _move(run, launch, found, now)
        run = msgspec.structs.replace(run, step=MOVING)
        detail = msgspec.to_builtins(move)
        self._parts.event(run, MOVE_EVENT, **{key: detail[key] for key in detail if key not in {"at", "run_number"}})
        failpoint("move.before_stop")
        self._monitor.stop(run, STOPPED)

    def _report(self, job: Job, run: JobRun, launch: Launch, found: Relocation, now: datetime) -> None:
        """Report a cheaper machine; once for each, and again when the saving changes much."""
        move, offer = _move(run, launch, found, now), found.match.offer
        machine, step = offer.machine_id or offer.offer_id, int(found.share / _SAVING_STEP)
        self._parts.report(job, texts.CHEAPER_MACHINE, **_fields(move), machine=machine, step=step)
        self._note(run, f'moving {move_text(move)} would pay; relocate = "alert" only reports it', now)

    def _note(self, run: JobRun, text: str, now: datetime) -> None:
        """Store what was found out, when it changed and not every time a price does."""
        key, (before, at) = (run.run_number, without_numbers(text)), self._noted.get(run.job_id, ((0, ""), None))
        if key == before or (before[0] == run.run_number and _is_recent(at, now, _NOTED_EVERY)):
            return
        self._noted[run.job_id] = key, now
        self._parts.event(run, ADVICE_EVENT, found=text)


def _is_recent(at: datetime | None, now: datetime, span: timedelta) -> bool:
    return at is not None and is_recent(at, now, span)


def _may_be_judged(seen: RunObservation) -> bool:
    job, step = seen.job, seen.run.step
    is_after_pilot = step == "piloted" or (step == "started" and job.definition.pilot is None)
    runs = seen.status.phase is RunPhase.RUNNING and job.state is JobState.RUNNING and seen.needs_decision is None
    return job.definition.relocate is not None and is_after_pilot and runs


def _move(run: JobRun, launch: Launch, found: Relocation, now: datetime) -> JobMove:
    work = found.work
    setup, repeated = (span.total_seconds() / 60 for span in (work.setup, work.repeated))
    minutes = f"{setup:.0f} min to start there, {repeated:.0f} min of work done again"
    left = f"at least {work.left.total_seconds() / 3600:.1f} h of work left"
    return JobMove(
        at=now,
        run_number=run.run_number,
        provider=launch.provider,
        usd_hour=launch.price_microusd_hour / MICRO,
        to_provider=found.match.offer.provider,
        to_usd_hour=found.match.price.rent_microusd_hour / MICRO,
        stay_usd=found.cost_here_microusd / MICRO,
        move_usd=found.cost_there_microusd / MICRO,
        saving_usd=found.saving_microusd / MICRO,
        rests_on="; ".join((left, minutes, *work.assumed)),
    )


def _fields(move: JobMove) -> dict[str, Any]:
    return {
        "here": f"{per_hour(move.usd_hour)} at {move.provider}",
        "there": f"{per_hour(move.to_usd_hour)} at {move.to_provider}",
        "provider_there": move.to_provider,
        "stay": dollars(move.stay_usd),
        "move": dollars(move.move_usd),
        "saving": dollars(move.saving_usd),
        "share": move.saving_usd / move.stay_usd if move.stay_usd else 0.0,
        "rests_on": move.rests_on,
    }
