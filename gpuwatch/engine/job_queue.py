"""The queue of jobs in the daemon: queued jobs become watches, launches become runs, ends are followed up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gpuwatch.domain.jobs.job import ON_AN_INSTANCE, Job, JobRun, JobState
from gpuwatch.domain.jobs.job_states import JobTransition
from gpuwatch.domain.jobs.job_watch import WATCH_PREFIX, watch_of
from gpuwatch.domain.jobs.queue import QueuedJob, failed_dependency, group_states, schedule
from gpuwatch.domain.launches.billing import cost_microusd
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchConflict, LaunchState
from gpuwatch.domain.watches.watch import LaunchSpec, SpotPolicy, Watch
from gpuwatch.errors import JobConflict
from gpuwatch.ports import LaunchRepository
from gpuwatch.ports.job_queue import JobQueueStore

log = logging.getLogger(__name__)

RUNNER_GRACE = timedelta(minutes=2)  # after the end of an instance: then the queue itself takes the job back
SPENT_EVERY = timedelta(seconds=60)
S = JobState


class JobQueue:
    """One pass takes every open job one step further. `watches` is read by the hunts of all providers.

    Args:
        prepare: adds to a job's watch what its run needs on the instance, such as a key.
        plan: decides who may look for an instance now, at which limit.
    """

    def __init__(
        self,
        store: JobQueueStore,
        launches: LaunchRepository,
        prepare: Callable[[Job, Watch], Watch] = lambda job, watch: watch,
        plan: Callable[[Sequence[Job], datetime, Mapping[str, JobState]], Sequence[QueuedJob]] = schedule,
    ) -> None:
        self.watches: tuple[Watch, ...] = ()  # replaced as a whole
        self._store = store
        self._launches = launches
        self._prepare = prepare
        self._plan = plan
        self._spent_at: dict[str, datetime] = {}

    def tick(self, now: datetime) -> None:
        """One pass. Raises StoreError: the next one goes on."""
        jobs = self._store.open_jobs()
        alive = self._alive()
        states = group_states([*jobs, *self._awaited(jobs)])
        moved = [self._step(job, alive.get(job.job_id), states, now) for job in jobs]
        self._end_needless(alive, {job.job_id: job for job in moved if not job.is_over}, now)
        looking = [one for one in self._plan(moved, now, states) if one.waits is None]
        self.watches = tuple(self._watch(one, now) for one in looking)

    def _watch(self, one: QueuedJob, now: datetime) -> Watch:
        watch = watch_of(one.job, one.limit_usd_gpu_hour, now)
        if watch.spot is not SpotPolicy.NO:  # after a preemption elsewhere: the job resumes from its checkpoint
            launch = msgspec.structs.replace(watch.launch or LaunchSpec(), relaunch=True)
            watch = msgspec.structs.replace(watch, launch=launch)
        return self._prepare(one.job, watch)

    def _alive(self) -> dict[str, Launch]:
        """The living launches of jobs, by the job's id."""
        return {
            launch.watch_id: launch
            for launch in self._launches.alive()
            if launch.watch.startswith(WATCH_PREFIX) and launch.watch_id is not None and not launch.dry_run
        }

    def _awaited(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Jobs that are over and that others wait for."""
        names = {name for job in jobs for name in job.definition.depends_on}
        return self._store.ended_jobs(names) if names else ()

    # --- one job ------------------------------------------------------------------------------------------------------

    def _step(self, job: Job, launch: Launch | None, states: Mapping[str, JobState], now: datetime) -> Job:
        try:
            if job.state is S.QUEUED:
                return self._queued(job, launch, states, now)
            if job.state is S.RENTING:
                return self._renting(job, launch, now)
            if job.state in ON_AN_INSTANCE:
                return self._on_an_instance(job, launch, now)
            if job.state is S.PREEMPTED:
                return self._preempted(job, launch, now)
        except JobConflict as conflict:  # its runner or its owner was first: the next pass sees the new row
            log.info("%s", conflict)
        return job

    def _queued(self, job: Job, launch: Launch | None, states: Mapping[str, JobState], now: datetime) -> Job:
        if launch is not None:
            number = job.run_number + 1
            run = JobRun(job_id=job.job_id, run_number=number, launch_id=launch.launch_id)
            changes = {"launch_id": launch.launch_id, "run_number": number}
            return self._record(job, S.RENTING, now, None, changes, run)
        if job.deadline is not None and job.deadline <= now:
            why = job.reason or "no offer was at or under its limit"
            return self._record(job, S.FAILED, now, f"its deadline has passed before it could rent: {why}")
        if (failed := failed_dependency(job, states)) is not None:
            return self._record(job, S.FAILED, now, f"it depends on {failed!r}, which was not done")
        return job

    def _renting(self, job: Job, launch: Launch | None, now: datetime) -> Job:
        if launch is not None:
            if launch.state is LaunchState.RUNNING:
                return self._record(job, S.PREPARING, now, None)
            return job
        ended = self._launches.get(job.launch_id or "")
        if ended is not None and not ended.is_over:
            return job
        why = (ended.end_reason if ended else None) or "its launch ended"
        self._note_spent(job, now, at_once=True)
        if ended is not None and ended.running_at is not None:  # it ran between two passes, and is gone
            return self._record(job, S.PREEMPTED, now, why)
        if ended is not None and ended.ended_because(EndReason.STOPPED):
            return self._record(job, S.FAILED, now, why)
        # nothing of it ran: the run does not count, and no retry is used up
        return self._record(job, S.QUEUED, now, why)

    def _on_an_instance(self, job: Job, launch: Launch | None, now: datetime) -> Job:
        self._note_spent(job, now)
        if launch is not None:
            return job
        ended = self._launches.get(job.launch_id or "")
        over_at = ended.ended_at if ended is not None else None
        if over_at is None or now - over_at < RUNNER_GRACE:
            return job
        self._note_spent(job, now, at_once=True)
        return self._record(job, S.PREEMPTED, now, (ended.end_reason if ended else None) or "its instance is gone")

    def _preempted(self, job: Job, launch: Launch | None, now: datetime) -> Job:
        if launch is not None:
            return job  # never two at once: the old end is not proven yet
        if job.retries_left <= 0:
            return self._record(job, S.FAILED, now, f"no retries are left: {job.reason or 'its instance was lost'}")
        changes = {"retries_left": job.retries_left - 1}
        return self._record(job, S.QUEUED, now, f"resumes elsewhere: {job.reason or 'its instance was lost'}", changes)

    def _record(
        self,
        job: Job,
        to_state: JobState,
        now: datetime,
        reason: str | None,
        changes: Mapping[str, Any] | None = None,
        run: JobRun | None = None,
    ) -> Job:
        step = JobTransition(to_state=to_state, at=now, reason=reason, changes=changes or {})
        after = self._store.record(job, step, run)
        log.info("job %s: %s%s", job.name, to_state.value, f": {reason}" if reason else "", extra={"job": job.job_id})
        return after

    def _note_spent(self, job: Job, now: datetime, *, at_once: bool = False) -> None:
        """What its launches cost so far, now and then."""
        if not at_once and now - self._spent_at.get(job.job_id, now - SPENT_EVERY) < SPENT_EVERY:
            return
        self._spent_at[job.job_id] = now
        found = [self._launches.get(run.launch_id) for run in self._store.runs(job.job_id)]
        spent = sum(cost_microusd(launch, now) or 0 for launch in found if launch is not None)
        if spent != job.spent_microusd:
            self._store.save_spent(job.job_id, spent)

    # --- launches whose job is over -----------------------------------------------------------------------------------

    def _end_needless(self, alive: Mapping[str, Launch], open_jobs: Mapping[str, Job], now: datetime) -> None:
        """No instance is left when its job is over: each is ended like `gpuwatch stop` does it."""
        for job_id, launch in alive.items():
            if job_id in open_jobs or launch.state in {LaunchState.STOPPING, LaunchState.HELD}:
                continue
            job = self._store.job(job_id)
            if job is None or (job.ended_at is not None and now < job.ended_at + self._kept(job)):
                continue
            reason = EndReason.FINISHED.text(f"job {job.name} is {job.state.value}")
            try:
                self._launches.transition(launch, LaunchState.STOPPING, reason, now, end_reason=reason)
            except LaunchConflict as conflict:
                log.info("%s", conflict)

    @staticmethod
    def _kept(job: Job) -> timedelta:
        return timedelta(seconds=job.definition.keep_on_failure_s if job.state is S.FAILED else 0.0)
