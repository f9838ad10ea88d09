"""Builds the parts that run jobs: the queue, the runner on rented instances, the engine for several machines.

The owner logs in to rented machines with the same files. Also what reads the owner's own machines, by the same runner.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch.bootstrap import new_id
from gpuwatch.domain.jobs.cluster_task import TOOL
from gpuwatch.domain.jobs.job_watch import price_cap, waiting_job_watch
from gpuwatch.domain.launches.life.launch_events import ClockReading, InterruptionNoticed
from gpuwatch.engine.jobs.cluster_jobs import SETTLE_S, ClusterJobs, ClusterParts, ClusterTerms
from gpuwatch.engine.jobs.job_parts import JobParts, RunBounds
from gpuwatch.engine.jobs.job_queue import JobQueue
from gpuwatch.engine.jobs.job_runner import JobRunner
from gpuwatch.engine.jobs.job_threads import JobThreads, Lane
from gpuwatch.engine.jobs.series_starter import SeriesStarter
from gpuwatch.engine.launches.following.instance_details import ContractEnds, InstanceAddresses
from gpuwatch.engine.launches.following.transition_executor import TransitionExecutor
from gpuwatch.engine.plan.own_machines import OwnMachines
from gpuwatch.engine.setup.failpoint import pace
from gpuwatch.errors import GpuwatchError, SettingsError
from gpuwatch.home_folder import expand_home
from gpuwatch.measuring.own_speeds import FILE, add_own_rows
from gpuwatch.remote import runner_script
from gpuwatch.remote.dstack import Dstack
from gpuwatch.remote.job_folder import JobFolder
from gpuwatch.remote.own_shells import open_own_shell
from gpuwatch.remote.rclone import Rclone
from gpuwatch.remote.ssh import OpenSshShells
from gpuwatch.remote.ssh_hosts import SshHosts
from gpuwatch.storage.jobs.series_repository import SqlSeriesRepository
from gpuwatch.storage.launches.renting_blocks import SqlChecklistRepository
from gpuwatch.storage.setup.account_rows import new_identity

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from gpuwatch.bootstrap.essentials import Essentials
    from gpuwatch.domain.jobs.job import Job
    from gpuwatch.domain.launches.interruption import InterruptionNotice
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.engine.launches.following.launch_reconciler import LaunchReconciler
    from gpuwatch.engine.launches.following.provider_account import ProviderAccount
    from gpuwatch.engine.watches.replacement import ReplacementCheck
    from gpuwatch.ports import Launcher
    from gpuwatch.ports.remote import RemoteShell
    from gpuwatch.settings import Settings

MAX_WORKERS = 16  # concurrent rounds of a lane: a hanging machine occupies one of them until its timeout
MAX_COPIES = 8  # concurrent copies to stores


def jobs_folder(settings: Settings) -> Path:
    """Where logs, pending results and checkpoints of jobs are stored: next to the database or in the state folder."""
    from gpuwatch.settings.external_values import state_folder
    from gpuwatch.storage.setup.database import sqlite_path

    database = sqlite_path(settings.database_url)
    folder = state_folder(os.environ) if database is None else Path(database).parent
    return folder / "jobs-data"


def job_shells(settings: Settings) -> OpenSshShells:
    """The shells on instances of jobs, with their key pairs."""
    return OpenSshShells(_ssh_folder(settings))


def ssh_hosts(settings: Settings) -> SshHosts:
    """The machines as hosts of the owner's SSH client, with the same keys."""
    return SshHosts(_ssh_folder(settings))


def refresh_ssh_hosts(settings: Settings, active: Callable[[], Sequence[Launch]]) -> None:
    """Bring the file of hosts up to date, if the owner has one. Raises StoreError, OSError."""
    hosts = ssh_hosts(settings)
    if hosts.file.exists():
        hosts.write(active(), {watch.name: watch for watch in settings.watches})


def _ssh_folder(settings: Settings) -> Path:
    return jobs_folder(settings) / "ssh"


def own_machines(settings: Settings, hosts: Sequence[str], ssh_key: str | None) -> OwnMachines:
    """The machines with these hosts.

    Args:
        ssh_key: a private key, relative to the settings file; None: the user's own keys and agent.
    """
    base = Path(settings.source_file).parent if settings.source_file else Path()
    folder = jobs_folder(settings) / "own-machines"

    def open_shell(host: str) -> RemoteShell:
        try:
            key = None if ssh_key is None else (base / expand_home(ssh_key)).absolute()
            if key is not None:
                key.open("rb").close()
            return open_own_shell(host, key, folder)
        except OSError as error:
            raise GpuwatchError(f"cannot use {error.filename}: {error.strerror}") from error

    return OwnMachines(hosts, open_shell, runner_script())


def min_billing_h(settings: Settings) -> float:
    """Minimum billed hours of an instance, at any provider."""
    return min((provider.commission.min_billing_s for provider in settings.providers.values()), default=0.0) / 3600


def build_job_queue(base: Essentials) -> JobQueue:
    """The job queue of the daemon."""

    def price_of(job: Job) -> float | None:
        return base.observations.best_usd_gpu_hour(job.watch_name, base.time_source.now())

    return JobQueue(
        base.jobs,
        base.launches,
        price_of=price_of,
        min_billing_h=min_billing_h(base.settings),
        has_data=JobFolder(jobs_folder(base.settings)).has_prepared,
    )


def build_series_starter(base: Essentials) -> SeriesStarter:
    """What starts the runs of recurring jobs."""
    zone = ZoneInfo(base.settings.timezone)
    return SeriesStarter(SqlSeriesRepository(base.store), base.jobs, zone, new_identity)


def build_job_runner(
    base: Essentials,
    launchers: Mapping[str, Launcher],
    with_limit: Callable[[Watch, datetime], Watch],
    replacements: ReplacementCheck,
) -> JobRunner:
    """The job runner of the daemon.

    Args:
        with_limit: a watch with its current limit.
    """
    from gpuwatch.settings.external_values import state_folder

    settings, time_source = base.settings, base.time_source

    def rentable_instead(job: Job, leaving: Launch, found: Sequence[Match]) -> tuple[Match | None, str]:
        now = time_source.now()
        return replacements.first_rentable(waiting_job_watch(job, price_cap(job), now), leaving, found, now)

    checklists = SqlChecklistRepository(base.store)
    transitions = TransitionExecutor(base.launches, base.launch_alerts)

    def noticed(launch: Launch, notice: InterruptionNotice) -> None:
        now = time_source.now()
        try:
            transitions.apply_to_latest(launch, InterruptionNoticed(notice), ClockReading(now, now))
        except GpuwatchError as error:  # its last checkpoint is fetched all the same
            log.warning("launch %s: cannot store that it is taken back: %s", launch.launch_id, error)

    parts = JobParts(
        jobs=base.jobs,
        launches=base.launches,
        shells=job_shells(settings),
        files=JobFolder(jobs_folder(settings)),
        stores=Rclone(),
        address=InstanceAddresses(launchers, time_source.monotonic),
        variables=job_variables,
        clock=time_source.now,
        bounds=RunBounds(),
        seen=lambda job: base.observations.latest_matches(job.watch_name),
        rentable_instead=rentable_instead,
        ticked=lambda job: checklists.items(job.watch_name),
        contract_end=ContractEnds(launchers),
        noticed=noticed,
        add_own_row=lambda row: add_own_rows(state_folder(os.environ) / FILE, [row]),
        has_imds=[name for name, adapter in base.adapters.items() if adapter.info.has_imds],
        limit_now=lambda watch, now: with_limit(watch, now).max_price_usd_gpu_hour,
        budget=settings.budget,
        zone=settings.timezone,
    )
    return JobRunner(parts, runner_script(), JobThreads(MAX_WORKERS, {Lane.COPY: MAX_COPIES}))


def job_variables(job: Job) -> dict[str, str]:
    """A job's variables with references resolved now; they are never stored.

    Raises:
        SettingsError: a reference cannot be resolved.
    """
    variables = dict(job.definition.env)
    faults = []
    for name, reference in job.definition.secret_env.items():
        kind, _, source = reference.partition(":")
        try:
            variables[name] = os.environ[source] if kind == "env" else expand_home(source).read_text().rstrip("\n")
        except KeyError:
            faults.append(
                f"job {job.name}: env.{name}: {source} is not set in the environment of gpuwatch; set it there"
            )
        except OSError as error:
            faults.append(f"job {job.name}: env.{name}: {source}: {error.strerror}")
    if faults:
        raise SettingsError(faults)
    return variables


def build_cluster_jobs(
    base: Essentials,
    launchers: Mapping[str, Launcher],
    reconcilers: Mapping[str, LaunchReconciler],
    accounts: Mapping[str, ProviderAccount],
) -> ClusterJobs | None:
    """The multi-node jobs of the daemon; None: no engine is configured."""
    engine = launchers.get(TOOL)
    if not isinstance(engine, Dstack):
        return None
    settings, account = base.settings, accounts[TOOL]
    terms = ClusterTerms(
        budget=settings.budget,
        dry_run=settings.dry_run,
        zone=settings.timezone,
        settle=timedelta(seconds=max(SETTLE_S, 2 * settings.orchestrator.timeout_s) / pace()),
    )
    parts = ClusterParts(
        jobs=base.jobs,
        launches=base.launches,
        units=base.uow_factory,
        engine=engine,
        transitions=TransitionExecutor(base.launches, base.launch_alerts),
        slots=base.slots,
        obligations=base.obligations,
        variables=job_variables,
        not_ready=reconcilers[TOOL].not_ready,
        account=lambda: account.account_id,
        new_id=new_id,
        clock=base.time_source.now,
    )
    return ClusterJobs(parts, terms)
