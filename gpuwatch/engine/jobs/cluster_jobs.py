"""Jobs on several machines: submitted to dstack once and followed to their end. Their launches are ordinary launches.

The intent and the budget of all machines are durable before anything is submitted. The launch's label is the name of
the run in dstack. After a crash gpuwatch looks the run up by that name; only if dstack states that there is none is the
same task submitted again under the same name. Without an answer, nothing changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.domain.alerts.job_texts import CLUSTER_FAILED, CLUSTER_FINISHED
from gpuwatch.domain.jobs.cluster_task import TOOL, cluster_match, cluster_watch, dstack_task, is_cluster
from gpuwatch.domain.jobs.job import Job, JobRun, JobState, JobTransition
from gpuwatch.domain.jobs.queue import group_states, waits_for
from gpuwatch.domain.launches.instances.end_rules import exit_code
from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchConflict, LaunchRefusal, LaunchState
from gpuwatch.domain.launches.life.launch_events import (
    AnswerLost,
    ClockReading,
    InstanceCreated,
    NothingCreated,
    SentAgain,
)
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.money import MICRO, dollars, usd
from gpuwatch.domain.setup.durations import is_recent
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.windows import is_open
from gpuwatch.engine.alerts.launch_alerts import job_alert
from gpuwatch.engine.jobs.job_parts import record_step
from gpuwatch.engine.launches.following.transition_executor import TransitionExecutor
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.setup.failpoint import failpoint, pace
from gpuwatch.errors import JobConflict, OutcomeUnknown, ProviderError, ProviderUnreachable, SettingsError, StoreError
from gpuwatch.ports import UnitOfWorkFactory
from gpuwatch.ports.jobs import ClusterLauncher, ClusterRun
from gpuwatch.ports.store import ObligationLog

if TYPE_CHECKING:
    from gpuwatch.storage.jobs.job_repository import SqlJobRepository
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

log = logging.getLogger(__name__)

SETTLE_S = 120.0  # at least this long after an attempt: its client process may outlive a gpuwatch that died
MOST_TRIES = 3
_AGAIN_AFTER = timedelta(minutes=1)  # after an attempt that found no machines (assumed)
COST_WITHIN = timedelta(minutes=10)  # after the end of a run: how long to retry the query for its cost
_LOST = frozenset({LaunchState.REQUESTED, LaunchState.UNKNOWN, LaunchState.STOPPING})
_OPEN = frozenset({JobState.RENTING, JobState.PREPARING, JobState.RUNNING, JobState.FETCHING})
# parts of dstack's reasons for ends that a further run would not change: by its user, at its maximum duration
_FINAL = ("_by_user", "max_duration_exceeded", "log_quota_exceeded")


class ClusterTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of cluster jobs."""

    budget: Budget
    dry_run: bool
    zone: str  # time zone of `active` windows
    settle: timedelta = timedelta(seconds=SETTLE_S)


class ClusterParts(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of jobs on several machines.

    Attributes:
        variables: returns a job's variables, secrets resolved. Raises SettingsError.
        not_ready: returns why nothing new can be submitted now, or None.
        account: returns the account that submits; None: not known yet.
    """

    jobs: SqlJobRepository
    launches: SqlLaunchRepository
    units: UnitOfWorkFactory
    engine: ClusterLauncher
    transitions: TransitionExecutor
    slots: LaunchSlots
    obligations: ObligationLog
    variables: Callable[[Job], Mapping[str, str]]
    not_ready: Callable[[], str | None]
    account: Callable[[], str | None]
    new_id: Callable[[], str]
    clock: Callable[[], datetime]


class ClusterJobs:
    """Each pass starts jobs that can start, looks up lost submissions, and advances each followed job by one step."""

    def __init__(self, parts: ClusterParts, terms: ClusterTerms) -> None:
        self._parts = parts
        self._terms = terms
        self._jobs, self._launches, self._engine = parts.jobs, parts.launches, parts.engine

    def tick(self, now: datetime) -> None:
        """Run one pass. After a StoreError the next pass continues."""
        every = self._jobs.open_jobs()
        alive = {one.watch_id: one for one in self._launches.own_alive(TOOL) if not one.dry_run}
        mine = [job for job in every if is_cluster(job)]
        waiting = [job for job in mine if job.state is JobState.QUEUED and job.job_id not in alive]
        states = self._states(every) if waiting else {}
        for job in mine:
            launch = alive.get(job.job_id)
            if launch is not None and _is_lost(launch):
                self._contained(job, partial(self._check_submission, job, launch, now))
            if job.state in _OPEN:
                self._contained(job, partial(self._follow, job, launch, now))
        for job in waiting:
            self._contained(job, partial(self._start, job, states, now))
        open_ids = {job.job_id for job in mine}
        for job_id, launch in alive.items():  # the job was cancelled while the answer was lost
            over = None if job_id is None or job_id in open_ids else self._jobs.job(job_id)
            if over is not None and _is_lost(launch):
                self._contained(over, partial(self._check_submission, over, launch, now))

    def _states(self, every: Sequence[Job]) -> Mapping[str, JobState]:
        names = {name for job in every for name in job.definition.depends_on}
        return group_states([*self._jobs.ended_jobs(names), *every])

    @staticmethod
    def _contained(job: Job, step: Callable[[], None]) -> None:
        try:
            step()
        except (JobConflict, LaunchConflict) as conflict:
            log.info("%s", conflict)
        except ProviderError as error:  # without an answer the state is unknown: nothing changes
            log.warning("job %s: %s", job.name, error)

    # --- submission ---------------------------------------------------------------------------------------------------

    def _start(self, job: Job, states: Mapping[str, JobState], now: datetime) -> None:
        if job.deadline is not None and job.deadline <= now:
            return  # the queue ends it
        why = "dry_run = true: jobs are not submitted" if self._terms.dry_run else self._parts.not_ready()
        why = why or waits_for(job, states)
        if why is None and not is_open(job.definition.active, now, self._terms.zone):
            why = "waiting for its active windows"
        if why is None and self._found_none(job, now):
            return
        if why is None:
            try:
                self._parts.variables(job)
            except SettingsError as error:
                why = str(error)
        if why is not None:
            self._explain(job, why, now)
            return
        watch = cluster_watch(job, now)
        account = self._parts.account()
        intent = Intent(
            watch=watch,
            match=cluster_match(job, watch, now),
            launch_id=self._parts.new_id(),
            dry_run=False,
            accounts={} if account is None else {TOOL: account},
        )
        failpoint("intent.before_commit")
        with self._parts.units.open() as unit:
            reserved = unit.reserve(intent, self._terms.budget, now)
        if isinstance(reserved, LaunchRefusal):
            self._explain(job, reserved.text, now)
            return
        failpoint("intent.after_commit")
        launch = reserved[0]
        predicted = round(launch.price_microusd_hour * (launch.max_runtime_s or 0.0) / 3600)
        changes = {"launch_id": launch.launch_id, "predicted_microusd": job.spent_microusd + predicted}
        detail = {"engine": TOOL, "run": launch.label}
        step = JobTransition(to_state=JobState.RENTING, at=now, reason=None, changes=changes, detail=detail)
        self._submit(self._jobs.record(job, step), launch, now)

    def _found_none(self, job: Job, now: datetime) -> bool:
        """Whether dstack found no machines for it a moment ago: each attempt is a run there, and a launch here."""
        before = self._launches.get(job.launch_id or "")
        tried = before is not None and before.running_at is None and before.provider == TOOL
        ended_at = before.ended_at if before is not None and tried else None
        return ended_at is not None and is_recent(ended_at, now, _AGAIN_AFTER / pace())

    def _submit(self, job: Job, launch: Launch, now: datetime) -> None:
        """Submit the task of a reserved launch. If the outcome is uncertain, look it up before anything else."""
        with self._parts.slots.requesting(launch):
            try:
                secrets = {name: self._parts.variables(job)[name] for name in job.definition.secret_env}
                refused = self._launches.may_send(launch, now)
                if refused is not None:
                    self._apply(launch, NothingCreated(EndReason.PAUSED.text(refused.said)))
                    return
                self._parts.obligations.record_order(launch, 0.0)
            except (SettingsError, StoreError) as error:
                self._apply(launch, NothingCreated(EndReason.NOT_SENT.text(str(error))))
                return
            failpoint("launch.before_send")
            if not self._launches.lease.is_held:  # the process may have slept since the last check
                self._apply(launch, NothingCreated(EndReason.NOT_SENT.text("another host leads")))
                return
            try:
                self._engine.submit(launch.label, dstack_task(job, launch), secrets)
            except ProviderUnreachable as error:
                self._apply(launch, NothingCreated(EndReason.NOT_SENT.text(str(error))))
            except (OutcomeUnknown, ProviderError) as error:
                failpoint("launch.no_answer")
                log.warning("job %s: cannot determine whether dstack has it: %s", job.name, error)
                self._apply(launch, AnswerLost(str(error)))
            else:
                failpoint("launch.after_send")
                log.info("job %s: submitted to dstack as %s", job.name, launch.label)
                self._apply(launch, InstanceCreated(launch.label))

    def _check_submission(self, job: Job, launch: Launch, now: datetime) -> None:
        """Look up a submission whose answer was lost. Raises ProviderError: it is still unknown."""
        if launch.launch_id in self._parts.slots.in_flight():
            return
        asked_at = launch.requested_at or launch.intended_at
        found = self._engine.run(launch.label)
        if found is not None:
            self._apply(launch, InstanceCreated(launch.label))
        elif now - asked_at < self._terms.settle or self._parts.account() != launch.account_id:
            return  # the client may still be submitting, or another project answered
        elif launch.state is LaunchState.STOPPING or job.is_over:
            self._apply(launch, NothingCreated(EndReason.ABSENT.text("dstack has no run of its name")))
        elif launch.tries >= MOST_TRIES:
            said = [event.provider_words for event in self._launches.events(launch.launch_id) if event.provider_words]
            words = f"dstack accepted no run in {MOST_TRIES} attempts{f': {said[-1]}' if said else ''}"
            self._apply(launch, NothingCreated(EndReason.REFUSED.text(words)))
        else:
            event = SentAgain("submitted again: dstack has no run of its name")
            again, _ = self._parts.transitions.apply(launch, event, ClockReading(now, now))
            self._submit(job, again, now)

    def _apply(self, launch: Launch, event: InstanceCreated | AnswerLost | NothingCreated) -> None:
        at = self._parts.clock()
        self._parts.transitions.apply_to_latest(launch, event, ClockReading(at, at))

    # --- following ----------------------------------------------------------------------------------------------------

    def _follow(self, job: Job, launch: Launch | None, now: datetime) -> None:
        if launch is None:
            ended = self._launches.get(job.launch_id or "")
            if ended is not None and ended.is_over:
                self._ended(job, ended, now)
            return
        if launch.running_at is None or launch.state is not LaunchState.RUNNING:
            return
        run = self._engine.run(launch.label)
        if run is None:
            return  # the reconciler proves its end
        if (spent := cost_microusd(launch, now)) is not None:
            self._jobs.save_spent(job.job_id, self._spent_before(job, launch, now) + spent)
        self._seen(job, launch, run, now)

    def _seen(self, job: Job, launch: Launch, run: ClusterRun, now: datetime) -> None:
        if job.state is JobState.RENTING:
            number = job.run_number + 1
            kept = JobRun(job_id=job.job_id, run_number=number, launch_id=launch.launch_id, step=run.status)
            self._record(job, JobState.PREPARING, now, run.status, {"run_number": number}, kept)
        elif job.state is JobState.PREPARING and run.status != "provisioning":
            kept = self._run_of(job, launch, step=run.status, started_at=now, last_seen_at=now)
            self._record(job, JobState.RUNNING, now, None, {}, kept)
        elif (before := self._run_of(job, launch)).step != run.status:
            self._jobs.save_run(msgspec.structs.replace(before, step=run.status, last_seen_at=now))

    def _ended(self, job: Job, launch: Launch, now: datetime) -> None:
        """Record the end of a job whose launch is over. Raises ProviderError: its cost is queried again later."""
        reason = launch.end_reason or ""
        cost = self._cost(launch, now)
        spent = self._spent_before(job, launch, now) + (
            (cost_microusd(launch, now) or 0) if cost is None else round(cost * MICRO)
        )
        is_final = any(words in reason for words in _FINAL)
        if launch.running_at is None and not launch.ended_because(EndReason.STOPPED) and not is_final:
            self._record(job, JobState.QUEUED, now, reason)  # nothing ran: this run does not count
            return
        if job.state is JobState.RENTING:  # it ended before any pass saw it run
            number = job.run_number + 1
            kept = JobRun(job_id=job.job_id, run_number=number, launch_id=launch.launch_id, step="over")
            job = self._record(job, JobState.PREPARING, now, None, {"run_number": number}, kept)
        code = exit_code(reason)
        kept = self._run_of(job, launch, step="over", exit_code=code, ended_at=launch.ended_at, end_reason=reason)
        changes: dict[str, Any] = {"exit_code": code, "spent_microusd": spent}
        priced = "an upper bound: machines × price × time" if cost is None else "as reported by dstack"
        facts = [("Cost", f"{dollars(usd(spent))}, {priced}"), ("Log", f"dstack logs {launch.label}")]
        if launch.ended_because(EndReason.FINISHED):
            if job.state is not JobState.FETCHING:
                job = self._record(job, JobState.FETCHING, now, None)
            self._record(job, JobState.DONE, now, None, {**changes, "progress": 1.0}, kept)
            self._launches.enqueue(job_alert(job, CLUSTER_FINISHED, now, more_facts=facts))
            return
        ends = (EndReason.CRASHED, EndReason.STOPPED, EndReason.MAX_RUNTIME)
        if launch.ended_because(*ends) or is_final:
            self._record(job, JobState.FAILED, now, reason, changes, kept)
            self._launches.enqueue(job_alert(job, CLUSTER_FAILED, now, more_facts=[("Why", reason), *facts]))
            return
        self._record(
            job, JobState.PREEMPTED, now, reason, {"spent_microusd": spent}, kept
        )  # the queue decides what follows

    def _cost(self, launch: Launch, now: datetime) -> float | None:
        """Return the cost that dstack reports; None: it reports none, or has not answered for too long."""
        try:
            found = self._engine.run(launch.label)
        except ProviderError as error:
            if now - (launch.ended_at or now) < COST_WITHIN:
                raise
            log.warning("launch %s: its cost is unknown: %s", launch.launch_id, error)
            return None
        return found.cost_usd if found is not None and found.is_over and found.cost_usd else None

    def _spent_before(self, job: Job, launch: Launch, now: datetime) -> int:
        """Return the cost of its earlier launches, in micro-dollars."""
        ids = {run.launch_id for run in self._jobs.runs(job.job_id)} - {launch.launch_id}
        earlier = [self._launches.get(launch_id) for launch_id in ids]
        return sum(cost_microusd(one, now) or 0 for one in earlier if one is not None)

    def _run_of(self, job: Job, launch: Launch, **changes: Any) -> JobRun:
        found = next((run for run in self._jobs.runs(job.job_id) if run.run_number == job.run_number), None)
        found = found or JobRun(job_id=job.job_id, run_number=job.run_number, launch_id=launch.launch_id)
        return msgspec.structs.replace(found, **changes)

    # --- the record ---------------------------------------------------------------------------------------------------

    def _explain(self, job: Job, why: str, now: datetime) -> None:
        if job.reason != why:
            self._record(job, JobState.QUEUED, now, why)

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
        return record_step(self._jobs, job, step, run)


def _is_lost(launch: Launch) -> bool:
    """Whether it is unknown if its run exists."""
    return launch.instance_id is None and launch.state in _LOST
