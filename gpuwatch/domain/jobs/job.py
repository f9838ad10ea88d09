"""A job, its runs and its events, as they are stored; `job_states` says what follows from what."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec

from gpuwatch.domain.planning.figures import FigureRange
from gpuwatch.domain.watches.watch import Watch


class JobState(StrEnum):
    """Where a job is; other programs read these names."""

    QUEUED = "queued"
    RENTING = "renting"  # a launch is made for it
    PREPARING = "preparing"  # the instance runs; inputs are brought there
    RUNNING = "running"
    FETCHING = "fetching"  # it has ended, and its results are brought back
    DONE = "done"
    PAUSED = "paused"  # the owner holds it, or it asks the owner something
    PREEMPTED = "preempted"  # its instance is lost; it continues elsewhere
    FAILED = "failed"
    CANCELLED = "cancelled"


OVER = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})
ON_AN_INSTANCE = frozenset({JobState.PREPARING, JobState.RUNNING, JobState.FETCHING})


# `gc=False`, as of a `Watch`: thousands of jobs may wait, none is part of a circle, and each collection of garbage
# would go through all of them
class JobFiles(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Files that are brought from `source` to `target`. Inputs go to the instance, results come from it."""

    source: str  # inputs: a local path, git URL, s3://, https:// or rclone:; results: a glob on the instance
    target: str  # of results: a folder here, or a store


class CheckpointSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where the command writes its checkpoints, how often they are fetched, and how it resumes."""

    path: str
    every_s: float = 1_200.0
    keep: int = 2
    resume: str | None = None  # the command that resumes; None: the same one
    store: str | None = None  # where copies of those that were fetched go; None: they stay here


class PilotSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A small run before the whole one: a share of the work, or a time. One of the two."""

    share: float | None = None
    duration_s: float | None = None


class JobLimit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a job may cost, commission included; None: no such limit."""

    max_price_usd_gpu_hour: Decimal | None = None
    max_usd: Decimal | None = None  # over all runs
    max_usd_hour: Decimal | None = None


class JobDefinition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What `jobs/NAME.toml` says. Secrets are references: they are read when a run starts, and stored nowhere.

    Attributes:
        command: what runs on the instance; empty with a script.
        script: the text of the script; None with a command.
        env: variables whose text stands in the file.
        secret_env: variable → `env:NAME` or `file:PATH`, where its text is read.
        resources: which offers, as a watch of the job's name; its price is set by the queue.
        hours: of work, as estimated; None: not stated.
        deadline_s: after its submission; or `deadline_at`.
        max_runtime_s: of one run; None: see `job_watch`.
        keep_on_failure_s: how long the instance stays after a failed command.
        folder: where relative paths start: that of the job file.
        group: the name of the array that it is one job of.
        share_instance: whether it may run on an instance that another job is done with.
    """

    name: str
    command: str = ""
    script: str | None = None
    setup: str | None = None
    env: dict[str, str] = {}
    secret_env: dict[str, str] = {}
    inputs: tuple[JobFiles, ...] = ()
    results: tuple[JobFiles, ...] = ()
    checkpoint: CheckpointSpec | None = None
    pilot: PilotSpec | None = None
    resources: Watch
    nodes: int = 1  # machines like this; more than one is an orchestrator's
    limit: JobLimit
    hours: FigureRange | None = None
    deadline_s: float | None = None
    deadline_at: datetime | None = None
    active: tuple[str, ...] = ()
    priority: int = 0
    retries: int = 2
    depends_on: tuple[str, ...] = ()
    max_runtime_s: float | None = None
    keep_on_failure_s: float = 0.0
    folder: str = "."
    group: str | None = None
    share_instance: bool = True


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One job as it is stored. `version` rises with every change; `run_number` is the fencing number of its runs."""

    job_id: str
    name: str
    definition: JobDefinition
    state: JobState
    priority: int
    submitted_at: datetime
    deadline: datetime | None = None
    started_at: datetime | None = None  # of the first run's command
    ended_at: datetime | None = None
    exit_code: int | None = None
    launch_id: str | None = None  # the newest
    progress: float | None = None  # 0 to 1; None: not known
    predicted_microusd: int | None = None
    spent_microusd: int = 0
    reason: str | None = None  # why it is where it is, one line
    run_number: int = 0
    retries_left: int = 0
    version: int = 0

    @property
    def is_over(self) -> bool:
        """Return whether nothing more happens to it unless the owner retries it."""
        return self.state in OVER


class JobRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of a job on one instance. `step` is the executor's own mark of how far it came.

    Attributes:
        held_from: when another job, which was done, gave it the instance; None: the instance was rented for this run.
        held_until: when it gave the instance to another job; None: it has it to the end.
    """

    job_id: str
    run_number: int
    launch_id: str
    step: str = "new"
    ssh_host: str | None = None
    ssh_port: int | None = None
    ssh_user: str | None = None
    host_key: str | None = None
    started_at: datetime | None = None
    lease_until: datetime | None = None  # the runner stops itself when nobody renewed it by then
    last_seen_at: datetime | None = None
    exit_code: int | None = None
    checkpoint: str | None = None  # the newest whole one that was fetched and verified
    results: tuple[dict[str, Any], ...] = ()  # what was fetched: path, bytes, sha256
    ended_at: datetime | None = None
    end_reason: str | None = None
    held_from: datetime | None = None
    held_until: datetime | None = None


class JobEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What happened to a job, with what is known of it."""

    job_id: str
    run_number: int
    at: datetime
    kind: str  # a transition is named by the state it leads to
    detail: dict[str, Any] = {}
