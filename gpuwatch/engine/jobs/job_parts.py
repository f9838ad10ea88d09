"""Shared by the steps of a run: its ports and time limits, how a step is recorded, where a job's files are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.domain.alerts.alert import AlertSpec
from gpuwatch.domain.jobs.job import Job, JobEvent, JobRun, JobState, JobTransition
from gpuwatch.domain.jobs.job_definition import JobDefinition, JobStage
from gpuwatch.domain.jobs.job_watch import price_cap, usd_left, waiting_job_watch
from gpuwatch.domain.jobs.run_plan import runner, work_folder
from gpuwatch.domain.jobs.run_progress import run_cost_microusd
from gpuwatch.domain.jobs.run_sample import RunSample, sample_detail
from gpuwatch.domain.jobs.run_status import FileListing, parse_files
from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.launches.instances.obligation import latest_end
from gpuwatch.domain.launches.interruption import InterruptionNotice
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchConflict, LaunchRefusal, LaunchState
from gpuwatch.domain.launches.money.launch_costs import END_PROVEN_S
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.plan.own_rows import OwnRow
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.alerts.launch_alerts import job_alert
from gpuwatch.engine.launches.following.transition_executor import request_end
from gpuwatch.home_folder import expand_home
from gpuwatch.ports.jobs import JobStore
from gpuwatch.ports.remote import RemoteShell, RemoteShells, RemoteUnreachable

if TYPE_CHECKING:
    from gpuwatch.remote.job_folder import JobFolder
    from gpuwatch.remote.rclone import Rclone
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

log = logging.getLogger(__name__)

NOT_PREPARED = "its data was not prepared"
_LIST_MAX = 8 << 20


class RunBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits of a run, in seconds."""

    lease_s: int = 600  # a network outage of five minutes ends nothing
    margin_s: int = 60  # from the end of the lease to the guaranteed end of the command
    call_s: float = 20.0
    send_s: float = 3600.0  # for inputs, and for a checkpoint to resume
    list_s: float = 600.0  # for the names and hashes of files
    fetch_s: float = 20.0  # per round; the next round continues an incomplete download
    reach_s: float = 900.0  # after this a machine that never accepted a login is released
    gone_s: float = 120.0  # how long an instance may be outbid or stopped before the job continues elsewhere
    results_s: float = 3600.0  # how long unfetched results keep an instance
    results_round_s: float = 300.0  # for results per round: the command is over, and no lease waits
    store_s: float = 3600.0  # for one copy to or from a store; the next one continues with the next file
    late_results_s: float = 120.0  # after this the delay is reported
    observed_every_s: float = 60.0  # how often an unchanged state is recorded


RentableInstead = Callable[[Job, Launch, Sequence[Match]], tuple[Match | None, str]]


class JobParts(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of a run.

    Attributes:
        address: returns the address of an instance's SSH server; None: not known yet.
        contract_end: returns when the provider itself ends an instance; None: not known, or never.
        variables: returns the environment of a job's command, secrets resolved. Raises SettingsError.
        clock: the wall clock; a step can take minutes.
        seen: returns the last known offers within a job's limits; while it runs, like its machine and cheaper.
        rentable_instead: returns the first of the offers, at least one, that could be rented now for a job if its
            launch had ended, or None and why not. Raises StoreError.
        ticked: returns the items of a job's checklist that its owner ticked.
        noticed: stores and reports a notice of the provider that the machine itself read. Raises StoreError.
        add_own_row: keeps a measured speed for the planner; a key that it has already changes nothing. Raises OSError.
        has_imds: providers whose spot machines read the notice themselves.
        limit_now: returns a watch's limit in USD per GPU-hour at a moment. Raises StoreError.
        budget: the global budget.
        zone: time zone of `active` windows.
    """

    jobs: JobStore
    launches: SqlLaunchRepository
    shells: RemoteShells
    files: JobFolder
    stores: Rclone
    address: Callable[[Launch], SshAddress | None]
    variables: Callable[[Job], Mapping[str, str]]
    clock: Callable[[], datetime]
    bounds: RunBounds = RunBounds()
    seen: Callable[[Job], Sequence[Match]] = lambda job: ()
    rentable_instead: RentableInstead = lambda job, launch, found: (found[0], "")
    ticked: Callable[[Job], Collection[str]] = lambda job: ()
    contract_end: Callable[[Launch], datetime | None] = lambda launch: None
    noticed: Callable[[Launch, InterruptionNotice], None] = lambda launch, notice: None
    add_own_row: Callable[[OwnRow], object] = lambda row: None
    has_imds: Collection[str] = ()
    limit_now: Callable[[Watch, datetime], Decimal] = lambda watch, now: watch.max_price_usd_gpu_hour
    budget: Budget = Budget()
    zone: str = "UTC"

    def save(self, run: JobRun, **changes: Any) -> JobRun:
        """Store a run with changes."""
        after = msgspec.structs.replace(run, **changes)
        self.jobs.save_run(after)
        return after

    def event(self, run: JobRun, kind: str, **detail: Any) -> None:
        """Store an event together with the run."""
        self.jobs.save_run(
            run, JobEvent(job_id=run.job_id, run_number=run.run_number, at=self.clock(), kind=kind, detail=detail)
        )

    def record(
        self, job: Job, to_state: JobState, reason: str | None = None, run: JobRun | None = None, **changes: Any
    ) -> Job:
        """Record one transition of the job. Raises JobConflict, StoreError."""
        step = JobTransition(to_state=to_state, at=self.clock(), reason=reason, changes=changes)
        return record_step(self.jobs, job, step, run)

    def record_sample(self, job: Job, run: JobRun, sample: RunSample, line: str | None, **changes: Any) -> Job:
        """Record a running job's sample with its run. Raises JobConflict, StoreError."""
        step = JobTransition(
            to_state=JobState.RUNNING, at=sample.at, reason=line, changes=changes, detail=sample_detail(sample)
        )
        return record_step(self.jobs, job, step, run)

    def report(self, job: Job, spec: AlertSpec, **fields: Any) -> None:
        """Put an alert about a job into the outbox; repeated calls send it once. `fields`: see `job_alert`."""
        self.launches.enqueue(job_alert(job, spec, self.clock(), **fields))

    def end_launch(self, launch: Launch | None, end: EndReason, words: str = "") -> None:
        """Have the instance destroyed, as `gpuwatch launches stop` does; repeated calls change nothing.

        The reconciler sends the destroy, as often as needed, and proves the end.
        """
        if launch is None:
            return
        try:
            request_end(self.launches, launch, end, self.clock(), words)
        except LaunchConflict:
            log.warning("a launch keeps changing; recording its end in the next round")

    def keep_until(self, job: Job, launch: Launch | None, until: datetime) -> datetime:
        """Return when an instance ends whose results are not here yet: `until` if the limits of its owner allow that.

        It was rented until its command had to be done; its results may take longer.
        """
        ends_at = latest_end(launch) if launch is not None else None
        if launch is None or ends_at is None or ends_at >= until:
            return until
        now, left = self.clock(), usd_left(job)
        if left is not None and launch.price_microusd_hour:
            hours = float(left) / (launch.price_microusd_hour / MICRO) - END_PROVEN_S / 3600
            until = min(until, now + timedelta(hours=max(hours, 0.0)))
        if until <= ends_at or launch.state is not LaunchState.RUNNING:
            return ends_at
        by_s, watch_budget = (until - ends_at).total_seconds(), waiting_job_watch(job, price_cap(job), now).budget
        try:
            found = self.launches.extend(launch, by_s, self.budget, watch_budget, now)
        except LaunchConflict:  # the next round tries again
            return ends_at
        return ends_at if isinstance(found, LaunchRefusal) else until

    def local(self, moment: datetime) -> str:
        """Return a moment in the configured zone, for display."""
        return format_moment(moment, ZoneInfo(self.zone))

    def shell(self, run: JobRun) -> RemoteShell:
        """Return a shell on the run's machine. Raises RemoteUnreachable, RemoteRefused."""
        if run.ssh_host is None or run.ssh_port is None or run.host_key is None:
            raise RemoteUnreachable("the address of the machine is unknown so far")
        address = SshAddress(host=run.ssh_host, port=run.ssh_port, user=run.ssh_user or "root")
        return self.shells.open(run.launch_id, address, run.host_key)

    def lease_end(self) -> datetime:
        """Return when a command has certainly ended if its lease is renewed now, but never again."""
        return self.clock() + timedelta(seconds=self.bounds.lease_s + self.bounds.margin_s + 2 * self.bounds.call_s)

    def listed(self, shell: RemoteShell, run: JobRun, patterns: list[str], *, is_leased: bool = False) -> FileListing:
        """Return the files in the work folder, with size and hash. Raises RemoteUnreachable, RemoteRefused.

        Args:
            is_leased: whether a command runs there, whose lease was renewed just now and must not end meanwhile.
        """
        command = runner(run.job_id, "list", work_folder(run.job_id), *patterns)
        within_s = min(self.bounds.list_s, self.bounds.lease_s * 0.8) if is_leased else self.bounds.list_s
        said = shell.run(command, timeout_s=within_s, max_bytes=_LIST_MAX)
        if said.exit_code != 0 or said.is_truncated:
            raise RemoteUnreachable(f"cannot list its files: {said.stderr or 'too many'}")
        return parse_files(said.stdout.decode("utf-8", "replace"))


def spent_microusd(jobs: JobStore, launches: SqlLaunchRepository, job: Job, now: datetime) -> int:
    """Return the cost of all launches of a job so far. Raises StoreError."""
    held: dict[str, JobRun | None] = {run.launch_id: run for run in jobs.runs(job.job_id)}
    if job.launch_id is not None:
        held.setdefault(job.launch_id, None)
    found = [(run, launches.get(launch_id)) for launch_id, run in held.items()]
    return sum(run_cost_microusd(run, launch, now) for run, launch in found if launch is not None)


def record_step(jobs: JobStore, job: Job, step: JobTransition, run: JobRun | None = None) -> Job:
    """Store one transition of a job, and log it. Raises JobConflict, StoreError."""
    if step.to_state is JobState.FAILED and job.definition.stage is JobStage.PREPARE:
        step = msgspec.structs.replace(step, reason=f"{NOT_PREPARED}: {step.reason}" if step.reason else NOT_PREPARED)
    after = jobs.record(job, step, run)
    why = f": {step.reason}" if step.reason else ""
    log.info("job %s: %s%s", job.name, step.to_state.value, why, extra={"job": job.job_id})
    return after


def local_path(definition: JobDefinition, path: str) -> Path:
    """A path of a job's file: below the file's own folder, unless it is absolute or begins with `~`.

    Raises:
        OSError: this user has no home folder.
    """
    return Path(definition.folder) / expand_home(path)
