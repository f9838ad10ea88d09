"""Builds the part that runs jobs on rented instances."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.domain.jobs.job_watch import WATCH_PREFIX
from gpuwatch.engine.instance_addresses import ContractEnds, InstanceAddresses
from gpuwatch.engine.job_parts import JobParts, RunBounds
from gpuwatch.engine.job_queue import JobQueue
from gpuwatch.engine.job_runner import JobRunner
from gpuwatch.engine.job_threads import JobThreads
from gpuwatch.errors import SettingsError
from gpuwatch.remote import runner_script
from gpuwatch.remote.job_folder import JobFolder
from gpuwatch.remote.rclone import Rclone
from gpuwatch.remote.ssh import OpenSshShells
from gpuwatch.storage.checklists import SqlChecklistRepository

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.bootstrap import TimeSource
    from gpuwatch.domain.jobs.job import Job
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.ports import Launcher, LaunchRepository
    from gpuwatch.ports.jobs import JobQueueStore, JobStore
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database

WORKERS = 16  # concurrent rounds: a hanging machine occupies one of them until its timeout
COPIES = 8  # concurrent copies to stores


def jobs_folder(settings: Settings) -> Path:
    """Where logs, pending results and checkpoints of jobs are stored: next to the database or in the state folder."""
    from gpuwatch.settings.secrets import state_folder
    from gpuwatch.storage.database import sqlite_path

    database = sqlite_path(settings.database_url)
    folder = state_folder(os.environ) if database is None else Path(database).parent
    return folder / "jobs-data"


def job_shells(settings: Settings) -> OpenSshShells:
    """The shells on instances of jobs, with their key pairs."""
    return OpenSshShells(jobs_folder(settings) / "ssh")


def least_billing_h(settings: Settings) -> float:
    """Minimum billed hours of an instance, at any provider."""
    return min((one.commission.min_billing_s for one in settings.providers.values()), default=0.0) / 3600


def build_job_queue(
    settings: Settings,
    jobs: JobQueueStore,
    launches: LaunchRepository,
    best_usd_gpu_hour: Callable[[str], float | None],
) -> JobQueue:
    """The job queue of the daemon. `best_usd_gpu_hour`: the lowest price last seen by a watch, by its name."""

    def price_of(job: Job) -> float | None:
        return best_usd_gpu_hour(WATCH_PREFIX + job.name)

    return JobQueue(jobs, launches, price_of=price_of, min_billing_h=least_billing_h(settings))


def build_job_runner(  # noqa: PLR0913, PLR0917 a helper of the composition root
    settings: Settings,
    store: Database,
    jobs: JobStore,
    launches: LaunchRepository,
    launchers: Mapping[str, Launcher],
    time_source: TimeSource,
    shown: Callable[[str], Sequence[Match]],
    with_limit: Callable[[Watch, datetime], Watch],
) -> JobRunner:
    """The job runner of the daemon.

    Args:
        shown: what a watch, by its name, saw last.
        with_limit: a watch with its current limit.
    """
    checklists = SqlChecklistRepository(store)
    parts = JobParts(
        jobs=jobs,
        launches=launches,
        shells=job_shells(settings),
        files=JobFolder(jobs_folder(settings)),
        stores=Rclone(),
        address=InstanceAddresses(launchers, time_source.monotonic),
        variables=job_variables,
        clock=time_source.now,
        bounds=RunBounds(),
        seen=lambda job: shown(WATCH_PREFIX + job.name),
        ticked=lambda job: checklists.items(WATCH_PREFIX + job.name),
        contract_end=ContractEnds(launchers),
        limit_now=lambda watch, now: with_limit(watch, now).max_price_usd_gpu_hour,
        budget=settings.budget,
        zone=settings.timezone,
    )
    return JobRunner(parts, runner_script(), JobThreads(WORKERS), JobThreads(COPIES))


def job_variables(job: Job) -> dict[str, str]:
    """A job's variables with references resolved now; they are never stored.

    Raises:
        SettingsError: a reference cannot be resolved.
    """
    found = dict(job.definition.env)
    faults = []
    for name, reference in job.definition.secret_env.items():
        kind, _, where = reference.partition(":")
        try:
            found[name] = os.environ[where] if kind == "env" else Path(where).expanduser().read_text().rstrip("\n")
        except KeyError:
            faults.append(
                f"job {job.name}: env.{name}: {where} is not set in the environment of gpuwatch; set it there"
            )
        except OSError as error:
            faults.append(f"job {job.name}: env.{name}: {where}: {error.strerror}")
    if faults:
        raise SettingsError(faults)
    return found
