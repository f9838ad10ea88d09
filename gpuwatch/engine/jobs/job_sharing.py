"""Reuses the instance of a finished job for the next queued job that it suits, at once and without set-up.

The handover is one transaction of both runs: after a crash the instance belongs to exactly one of the two jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.jobs.job import Job, JobRun, JobState, JobTransition
from gpuwatch.domain.jobs.job_watch import max_runtime_s, price_cap, waiting_job_watch, work_hours_left
from gpuwatch.domain.jobs.queue import group_states, queue_order, waits_for
from gpuwatch.domain.jobs.shared_instance import costs_less_here, have_same_needs, is_small, may_share
from gpuwatch.domain.launches.instances.obligation import latest_end
from gpuwatch.domain.launches.launch import Launch, LaunchConflict, LaunchRefusal, LaunchState
from gpuwatch.domain.market.money import threshold_microusd
from gpuwatch.domain.market.offer import priced_units
from gpuwatch.domain.setup.store_addresses import is_store
from gpuwatch.domain.watches.decide import current_quotes
from gpuwatch.domain.watches.windows import is_open
from gpuwatch.engine.jobs.job_parts import JobParts
from gpuwatch.errors import JobConflict

log = logging.getLogger(__name__)


class InstanceSharing:
    """Hands over instances of finished jobs to queued jobs."""

    def __init__(self, parts: JobParts) -> None:
        self._parts = parts

    def give_to_next(self, job: Job, run: JobRun, launch: Launch) -> JobRun:
        """Return the updated run, with `held_until` if another job now has the instance. Raises StoreError.

        Args:
            run: its results are fetched and verified, and nothing of it still runs.
        """
        if not may_share(job) or launch.state is not LaunchState.RUNNING or launch.condition is not None:
            return run
        now, states = self._parts.clock(), self._states(job)
        for one in queue_order(self._parts.jobs.open_jobs()):
            if not (one.job_id != job.job_id and may_share(one) and is_small(one) and have_same_needs(one, job)):
                continue
            if waits_for(one, states) is not None or not self._is_compatible(one, launch, now):
                continue
            try:
                given = self._give(one, job, run, launch, now)
            except (JobConflict, LaunchConflict) as conflict:
                log.info("the instance of job %s: %s", job.name, conflict)
                continue
            if given is not None:
                return given
        return run

    def _states(self, done: Job) -> Mapping[str, JobState]:
        """Return the states of awaited jobs. This job counts as done unless a store still lacks its results."""
        jobs = self._parts.jobs.open_jobs()
        awaited = {name for job in jobs if job.state is JobState.QUEUED for name in job.definition.depends_on}
        if not any(is_store(result.target) for result in done.definition.results):
            is_done = msgspec.structs.replace(done, state=JobState.DONE)
            jobs = [is_done if job.job_id == done.job_id else job for job in jobs]
        ended = sorted(self._parts.jobs.ended_jobs(awaited), key=lambda job: job.submitted_at) if awaited else []
        return group_states([*ended, *jobs])

    def _is_compatible(self, job: Job, launch: Launch, now: datetime) -> bool:
        """Whether the job may and should continue there now: windows, deadline, price."""
        if not is_open(job.definition.active, now, self._parts.zone):
            return False
        if job.deadline is not None and now + timedelta(hours=work_hours_left(job)) > job.deadline:
            return False
        limit = self._parts.limit_now(waiting_job_watch(job, price_cap(job), now), now)
        if launch.price_microusd_hour > threshold_microusd(limit, launch.gpu_count):
            return False
        price = launch.price_microusd_hour / priced_units(launch.gpu_count)
        return costs_less_here(
            job,
            price,
            min((one.price_microusd_gpu_hour for one in current_quotes(self._parts.seen(job), now)), default=None),
        )

    def _give(self, job: Job, done: Job, run: JobRun, launch: Launch, now: datetime) -> JobRun | None:
        """Hand the instance over; None: the budgets or the provider do not allow the time that the job needs."""
        launch = self._parts.launches.get(launch.launch_id) or launch
        needed_until = now + timedelta(seconds=max_runtime_s(job, price_cap(job), now))
        contract_ends = self._parts.contract_end(launch)
        if contract_ends is not None and contract_ends < needed_until:
            log.info("the provider ends the instance of job %s before job %s would be done", done.name, job.name)
            return None
        ends = latest_end(launch)
        if ends is not None and ends < needed_until:
            by_s = (needed_until - ends).total_seconds()
            watch_budget = waiting_job_watch(job, price_cap(job), now).budget
            found = self._parts.launches.extend(launch, by_s, self._parts.budget, watch_budget, now)
            if isinstance(found, LaunchRefusal):
                log.info("job %s does not continue on the instance of job %s: %s", job.name, done.name, found.text)
                return None
        begins = JobRun(
            job_id=job.job_id,
            run_number=job.run_number + 1,
            launch_id=launch.launch_id,
            ssh_host=run.ssh_host,
            ssh_port=run.ssh_port,
            ssh_user=run.ssh_user,
            host_key=run.host_key,
            held_from=now,
        )
        given = msgspec.structs.replace(run, held_until=now)
        predicted = job.spent_microusd + round(launch.price_microusd_hour * work_hours_left(job))
        changes = {"launch_id": launch.launch_id, "run_number": begins.run_number, "predicted_microusd": predicted}
        why = f"on the instance of job {done.name}, which is done"
        step = JobTransition(to_state=JobState.PREPARING, at=now, reason=why, changes=changes)
        self._parts.jobs.take_over(job, step, begins, given)
        log.info("job %s continues on the instance of job %s", job.name, done.name)
        return given
