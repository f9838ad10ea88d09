"""What a job file, `jobs/NAME.toml`, says: each key is declared once, on the field that holds it. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec

from gpuwatch.domain.jobs.job_values import (
    WITH_GPU,
    CheckpointSpec,
    Command,
    Cron,
    JobEnvValue,
    JobFiles,
    JobFilesList,
    JobLimit,
    JobName,
    JobResults,
    Pilot,
    PrepareResources,
    Resources,
    ResultFiles,
    WorkPaths,
)
from gpuwatch.domain.launches.life.owner_decisions import PILOT_ITEMS
from gpuwatch.domain.market.offer import NO_GPU
from gpuwatch.domain.setup.fields import (
    Line,
    Reference,
    Span,
    SpanFrom1s,
    Spec,
    Switch,
    Text,
    Whole,
    Words,
    about,
)
from gpuwatch.domain.setup.store_addresses import EXPECTED_STORE, is_remote, is_store
from gpuwatch.domain.watches.launch_spec import EnvName, JobRelocate, LaunchSpec
from gpuwatch.domain.watches.owner_names import Purpose
from gpuwatch.domain.watches.watch import HIGHEST_USD, Action, Watch
from gpuwatch.domain.watches.watch_fields import Deadline, GroupName, WatchedGpus, Windows
from gpuwatch.domain.watches.watch_job_schema import Figures

DEFAULT_IMAGE = "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"
# Keys of a watch that describe an offer. The queue sets the others.
RESOURCE_KEYS = (
    *("gpu", "gpu_count", "providers", "spot", "cpu_arch", "disk_gb", "download_gb", "upload_gb", "min_vram_gib"),
    *(
        "min_reliability",
        "min_reputation",
        "verified",
        "datacenter",
        "regions",
        "min_cuda",
        "min_driver",
        "min_download_mbps",
    ),
    *("min_upload_mbps", "min_disk_gb", "min_vcpu", "min_ram_gib", "min_ports", "min_dlperf", "nvlink", "static_ip"),
    *("spot_for", "available_for", "when", "any"),
)
GROUP_KEYS = ("active", "require")  # keys of a job itself that it inherits from its group, besides those above


class JobStage(StrEnum):
    """The steps of a job with `[prepare]`; other programs read these names."""

    PREPARE = "prepare"
    MAIN = "main"


Environment = Annotated[
    dict[EnvName, JobEnvValue],
    about('Environment variables: text, { from_env = "NAME" } or { from_file = "path" } (for secrets).', repr=False),
]
_WITHOUT_GPU = Watch(
    name="job", gpu=(NO_GPU,), gpu_names=(NO_GPU,), gpu_count_min=0, gpu_count_max=0,
    max_price_usd_gpu_hour=HIGHEST_USD,
)  # fmt: skip


class PrepareKeys:
    """Keys of `[prepare]` that `PrepareSpec` holds by other fields."""

    env: Environment = {}  # noqa: RUF012 never changed
    gpu: Annotated[WatchedGpus | None, about('GPU of its machine, as in a watch. Default: "none", no GPU.')] = None
    resources: Annotated[PrepareResources | None, about("Other conditions on its offers, as in a watch.")] = None


class PrepareSpec(Spec, frozen=True, kw_only=True, gc=False):
    """`[prepare]`: work on a machine of its own, before the machine of the job is rented."""

    Keys = PrepareKeys

    image: Annotated[Line | None, about("Container image. Default: that of the job.")] = None
    setup: Annotated[Text | None, about("Shell lines that prepare the instance, before the command.")] = None
    command: Annotated[Command, about("Command to run; exit code 0 means success.")] = ""
    script: Annotated[
        Text | None, about("Script to run instead of a command: its text, or a path relative to this file.")
    ] = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    secret_env: dict[str, str] = msgspec.field(default_factory=dict)
    inputs: Annotated[JobFilesList, about("Files copied to its instance before its command runs.")] = ()
    outputs: Annotated[
        WorkPaths, about("What the job gets, at the same paths: globs below the work folder on the instance.")
    ] = ()
    resources: Watch
    limit: Annotated[
        JobLimit | None, about("Maximum cost of this step. Default: that of the job, whose max_usd covers both.")
    ] = None
    hours: Annotated[Figures | None, about('Estimated hours of work: 2, or "1-3".')] = None
    max_runtime_s: Annotated[
        SpanFrom1s | None, about("Runtime after which its instance is destroyed. Default: from limit and hours.")
    ] = None

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """Its offers, its variables by their kind, and where inputs without a target go."""
        return {**_work(table), "resources": table.resources or _WITHOUT_GPU}


class JobKeys:
    """Keys of a job file that `JobDefinition` holds by other fields."""

    image: Annotated[Line, about("Container image.")] = DEFAULT_IMAGE
    env: Environment = {}  # noqa: RUF012 never changed
    resources: Annotated[Resources, about("Offers the job can use, as in a watch.")]
    deadline: Annotated[
        Deadline | None,
        about("Time by which it must be done: a duration from submission, or a time with zone."),
    ] = None
    within: Annotated[
        SpanFrom1s | None,
        about("With schedule: each run must be done this long after its time; a time that is longer past is missed."),
    ] = None
    require: Annotated[Words, about("Checklist items required before it rents (gpuwatch watches checklist tick).")] = ()
    action: Annotated[Literal["launch", "ask"], about('"ask": each offer needs your approval.')] = "launch"
    group: Annotated[
        GroupName | None,
        about("Group of the settings: the job inherits its keys about offers, active and require."),
    ] = None


class JobDefinition(Spec, frozen=True, kw_only=True, gc=False):
    """One `jobs/NAME.toml`. Secrets are references: they are read when a run starts and stored nowhere."""

    Keys = JobKeys

    name: Annotated[JobName, about("Job name, unique among open jobs.")]
    setup: Annotated[Text | None, about("Shell lines that prepare the instance, before the command.")] = None
    command: Annotated[Command, about("Command to run; exit code 0 means success.")] = ""
    script: Annotated[
        Text | None, about("Script to run instead of a command: its text, or a path relative to this file.")
    ] = None
    env: dict[str, str] = msgspec.field(default_factory=dict)  # variables whose values are in the file
    secret_env: dict[str, str] = msgspec.field(default_factory=dict)  # variable → `env:NAME` or `file:PATH`
    inputs: Annotated[JobFilesList, about("Files copied to the instance before the command runs.")] = ()
    results: Annotated[JobResults, about("Files fetched after the command: globs with destinations.")] = ()
    checkpoint: Annotated[CheckpointSpec | None, about("Checkpoints to fetch, keep and resume from.")] = None
    pilot: Annotated[Pilot | None, about('Small run before the job: a share of the work, "1%", or "10m".')] = None
    resources: Watch  # the offers, as in a watch of the job's name; the queue sets its price
    nodes: Annotated[
        Whole,
        about(
            "Number of machines. More than one requires dstack ([orchestrator]) or gpuwatch jobs handover.",
            ge=1,
            le=1000,
        ),
    ] = 1
    limit: Annotated[JobLimit, about("Maximum cost.")]
    hours: Annotated[Figures | None, about('Estimated hours of work: 20, or "18-30".')] = None
    max_runtime_s: Annotated[
        SpanFrom1s | None,
        about("Runtime after which an instance is destroyed. Default: from limit and hours."),
    ] = None
    deadline_s: float | None = None  # after submission, or each time of its schedule; else `deadline_at`
    deadline_at: datetime | None = None
    schedule: Annotated[
        Cron | None,
        about(
            'Start it again and again, at times as in cron, in the configured zone: "0 2 * * 6" is Saturdays at 02:00.'
        ),
    ] = None
    catch_up: Annotated[Switch, about("With schedule: whether one run makes up for times that were missed.")] = False
    active: Annotated[Windows, about("Local time windows in which it may start. Default: always.")] = ()
    priority: Annotated[Whole, about("Higher values run first.", ge=-1000, le=1000)] = 0
    retries: Annotated[Whole, about("Number of retries after a lost instance.", ge=0, le=100)] = 2
    depends_on: Annotated[Words, about("Jobs that must be done first.")] = ()
    share_instance: Annotated[Switch, about("Whether it may run on an instance that another job no longer needs.")] = (
        True
    )
    relocate: Annotated[
        JobRelocate | None,
        about('A cheaper machine while it runs: "alert" reports it, "move" continues there. Default: neither.'),
    ] = None
    keep_on_failure_s: Annotated[Span, about("How long to keep the instance after a failed command (default 0s).")] = (
        0.0
    )
    plan: Annotated[
        dict[str, Any] | None,
        about("Figures for gpuwatch plan job (--keys lists them); with them, the speed of a pilot becomes a row."),
    ] = None
    prepare: Annotated[
        PrepareSpec | None,
        WITH_GPU,
        about("A step before, on another machine, by default one without GPUs; the job begins with its results."),
    ] = None
    folder: str = "."  # the base of relative paths: the folder of the job file
    group: str | None = None  # the name of the array that the job belongs to; its group is that of `resources`
    then: JobDefinition | None = None  # in its step before: what follows, as in the file
    prepared_run: int | None = None  # the run whose results it begins with

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """The job's watch, its deadline, its variables by their kind, and where files without a target go."""
        work = _work(table)
        for one in table.results:
            _check_address(one.target, is_store_like="://" in one.target)
        if table.name in table.depends_on:
            raise ValueError("depends_on: a job cannot depend on itself")
        _check_schedule(table)
        _check_relocate(table)
        if table.prepare is not None and table.nodes > 1:
            raise ValueError("prepare: expected only with nodes = 1; several machines take no files from gpuwatch")
        deadline = table.deadline if table.schedule is None else table.within
        is_span = isinstance(deadline, float)
        return {
            **work,
            "results": tuple(_with_target(one, f"results/{table.name}") for one in table.results),
            "resources": _watch(table),
            "deadline_s": deadline if is_span else None,
            "deadline_at": None if is_span else deadline,
            "folder": ".",
            "group": None,
            "then": None,
            "prepared_run": None,
        }

    @property
    def whole(self) -> JobDefinition:
        """The job as in its file, whichever step it is in."""
        return self.then or self

    @property
    def stage(self) -> JobStage | None:
        """Which step of a job with `[prepare]` this is; None: it has one step only."""
        if self.then is not None:
            return JobStage.PREPARE
        return None if self.prepare is None else JobStage.MAIN


def steps_of(definition: JobDefinition) -> tuple[JobDefinition, ...]:
    """What is left of a job, in order: each step as a definition of its own."""
    if definition.then is not None:
        return definition, definition.then
    if definition.prepare is None or definition.prepared_run is not None:
        return (definition,)
    return _prepare_step(definition, definition.prepare), definition


def _prepare_step(job: JobDefinition, spec: PrepareSpec) -> JobDefinition:
    """The step before, as a job of the same name and deadline. It may spend what the job may spend in all."""
    limit = spec.limit or job.limit
    limits = [one for one in (limit.max_usd, job.limit.max_usd) if one is not None]
    watch = job.resources
    image = spec.image or (watch.launch.image if watch.launch else DEFAULT_IMAGE)
    return msgspec.structs.replace(
        job,
        setup=spec.setup,
        command=spec.command,
        script=spec.script,
        env=spec.env,
        secret_env=spec.secret_env,
        inputs=spec.inputs,
        results=tuple(ResultFiles(source=path) for path in spec.outputs),
        checkpoint=None,
        pilot=None,
        resources=msgspec.structs.replace(
            spec.resources,
            name=watch.name,
            group=watch.group,
            action=watch.action,
            active=watch.active,
            require=tuple(item for item in watch.require if job.pilot is None or item not in PILOT_ITEMS),
            max_price_usd_gpu_hour=HIGHEST_USD,
            unlimited=False,
            launch=LaunchSpec(image=image, max_active=1, max_total=0),
            repeat_every_s=None,
        ),
        limit=msgspec.structs.replace(limit, max_usd=min(limits, default=None)),
        hours=spec.hours,
        max_runtime_s=spec.max_runtime_s,
        share_instance=False,
        relocate=None,
        prepare=None,
        then=job,
    )


def after_preparation(definition: JobDefinition, run_number: int) -> JobDefinition:
    """The job itself, which begins with the results of that run."""
    return msgspec.structs.replace(definition.whole, prepared_run=run_number)


def _work(table: Any) -> dict[str, Any]:
    """Its variables by their kind, and where inputs without a target go.

    Raises:
        ValueError: it has no command, or two; or an address is invalid.
    """
    if ("command" in table.model_fields_set) == (table.script is not None):
        raise ValueError("expected either command or script")
    for one in table.inputs:
        _check_address(one.source)
    return {
        "env": {name: one for name, one in table.env.items() if isinstance(one, str)},
        "secret_env": {name: _reference(one) for name, one in table.env.items() if isinstance(one, Reference)},
        "inputs": tuple(_with_target(one, ".") for one in table.inputs),
    }


def _check_address(address: str, *, is_store_like: bool = False) -> None:
    if (is_store_like or is_remote(address)) and not is_store(address):
        raise ValueError(f"{address!r}: {EXPECTED_STORE}")


def _check_schedule(table: Any) -> None:
    """Raises ValueError: keys of a schedule without one, or keys that contradict it."""
    if table.schedule is None:
        if table.within is not None or table.catch_up:
            raise ValueError('within and catch_up: expected only with schedule, such as schedule = "0 2 * * 6"')
        return
    if table.within is None:
        raise ValueError('schedule: expected within, the time in which each run must be done, such as within = "6h"')
    if table.deadline is not None:
        raise ValueError("deadline: not with schedule; within gives each run its deadline")


def _check_relocate(table: Any) -> None:
    """Raises ValueError: it could not continue elsewhere by itself."""
    if table.relocate is not None and table.nodes > 1:
        raise ValueError("relocate: expected only with nodes = 1; gpuwatch does not compare several machines")
    if table.relocate is None or table.relocate.action == "alert":
        return
    if table.checkpoint is None:
        raise ValueError('relocate = "move" needs checkpoint, or the work would begin anew; or use relocate = "alert"')
    if table.action == "ask":
        raise ValueError('relocate = "move" needs action = "launch": it would end a machine and wait for your approval')


def _with_target(files: JobFiles, target: str) -> JobFiles:
    return msgspec.structs.replace(files, target=files.target or target)


def _watch(table: Any) -> Watch:
    """The watch of the job, whose price the queue sets."""
    resources: Watch = table.resources
    return msgspec.structs.replace(
        resources,
        name=Purpose.of_job(table.name).watch,
        max_price_usd_gpu_hour=HIGHEST_USD,
        unlimited=False,
        action=Action(table.action),
        active=table.active,
        require=table.require,
        group=table.group,
        launch=LaunchSpec(image=table.image, max_active=1, max_total=0),
        repeat_every_s=None,
    )


def _reference(one: Reference) -> str:
    return f"env:{one.from_env}" if one.from_env else f"file:{one.from_file}"
