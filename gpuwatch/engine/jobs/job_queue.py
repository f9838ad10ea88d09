"""The daemon's queue of jobs: queued jobs become watches, launches become runs, and ends are handled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.domain.alerts.job_texts import FAILED_IN_QUEUE
from gpuwatch.domain.jobs.cluster_task import is_cluster
from gpuwatch.domain.jobs.job import ON_AN_INSTANCE, Job, JobRun, JobState, JobTransition
from gpuwatch.domain.jobs.job_definition import steps_of
from gpuwatch.domain.jobs.job_watch import price_cap, waiting_job_watch, watch_for_a_move, work_hours_left
from gpuwatch.domain.jobs.queue import (
    HUNTED_AT_ONCE,
    PriceOf,
    failed_dependency,
    group_states,
    queue_order,
    searching_jobs,
)
from gpuwatch.domain.jobs.shared_instance import SharedInstances, holders_of, launches_of
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchConflict, LaunchState
from gpuwatch.domain.setup.durations import is_recent
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from gpuwatch.engine.alerts.launch_alerts import job_alert
from gpuwatch.engine.jobs.job_parts import record_step, spent_microusd
from gpuwatch.engine.launches.following.transition_executor import request_end
from gpuwatch.errors import JobConflict

if TYPE_CHECKING:
    from gpuwatch.storage.jobs.job_repository import SqlJobRepository
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

log = logging.getLogger(__name__)

RUNNER_GRACE = timedelta(minutes=2)  # after the end of an instance; then the queue itself requeues the job
_PREPARES_AGAIN = "its data is not complete on this host: it is prepared again"
SPENT_EVERY = timedelta(seconds=60)
SPENT_AT_ONCE = 20  # jobs per pass, because each takes two queries


class JobQueue:
    """Each pass advances every open job by one step. The hunts of all providers read `watches`.

    Args:
        price_of: returns the USD per GPU-hour of the cheapest recent offer for a job's watch.
        min_billing_h: minimum hours that an instance is billed.
        has_data: whether all that a run prepared for its job is on this host.
    """

    def __init__(
        self,
        store: SqlJobRepository,
        launches: SqlLaunchRepository,
        price_of: PriceOf = lambda job: None,
        min_billing_h: float = 0.0,
        has_data: Callable[[Job, JobRun], bool] = lambda job, run: True,
    ) -> None:
        self.watches: tuple[Watch, ...] = ()  # always replaced as a whole
        self.open_watches: frozenset[str] = frozenset()  # names of the watches of all open jobs
        self._store = store
        self._launches = launches
        self._price_of = price_of
        self._min_billing_h = min_billing_h
        self._has_data = has_data
        self._waiting: list[Job] = []
        self._in_order: list[Job] = []
        self._open_ids: set[str] = set()
        self._ended: dict[str, Job] = {}  # ended jobs that others wait for
        self._asked: set[str] = set()  # names whose ended jobs were read
        self._spent_at: dict[str, datetime] = {}
        self._spent_due: frozenset[str] = frozenset()

    def tick(self, now: datetime) -> None:
        """Run one pass. After a StoreError the next pass continues."""
        jobs = self._store.open_jobs()
        self._spent_at = {job.job_id: at for job in jobs if (at := self._spent_at.get(job.job_id)) is not None}
        self._spent_due = self._longest_unspent(jobs, now)
        self.open_watches = frozenset(job.watch_name for job in jobs)
        living = self._living()
        alive = launches_of(jobs, living)
        states = group_states([*self._awaited(jobs, now), *jobs])
        moved = [
            self._step(job, alive.get(job.job_id), states, now) if _may_move(job, alive, now) else job for job in jobs
        ]
        self._end_needless(living, [job for job in moved if not job.is_over and job.state is not JobState.PAUSED], now)
        queued = [job for job in moved if job.state is JobState.QUEUED and not is_cluster(job)]
        if queued != self._waiting:  # unchanged jobs compare equal at once
            self._waiting, self._in_order = queued, queue_order(queued)
        shared = SharedInstances(holders_of(moved, alive), now, self._min_billing_h)
        searching = searching_jobs(self._in_order, now, states, self._price_of, shared=shared)
        self.watches = (*(self._watch(job, now) for job in searching), *_watches_for_moves(moved, alive, now))

    def _watch(self, job: Job, now: datetime) -> Watch:
        watch = waiting_job_watch(job, price_cap(job), now)
        if watch.spot is not SpotPolicy.NO:  # after a preemption elsewhere the job resumes from its checkpoint
            launch = msgspec.structs.replace(watch.launch or LaunchSpec(), relaunch=True)
            watch = msgspec.structs.replace(watch, launch=launch)
        return watch

    def _living(self) -> list[Launch]:
        """Return the active launches of jobs."""
        return [one for one in self._launches.own_alive() if one.purpose.job is not None and not one.dry_run]

    def _awaited(self, jobs: Sequence[Job], now: datetime) -> list[Job]:
        """Return ended jobs that others wait for. Each is read once: when it ends, or when it is first named."""
        ids = {job.job_id for job in jobs}
        awaited = {name for job in jobs if job.state is JobState.QUEUED for name in job.definition.depends_on}
        ended = [self._store.job(job_id) for job_id in self._open_ids - ids] if self._open_ids else []
        for job in ended:
            if job is not None:
                self._note_spent(job, now, at_once=True)  # up to the end of its share of the instance
        self._open_ids = ids
        if unknown := awaited - self._asked:
            ended += self._store.ended_jobs(unknown)
        self._asked = awaited
        known = {job.job_id: job for job in (*self._ended.values(), *ended) if job is not None}
        self._ended = {
            job_id: job
            for job_id, job in known.items()
            if job_id not in ids and (job.name in awaited or job.definition.group in awaited)
        }
        return sorted(self._ended.values(), key=lambda job: job.submitted_at)

    # --- one job ------------------------------------------------------------------------------------------------------

    def _step(self, job: Job, launch: Launch | None, states: Mapping[str, JobState], now: datetime) -> Job:
        try:
            if job.state is JobState.QUEUED:
                return self._queued(job, launch, states, now)
            if is_cluster(job) and job.state is not JobState.PREEMPTED:
                return job  # `cluster_jobs` advances it
            if job.state is JobState.RENTING:
                return self._renting(job, launch, now)
            if job.state in ON_AN_INSTANCE:
                return self._on_an_instance(job, launch, now)
            if job.state is JobState.PREEMPTED:
                return self._preempted(job, launch, now)
        except JobConflict as conflict:  # its runner or its owner was first: the next pass reads the new row
            log.info("%s", conflict)
        return job

    def _queued(self, job: Job, launch: Launch | None, states: Mapping[str, JobState], now: datetime) -> Job:
        if launch is not None and launch.launch_id != job.launch_id:  # the old one may still be ending
            work = launch.price_microusd_hour * work_hours_left(job)
            predicted = job.spent_microusd + round(work)
            changes = {"launch_id": launch.launch_id, "predicted_microusd": predicted}
            return self._record(job, JobState.RENTING, now, None, changes)
        if job.deadline is not None and job.deadline <= now:
            why = job.reason or "no offer was at or under its limit"
            return self._record(job, JobState.FAILED, now, f"its deadline passed before an offer matched: {why}")
        if (failed := failed_dependency(job, states)) is not None:
            return self._record(job, JobState.FAILED, now, f"it depends on {failed!r}, which was not done")
        prepared = job.definition.prepared_run
        runs = () if prepared is None else self._store.runs(job.job_id)
        if not all(self._has_data(job, run) for run in runs if run.run_number == prepared):  # another host led
            first = steps_of(msgspec.structs.replace(job.definition, prepared_run=None))[0]
            return self._record(job, JobState.QUEUED, now, _PREPARES_AGAIN, {"definition": first})
        return job

    def _renting(self, job: Job, launch: Launch | None, now: datetime) -> Job:
        if launch is not None:
            if launch.state is LaunchState.RUNNING:  # its runner does the same; whichever comes first
                number = job.run_number + 1
                run = JobRun(job_id=job.job_id, run_number=number, launch_id=launch.launch_id)
                return self._record(job, JobState.PREPARING, now, None, {"run_number": number}, run)
            return job
        ended = self._launches.get(job.launch_id or "")
        if ended is not None and not ended.is_over:
            return job
        why = (ended.end_reason if ended else None) or "its launch ended"
        self._note_spent(job, now, at_once=True)
        if ended is not None and ended.running_at is not None:  # it ran and ended between two passes
            return self._record(job, JobState.PREEMPTED, now, why)
        if ended is not None and ended.ended_because(EndReason.STOPPED):
            return self._record(job, JobState.FAILED, now, why)
        # nothing ran: this run does not count, and no retry is used up
        return self._record(job, JobState.QUEUED, now, why)

    def _on_an_instance(self, job: Job, launch: Launch | None, now: datetime) -> Job:
        self._note_spent(job, now)
        if launch is not None or job.state is JobState.FETCHING:  # fetched results are not computed again
            return job
        ended = self._launches.get(job.launch_id or "")
        over_at = ended.ended_at if ended is not None else None
        if over_at is None or is_recent(over_at, now, RUNNER_GRACE):
            return job
        self._note_spent(job, now, at_once=True)
        return self._record(
            job, JobState.PREEMPTED, now, (ended.end_reason if ended else None) or "its instance is gone"
        )

    def _preempted(self, job: Job, launch: Launch | None, now: datetime) -> Job:
        if launch is not None:
            return job  # never two instances at once: the end of the old one is not proven yet
        used = self._retries_used(job)
        if job.retries_left < used:
            return self._record(job, JobState.FAILED, now, f"no retries left: {job.reason or 'its instance was lost'}")
        changes = {"retries_left": job.retries_left - used}
        return self._record(
            job, JobState.QUEUED, now, f"resumes elsewhere: {job.reason or 'its instance was lost'}", changes
        )

    def _retries_used(self, job: Job) -> int:
        """Return how many retries the end of its newest run uses up: none if it moves to a cheaper machine."""
        return int(all(run.uses_retry for run in self._store.runs(job.job_id) if run.run_number == job.run_number))

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
        after = record_step(self._store, job, step, run)
        if to_state is JobState.FAILED:
            why = reason or ""
            self._launches.enqueue(job_alert(after, FAILED_IN_QUEUE, now, why=why[:1].upper() + why[1:]))
        return after

    def _longest_unspent(self, jobs: Sequence[Job], now: datetime) -> frozenset[str]:
        """Return the jobs whose cost is stored in this pass: those for which that was longest ago."""
        waited = {
            job.job_id: abs(now - self._spent_at[job.job_id]) if job.job_id in self._spent_at else timedelta.max
            for job in jobs
            if job.state in ON_AN_INSTANCE and not is_cluster(job)
        }
        due = [job_id for job_id, since in waited.items() if since >= SPENT_EVERY]
        return frozenset(sorted(due, key=lambda job_id: waited[job_id], reverse=True)[:SPENT_AT_ONCE])

    def _note_spent(self, job: Job, now: datetime, *, at_once: bool = False) -> None:
        """Store the cost of its launches so far, from time to time. `cluster_jobs` stores what dstack reports."""
        if is_cluster(job):
            return
        if not at_once and job.job_id not in self._spent_due:
            return
        self._spent_at[job.job_id] = now
        spent = spent_microusd(self._store, self._launches, job, now)
        if spent != job.spent_microusd:
            self._store.save_spent(job.job_id, spent)

    # --- launches without a job ---------------------------------------------------------------------------------------

    def _end_needless(self, living: Sequence[Launch], needing: Sequence[Job], now: datetime) -> None:
        """End instances whose job is over or paused, as `gpuwatch launches stop` does."""
        ids, held = {job.job_id for job in needing}, {job.launch_id for job in needing}
        for launch in living:
            is_needed = launch.watch_id in ids or launch.launch_id in held
            if is_needed or launch.watch_id is None or launch.state in {LaunchState.STOPPING, LaunchState.HELD}:
                continue
            job = self._store.job(launch.watch_id)
            if job is None or (job.ended_at is not None and now < job.ended_at + self._kept(job)):
                continue
            try:
                request_end(self._launches, launch, EndReason.FINISHED, now, f"job {job.name} is {job.state.value}")
            except LaunchConflict as conflict:
                log.info("%s", conflict)

    @staticmethod
    def _kept(job: Job) -> timedelta:
        return timedelta(seconds=job.definition.keep_on_failure_s if job.state is JobState.FAILED else 0.0)


def _watches_for_moves(jobs: Sequence[Job], alive: Mapping[str, Launch], now: datetime) -> list[Watch]:
    """Return the watches of running jobs that could move, of those with the most to save: each query costs rows."""
    wanted = [
        (launch.price_microusd_hour * work_hours_left(job), watch)
        for job in jobs
        if (launch := alive.get(job.job_id)) is not None and (watch := watch_for_a_move(job, launch, now)) is not None
    ]
    return [watch for _, watch in sorted(wanted, key=lambda one: one[0], reverse=True)[:HUNTED_AT_ONCE]]


def _may_move(job: Job, alive: Mapping[str, Launch], now: datetime) -> bool:
    """Whether there is anything to do for a job; thousands may wait without any change."""
    if job.state is not JobState.QUEUED:
        return True
    if job.definition.depends_on or job.definition.prepared_run is not None:
        return True
    return job.job_id in alive or (job.deadline is not None and job.deadline <= now)
