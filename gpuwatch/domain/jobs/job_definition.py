"""What a job file, `jobs/NAME.toml`, says: each key is declared once, on the field that holds it. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema

from gpuwatch.domain.jobs.run_status import is_safe_path
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.setup.cron import parse_cron
from gpuwatch.domain.setup.durations import parse_duration
from gpuwatch.domain.setup.fields import (
    Key,
    Line,
    Reference,
    Span,
    SpanFrom1s,
    Spec,
    Switch,
    Text,
    Usd,
    Whole,
    Words,
    about,
)
from gpuwatch.domain.watches.launch_spec import EnvName, JobRelocate, LaunchSpec, shell_command
from gpuwatch.domain.watches.launch_text import check_value
from gpuwatch.domain.watches.owner_names import Purpose
from gpuwatch.domain.watches.watch import HIGHEST_USD, Action, Watch
from gpuwatch.domain.watches.watch_fields import Deadline, GroupName, Windows
from gpuwatch.domain.watches.watch_job_schema import Figures

DEFAULT_IMAGE = "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_BRACES = re.compile(r"\{[^{}]*,[^{}]*\}")  # {lr} is a value of a sweep
_PERCENT = re.compile(r"([0-9]{1,2}(?:\.[0-9]{1,3})?)\s*%")
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
_REMOTE = re.compile(r"rclone:[A-Za-z0-9_][\w.+@-]{0,63}:[^\x00-\x1f]*")
_BUCKET = re.compile(r"s3://[A-Za-z0-9][A-Za-z0-9.-]{1,62}(/[^\x00-\x1f]*)?")
EXPECTED_STORE = "expected s3://BUCKET/FOLDER or rclone:REMOTE:FOLDER, without keys or options"
Command = Annotated[str, BeforeValidator(shell_command)]


def is_remote(address: str) -> bool:
    """Whether a source or target is an address for the local rclone; it may still be invalid."""
    return address.startswith("rclone:")


def is_store(address: str) -> bool:
    """Whether results or checkpoints can be stored there."""
    return _REMOTE.fullmatch(address) is not None or _BUCKET.fullmatch(address) is not None


def is_job_name(text: str) -> bool:
    """Whether a job may have this name; it is also that of its file."""
    return _NAME.fullmatch(text) is not None


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("expected a name of at most 100 letters, digits, '.', '_' and '-', such as \"qlora-8b\"")
    return value


def _pilot(value: Any) -> Any:
    """ "1%" of the work, or a duration."""
    if isinstance(value, PilotSpec):
        return value
    if not isinstance(value, str):
        raise ValueError('expected a share of the work or a duration in quotes, such as "1%" or "10m"')  # noqa: TRY004
    percent = _PERCENT.fullmatch(value.strip())
    if percent is None:
        return PilotSpec(duration_s=parse_duration(value))
    if not float(percent[1]):
        raise ValueError('expected a share above 0, such as "1%"')
    return PilotSpec(share=float(percent[1]) / 100)


def _one_or_many_files(value: Any) -> Any:
    """`"out/*"` alone, or a list of texts and tables."""
    files = [value] if isinstance(value, (str, dict)) else value
    return [{"source": file} if isinstance(file, str) else file for file in files] if isinstance(files, list) else files


def _env_value(value: Any) -> Any:
    if isinstance(value, Reference):
        return value
    if isinstance(value, str):
        return check_value(value)
    if isinstance(value, bool):
        raise ValueError('expected text in quotes, such as "1"')  # noqa: TRY004 pydantic reports ValueErrors
    if isinstance(value, (int, Decimal)):
        return str(value)
    ((kind, name),) = value.items() if isinstance(value, dict) and len(value) == 1 else (("", None),)
    if kind not in {"from_env", "from_file"} or not isinstance(name, str) or not name.strip():
        raise ValueError('expected text in quotes, { from_env = "NAME" } or { from_file = "/run/secrets/name" }')
    return Reference(**{kind: name})


def _cron(value: str) -> str:
    parse_cron(value)
    return value


def _store(value: Any) -> str:
    if not isinstance(value, str) or not is_store(value):
        raise ValueError(EXPECTED_STORE)
    return value


def _work_path(value: str) -> str:
    """A path that the runner can list: it runs in the work folder and drops every file outside of it."""
    if value.startswith("~") or not is_safe_path(value.rstrip("/")):
        raise ValueError('expected a path below the work folder, in which the command runs, such as "out/*"')
    if "**" in value or "$" in value or _BRACES.search(value):
        raise ValueError(
            'expected a path with * and ? alone, as sh reads them; "out" means the folder with all that is below it'
        )
    return value


JobName = Annotated[str, BeforeValidator(_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})]
Store = Annotated[str, BeforeValidator(_store)]
Cron = Annotated[Line, AfterValidator(_cron), WithJsonSchema({"type": "string", "examples": ["0 2 * * 6", "@daily"]})]
WorkPath = Annotated[Line, AfterValidator(_work_path)]
JobEnvValue = Annotated[str | Reference, PlainValidator(_env_value, json_schema_input_type=str | Reference)]


class PilotSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A small run before the full one: a share of the work, or a time, but not both."""

    share: float | None = None
    duration_s: float | None = None


# `gc=False`, as for `Watch`: thousands of jobs may be queued, none is part of a reference cycle.
class JobFiles(Spec, frozen=True, kw_only=True, gc=False):
    """Files to copy to the instance, or from it: `{ source, target }`."""

    source: Annotated[Line, about("Local path, git URL, s3://, https:// or rclone:.")]
    target: Annotated[Line, about("Destination; for results a local folder, s3:// or rclone:.")] = ""


class ResultFiles(JobFiles, frozen=True, kw_only=True, gc=False):
    """`results = [{ source, target }]`: a glob below the work folder of the instance."""

    source: Annotated[WorkPath, about("Glob below the work folder on the instance.")]


class CheckpointSpec(Spec, frozen=True, kw_only=True, gc=False):
    """`checkpoint = { path, every, resume }`: where checkpoints are, how often they are fetched, how it resumes."""

    path: Annotated[WorkPath, about("Folder below the work folder where the command writes checkpoints.")]
    every_s: Annotated[SpanFrom1s, about("Fetch interval: the most work that can be lost (default 20m).")] = 1_200.0
    keep: Annotated[Whole, about("Checkpoints kept.", ge=1, le=1000)] = 2
    resume: Annotated[Line | None, about("Command that resumes from a checkpoint. Default: the same command.")] = None
    store: Annotated[Store | None, about("Store for copies: s3://BUCKET/FOLDER, rclone:REMOTE:FOLDER.")] = None


class JobLimit(Spec, frozen=True, kw_only=True, gc=False):
    """`limit`: the maximum cost of the job, commission included. At least one key; the strictest applies."""

    max_price_usd_gpu_hour: Annotated[Usd | None, about("USD per GPU-hour, commission included."), Key("max_price")] = (
        None
    )
    max_usd: Annotated[Usd | None, about("USD for the whole job, including all runs.")] = None
    max_usd_hour: Annotated[Usd | None, about("USD per hour for the whole offer.")] = None

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """A limit that is written has a key."""
        if table.max_price is None and table.max_usd is None and table.max_usd_hour is None:
            raise ValueError("expected max_price, max_usd or max_usd_hour")
        return {}


JobFilesList = Annotated[
    tuple[JobFiles, ...],
    BeforeValidator(_one_or_many_files, json_schema_input_type=str | JobFiles | list[str | JobFiles]),
]
JobResults = Annotated[
    tuple[ResultFiles, ...],
    BeforeValidator(_one_or_many_files, json_schema_input_type=str | ResultFiles | list[str | ResultFiles]),
]
Pilot = Annotated[PilotSpec, PlainValidator(_pilot), WithJsonSchema({"type": "string", "examples": ["1%", "10m"]})]


def _resources(values: Any) -> Any:
    """A watch of the job, for every GPU of the catalogue with enough memory if it names none."""
    if not isinstance(values, dict):
        return values
    if "gpu" in values:
        return {"name": "job"} | values
    min_vram_gib = values.get("min_vram_gib")
    if isinstance(min_vram_gib, bool) or not isinstance(min_vram_gib, (int, float, Decimal)):
        raise ValueError("expected gpu, or min_vram_gib to accept any GPU with that memory")  # noqa: TRY004
    gpus = [gpu.name for gpu in catalog().gpus() if (gpu.memory_gib or 0) >= float(min_vram_gib)]
    if not gpus:
        raise ValueError(f"no GPU has {min_vram_gib} GiB; lower min_vram_gib, or raise gpu_count")
    return {"name": "job"} | values | {"gpu": gpus}


Resources = Annotated[Watch, BeforeValidator(_resources)]


class JobKeys:
    """Keys of a job file that `JobDefinition` holds by other fields."""

    image: Annotated[Line, about("Container image.")] = DEFAULT_IMAGE
    env: Annotated[
        dict[EnvName, JobEnvValue],
        about(
            'Environment variables: text, { from_env = "NAME" } or { from_file = "path" } (for secrets).', repr=False
        ),
    ] = {}  # noqa: RUF012 never changed
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
    plan: Annotated[
        dict[str, Any] | None,
        about("Figures for gpuwatch plan job (--keys lists them); the queue does not use them."),
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
    folder: str = "."  # the base of relative paths: the folder of the job file
    group: str | None = None  # the name of the array that the job belongs to; its group is that of `resources`

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """The job's watch, its deadline, its variables by their kind, and where files without a target go."""
        if ("command" in table.model_fields_set) == (table.script is not None):
            raise ValueError("expected either command or script")
        addresses = [one.source for one in table.inputs if is_remote(one.source)]
        addresses += [one.target for one in table.results if is_remote(one.target) or "://" in one.target]
        for address in addresses:
            if not is_store(address):
                raise ValueError(f"{address!r}: {EXPECTED_STORE}")
        if table.name in table.depends_on:
            raise ValueError("depends_on: a job cannot depend on itself")
        _check_schedule(table)
        _check_relocate(table)
        deadline = table.deadline if table.schedule is None else table.within
        is_span = isinstance(deadline, float)
        return {
            "env": {name: one for name, one in table.env.items() if isinstance(one, str)},
            "secret_env": {name: _reference(one) for name, one in table.env.items() if isinstance(one, Reference)},
            "inputs": tuple(_with_target(one, ".") for one in table.inputs),
            "results": tuple(_with_target(one, f"results/{table.name}") for one in table.results),
            "resources": _watch(table),
            "deadline_s": deadline if is_span else None,
            "deadline_at": None if is_span else deadline,
            "folder": ".",
            "group": None,
        }


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
