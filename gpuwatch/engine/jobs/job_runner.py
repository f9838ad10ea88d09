"""Drives each job with a running instance: preparing → running → fetching → done; lost jobs return to the queue.

No state is kept in memory between two rounds: each step is stored before its effects, and can be repeated. A job
continues elsewhere only once the end of its instance is proven, or its lease has run out.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from datetime import datetime, timedelta
from functools import partial

import msgspec

from gpuwatch.domain.alerts import job_texts as texts
from gpuwatch.domain.alerts.alert import AlertSpec
from gpuwatch.domain.jobs.checkpoints import to_resume
from gpuwatch.domain.jobs.cluster_task import is_cluster
from gpuwatch.domain.jobs.job import MOVING, ON_AN_INSTANCE, RELOCATED, Job, JobRun, JobState
from gpuwatch.domain.jobs.pilot_checks import BetterGpu, better_gpu
from gpuwatch.domain.jobs.run_status import RunnerStatus, RunPhase
from gpuwatch.domain.launches.launch import EndReason, InstanceCondition, Launch, LaunchState
from gpuwatch.engine.jobs.job_copies import JobCopies
from gpuwatch.engine.jobs.job_parts import JobParts
from gpuwatch.engine.jobs.job_relocation import RELOCATION_END, JobRelocation
from gpuwatch.engine.jobs.job_threads import JobThreads, Lane
from gpuwatch.engine.jobs.run_finisher import RunFinisher
from gpuwatch.engine.jobs.run_forecasts import OVER_LIMIT, UNFIT
from gpuwatch.engine.jobs.run_monitor import RunMonitor, RunObservation
from gpuwatch.engine.jobs.run_preparer import InputMissing, RunPreparer
from gpuwatch.errors import JobConflict, SettingsError
from gpuwatch.ports.remote import RemoteRefused, RemoteUnreachable, StoreUnreachable

log = logging.getLogger(__name__)

_DRIVEN = ON_AN_INSTANCE | {JobState.RENTING, JobState.PREEMPTED}
_AWAY = {
    InstanceCondition.OUTBID: EndReason.OUTBID,
    InstanceCondition.STOPPED: EndReason.GONE,
    InstanceCondition.OFFLINE: EndReason.OFFLINE,
}
# ends that the command did not cause, after which the job can continue elsewhere
_INTERRUPTED = {
    "lease": EndReason.GONE,
    "the runner was killed": EndReason.GONE,
    "the machine is being stopped": EndReason.GONE,
    "the provider takes the machine back": EndReason.TAKEN_BACK,
}
_MOVED = "moved"  # the step of a run that ended in favour of a faster GPU
_MOVES = (EndReason.STOPPED, "its job moves to a faster GPU after its pilot")
_MOVE_ENDS = {_MOVED: _MOVES, RELOCATED: RELOCATION_END}  # these wait until the instance is proven gone


class JobRunner:
    """The daemon's periodic task for runs.

    Args:
        program: the source of the runner that is copied to machines.
        threads: runs the rounds of jobs; None: the caller's thread does.
    """

    def __init__(self, parts: JobParts, program: bytes, threads: JobThreads | None = None) -> None:
        self._parts = parts
        self._threads = threads or JobThreads(0)
        self._copies = JobCopies(parts)
        self._preparing = RunPreparer(parts, program, self._copies)
        self._running = RunMonitor(parts, self._threads.long_rounds)
        self._moving = JobRelocation(parts, self._running)
        self._ending = RunFinisher(parts, self._running, self._copies)
        self._open_ids: Set[str] = frozenset()

    def tick(self, now: datetime) -> int:
        """Request a round for every job with an instance; return how many were accepted. Raises StoreError."""
        open_jobs = self._parts.jobs.open_jobs()
        self._forget_others({job.job_id for job in open_jobs})
        jobs = [job for job in open_jobs if _is_driven(job)]
        for job in jobs:  # beside the rounds: a slow store must not delay the renewal of a lease
            if self._copies.is_due(job):
                self._threads.start(f"{job.job_id} copies", partial(self._copies.copy_checkpoints, job), Lane.COPY)
        return sum(self._threads.start(job.job_id, partial(self._round, job.job_id), self._lane(job)) for job in jobs)

    def _forget_others(self, open_ids: Set[str]) -> None:
        """Forget the jobs that are over: a daemon runs for months."""
        if self._open_ids - open_ids:
            self._running.forget_except(open_ids)
            self._moving.forget_except(open_ids)
            self._copies.forget_except(open_ids)
        self._open_ids = open_ids

    def _lane(self, job: Job) -> Lane:
        """Return a job's lane. Fetched results whose instance is gone or reassigned may wait for their store."""
        if job.state is JobState.PREPARING:
            return Lane.TRANSFER
        if job.state is not JobState.FETCHING:
            return Lane.OBSERVE
        launch = self._parts.launches.get(job.launch_id or "")
        is_given = any(run.held_until is not None for run in self._parts.jobs.runs(job.job_id)[-1:])
        return Lane.COPY if launch is None or launch.is_over or is_given else Lane.TRANSFER

    def close(self) -> None:
        """Start nothing more."""
        self._threads.close()

    def _round(self, job_id: str) -> None:
        job = self._parts.jobs.job(job_id)  # reread: it may have waited for a thread
        if job is None or job.state not in _DRIVEN or job.launch_id is None:
            return
        launch = self._parts.launches.get(job.launch_id)
        run = self._run_of(job)
        try:
            self._attempt(job, run, launch)
        except JobConflict:
            log.info("job %s was changed concurrently; rereading it in the next round", job.name)

    def _run_of(self, job: Job) -> JobRun | None:
        return next((one for one in self._parts.jobs.runs(job.job_id) if one.run_number == job.run_number), None)

    def _attempt(self, job: Job, run: JobRun | None, launch: Launch | None) -> None:
        try:
            self._drive(job, run, launch)
        except (RemoteUnreachable, RemoteRefused, StoreUnreachable, OSError) as error:
            self._unreached(job, run, launch, error)
        except (InputMissing, SettingsError) as error:
            self._hopeless(job, run, launch, str(error))

    def _drive(self, job: Job, run: JobRun | None, launch: Launch | None) -> None:
        if job.state is JobState.RENTING:
            self._rented(job, run, launch)
            return
        if run is None:  # its instance was lost before a run began: the queue requeues it
            return
        if job.state is JobState.PREEMPTED:
            self._requeue(job, run, launch)
        elif job.state is JobState.FETCHING:
            self._ending.advance(job, run, launch)
        elif (lost := self._lost(launch)) is not None:
            if not self._had_succeeded(job, run, launch):
                self._interrupt(job, run, launch, *lost)
        elif job.state is JobState.PREPARING:
            assert launch is not None
            self._preparing.advance(job, run, launch)
        else:
            assert launch is not None
            self._observed(self._running.observe(job, run, launch), launch)

    def _rented(self, job: Job, run: JobRun | None, launch: Launch | None) -> None:
        """Begin the run once its instance runs, unless the queue has done so."""
        if launch is None or launch.state is not LaunchState.RUNNING:
            return
        if run is None or run.launch_id != launch.launch_id:
            run = JobRun(job_id=job.job_id, run_number=job.run_number + 1, launch_id=launch.launch_id)
        self._parts.record(job, JobState.PREPARING, run=run, run_number=run.run_number)

    # --- a run ends ---------------------------------------------------------------------------------------------------

    def _observed(self, seen: RunObservation, launch: Launch) -> None:
        if seen.needs_decision is not None:
            self._running.stop(seen.run, seen.needs_decision)
        if seen.status.phase is not RunPhase.ENDED:
            self._moving.consider(seen, launch)
            return
        job, status = seen.job, seen.status
        run = msgspec.structs.replace(seen.run, ended_at=self._parts.clock(), exit_code=status.exit_code)
        if status.reason == "exit":
            run = msgspec.structs.replace(run, step="ended")
            if status.exit_code != 0 and self._blames_checkpoint(job, run):
                self._interrupt(job, run, launch, EndReason.CRASHED, "its checkpoint may be torn", seen_end=True)
                return
            if status.exit_code != 0:  # the owner may retry it
                self._last_checkpoint(job, run)
            self._parts.record(job, JobState.FETCHING, None, run, exit_code=status.exit_code)
            return
        self._last_checkpoint(job, run)
        if run.step == MOVING:
            self._moving.finish(job, run, launch)
        elif status.reason.startswith((OVER_LIMIT, UNFIT)):
            self._handle_over_limit(job, run, launch, status.reason)
        elif status.reason in _INTERRUPTED:
            self._interrupt(job, run, launch, _INTERRUPTED[status.reason], status.reason, seen_end=True)
        else:
            run = msgspec.structs.replace(run, step="ended", exit_code=None, end_reason=_text(status))
            self._parts.record(job, JobState.FETCHING, _text(status), run)

    def _had_succeeded(self, job: Job, run: JobRun, launch: Launch | None) -> bool:
        """Whether the command of an instance that is ending has ended with 0 unnoticed: then it never runs again."""
        if job.state is not JobState.RUNNING or launch is None or launch.is_over:
            return False
        try:
            status = self._running.final_status(run)
        except (RemoteUnreachable, RemoteRefused):
            return False
        if status.phase is not RunPhase.ENDED or status.reason != "exit" or status.exit_code != 0:
            return False
        self._observed(RunObservation(job=job, run=run, status=status), launch)
        return True

    def _last_checkpoint(self, job: Job, run: JobRun) -> None:
        if job.definition.checkpoint is None:
            return
        try:
            within_s = self._parts.bounds.results_round_s
            self._running.fetch_newest(self._parts.shell(run), job, run, running=False, within_s=within_s)
        except (RemoteUnreachable, RemoteRefused, OSError) as error:
            log.warning("job %s: cannot fetch its last checkpoint: %s", job.name, error)

    def _blames_checkpoint(self, job: Job, run: JobRun) -> bool:
        """Whether it failed after resuming, before any new checkpoint, so that an older checkpoint is worth trying."""
        if run.run_number == 1 or job.retries_left <= 0:
            return False
        stored = to_resume(self._parts.files.checkpoints(job.job_id))
        if len(stored) < 2 or stored[0].run_number == run.run_number:
            return False
        self._parts.files.save_checkpoint(job.job_id, msgspec.structs.replace(stored[0], failed=True))
        return True

    def _handle_over_limit(self, job: Job, run: JobRun, launch: Launch, why: str) -> None:
        """Handle a forecast over a limit: move to a faster GPU if one fits, else pause the job for its owner."""
        if why.startswith(UNFIT):  # a faster GPU would wait for the same disk
            self._pause(job, run, launch, why, texts.PILOT_UNFIT)
            return
        why = why.removeprefix(OVER_LIMIT)
        resumes = bool(to_resume(self._parts.files.checkpoints(job.job_id)))
        better = better_gpu(job, run, launch, self._parts.seen(job), self._parts.clock(), resumes=resumes)
        if better is not None:
            self._move(job, run, launch, why, better, resumes=resumes)
            return
        self._pause(job, run, launch, why, texts.STOPPED_AFTER_PILOT)

    def _pause(self, job: Job, run: JobRun, launch: Launch, why: str, spec: AlertSpec) -> None:
        """Pause it until its owner decides, without an instance."""
        self._parts.report(job, spec, why=why)
        run = msgspec.structs.replace(run, step="over", end_reason=why)
        self._parts.record(job, JobState.PAUSED, why, run)  # the queue also ends the launch of a paused job
        self._parts.end_launch(launch, EndReason.STOPPED, "its job stopped after its pilot")

    def _move(self, job: Job, run: JobRun, launch: Launch, why: str, better: BetterGpu, *, resumes: bool) -> None:
        """Continue on another GPU within the limits, once the old instance is proven gone.

        The decision is stored before anything ends: after a crash in between the job still moves, and only once.
        """
        self._parts.report(job, texts.MOVES_AFTER_PILOT, why=why, gpu=better.text)
        run = msgspec.structs.replace(run, step=_MOVED, end_reason=f"{why}; it moves to {better.text}")
        changes = {"definition": better.definition, "progress": job.progress if resumes else 0.0}
        self._parts.record(job, JobState.PREEMPTED, run.end_reason, run, **changes)
        self._parts.end_launch(launch, *_MOVES)

    def _hopeless(self, job: Job, run: JobRun | None, launch: Launch | None, why: str) -> None:
        """Fail a job that no retry can help; release its instance."""
        self._parts.report(job, texts.CANNOT_START, why=why)
        self._parts.record(job, JobState.FAILED, why, run and msgspec.structs.replace(run, step="over", end_reason=why))
        self._parts.end_launch(launch, EndReason.CRASHED, why)

    # --- interrupted --------------------------------------------------------------------------------------------------

    def _lost(self, launch: Launch | None) -> tuple[EndReason, str] | None:
        """Return why its instance is gone, ending, or not running; None: it runs."""
        if launch is None:
            return EndReason.GONE, "its launch is gone"
        if launch.is_over or launch.state is LaunchState.STOPPING:
            return EndReason.GONE, launch.end_reason or "its instance is gone"
        away = _AWAY.get(launch.condition) if launch.condition is not None else None
        since = launch.condition_since or self._parts.clock()
        if away is not None and self._parts.clock() - since >= timedelta(seconds=self._parts.bounds.gone_s):
            return away, f"its instance is {launch.condition}"
        return None

    def _unreached(self, job: Job, run: JobRun | None, launch: Launch | None, error: Exception) -> None:
        """Retry later. Once the lease is over, or if the machine never accepted a login, release the instance."""
        if isinstance(error, OSError):  # on this machine; a limited time, too: the instance is billed meanwhile
            log.warning("job %s: %s", job.name, error)
        else:
            log.info("job %s: cannot reach its machine: %s", job.name, error)
        if run is None or launch is None or job.state not in {JobState.PREPARING, JobState.RUNNING}:
            return
        run = self._run_of(job) or run  # the failed round may have renewed its lease
        now, bounds = self._parts.clock(), self._parts.bounds
        began = launch.running_at or launch.intended_at
        never = run.lease_until is None and now - began >= timedelta(seconds=bounds.reach_s)
        if never or (run.lease_until is not None and now > run.lease_until):
            self._interrupt(job, run, launch, EndReason.OFFLINE, f"not reached: {error}")

    def _interrupt(
        self, job: Job, run: JobRun, launch: Launch | None, end: EndReason, why: str, *, seen_end: bool = False
    ) -> None:
        """End the run. `seen_end`: the runner itself reports the end of the command."""
        self._parts.end_launch(launch, end, why)
        step = "ended safely" if seen_end else "lost"
        run = msgspec.structs.replace(run, step=step, end_reason=why, ended_at=run.ended_at or self._parts.clock())
        if job.retries_left > 0:
            stored = to_resume(self._parts.files.checkpoints(job.job_id))
            where = texts.FROM_CHECKPOINT.format(name=stored[0].name) if stored else texts.FROM_BEGINNING
            self._parts.report(job, texts.INTERRUPTED, why=why, where=where, retries=job.retries_left)
        self._parts.record(job, JobState.PREEMPTED, why, run)

    def _requeue(self, job: Job, run: JobRun, launch: Launch | None) -> None:
        """Requeue it once the old run cannot be running any more, and its instance is gone or ending."""
        self._parts.end_launch(launch, *_MOVE_ENDS.get(run.step, (EndReason.GONE, run.end_reason or "")))
        over = launch is None or launch.is_over
        leased = run.lease_until is not None and self._parts.clock() <= run.lease_until
        never_began = run.lease_until is None
        if run.step in _MOVE_ENDS and not over:
            return
        if not (over or run.step == "ended safely" or never_began or not leased):
            return
        used = int(run.uses_retry)
        if job.retries_left < used:
            why = f"no retries left; {run.end_reason}"
            self._parts.report(job, texts.FAILED, why=why)
            self._parts.record(job, JobState.FAILED, why, run)
            return
        if over:
            self._parts.shells.delete_keys(run.launch_id)
        self._parts.record(job, JobState.QUEUED, run.end_reason, run, retries_left=job.retries_left - used)


def _text(status: RunnerStatus) -> str:
    return {"deadline": "its instance reached its end time", "idle": "it was idle"}.get(status.reason, status.reason)


def _is_driven(job: Job) -> bool:
    return job.state in _DRIVEN and job.launch_id is not None and not is_cluster(job)
