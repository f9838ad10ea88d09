"""The schema of `jobs/NAME.toml`, and its conversion to plain values."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from gpuwatch.domain.jobs.checkpoints import EXPECTED, is_remote, is_store
from gpuwatch.domain.jobs.job import CheckpointSpec, JobDefinition, JobFiles, JobLimit, PilotSpec
from gpuwatch.domain.jobs.run_status import is_safe_path
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.setup.durations import parse_duration
from gpuwatch.domain.setup.fields import (
    Line,
    Reference,
    Span,
    SpanFrom1s,
    SpecTable,
    Switch,
    Table,
    Text,
    Usd,
    Whole,
    Words,
)
from gpuwatch.domain.watches.launch_spec import EnvName, LaunchSpec, shell_command
from gpuwatch.domain.watches.launch_text import check_value
from gpuwatch.domain.watches.watch import HIGHEST_USD, Action, Purpose, Watch
from gpuwatch.domain.watches.watch_fields import Deadline, Windows
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
    *("available_for", "when", "any"),
)
Command = Annotated[str, BeforeValidator(shell_command)]


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


def _store(value: Any) -> str:
    if not isinstance(value, str) or not is_store(value):
        raise ValueError(EXPECTED)
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
Pilot = Annotated[PilotSpec, PlainValidator(_pilot), WithJsonSchema({"type": "string", "examples": ["1%", "10m"]})]
Store = Annotated[str, BeforeValidator(_store)]
WorkPath = Annotated[Line, AfterValidator(_work_path)]
JobEnvValue = Annotated[str | Reference, PlainValidator(_env_value, json_schema_input_type=str | Reference)]


class FilesTable(SpecTable):
    """Files to copy to the instance: `{ source, target }`."""

    source: Line = Field(description="Local path, git URL, s3://, https:// or rclone:.")
    target: Line | None = Field(default=None, description="Destination; for results a local folder, s3:// or rclone:.")


class ResultTable(FilesTable):
    """`results = [{ source, target }]`: a glob below the work folder of the instance."""

    source: WorkPath = Field(description="Glob below the work folder on the instance.")


JobFilesList = Annotated[
    tuple[FilesTable, ...],
    BeforeValidator(_one_or_many_files, json_schema_input_type=str | FilesTable | list[str | FilesTable]),
]
JobResults = Annotated[
    tuple[ResultTable, ...],
    BeforeValidator(_one_or_many_files, json_schema_input_type=str | ResultTable | list[str | ResultTable]),
]


class CheckpointTable(SpecTable):
    """`checkpoint = { path, every, resume }`."""

    path: WorkPath = Field(description="Folder below the work folder where the command writes checkpoints.")
    every: SpanFrom1s = Field(
        default=1200.0, description="Fetch interval: the most work that can be lost (default 20m)."
    )
    keep: Whole = Field(default=2, ge=1, le=1000, description="Checkpoints kept.")
    resume: Line | None = Field(
        default=None, description="Command that resumes from a checkpoint. Default: the same command."
    )
    store: Store | None = Field(default=None, description="Store for copies: s3://BUCKET/FOLDER, rclone:REMOTE:FOLDER.")

    def value(self) -> CheckpointSpec:
        """Return the value that the engine uses."""
        return CheckpointSpec(path=self.path, every_s=self.every, keep=self.keep, resume=self.resume, store=self.store)


class LimitTable(SpecTable):
    """`limit`: the maximum cost of the job. At least one key; the strictest applies."""

    max_price: Usd | None = Field(default=None, description="USD per GPU-hour, commission included.")
    max_usd: Usd | None = Field(default=None, description="USD for the whole job, including all runs.")
    max_usd_hour: Usd | None = Field(default=None, description="USD per hour for the whole offer.")

    @model_validator(mode="after")
    def _is_set(self) -> LimitTable:
        if self.max_price is None and self.max_usd is None and self.max_usd_hour is None:
            raise ValueError("expected max_price, max_usd or max_usd_hour")
        return self

    def value(self) -> JobLimit:
        """Return the value that the engine uses."""
        return JobLimit(max_price_usd_gpu_hour=self.max_price, max_usd=self.max_usd, max_usd_hour=self.max_usd_hour)


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


class JobFileTable(Table):
    """One `jobs/NAME.toml`."""

    name: JobName = Field(description="Job name, unique among open jobs.")
    image: Line = Field(default=DEFAULT_IMAGE, description="Container image.")
    setup: Text | None = Field(default=None, description="Shell lines that prepare the instance, before the command.")
    command: Command | None = Field(default=None, description="Command to run; exit code 0 means success.")
    script: Text | None = Field(
        default=None, description="Script to run instead of a command: its text, or a path relative to this file."
    )
    env: dict[EnvName, JobEnvValue] = Field(
        default_factory=dict,
        repr=False,
        description='Environment variables: text, { from_env = "NAME" } or { from_file = "path" } (for secrets).',
    )
    inputs: JobFilesList = Field(default=(), description="Files copied to the instance before the command runs.")
    results: JobResults = Field(default=(), description="Files fetched after the command: globs with destinations.")
    checkpoint: CheckpointTable | None = Field(default=None, description="Checkpoints to fetch, keep and resume from.")
    pilot: Pilot | None = Field(
        default=None, description='Small run before the job: a share of the work, "1%", or "10m".'
    )
    resources: Resources = Field(description="Offers the job can use, as in a watch.")
    nodes: Whole = Field(
        default=1,
        ge=1,
        le=1000,
        description="Number of machines. More than one requires dstack ([orchestrator]) or gpuwatch job handover.",
    )
    limit: LimitTable = Field(description="Maximum cost.")
    hours: Figures | None = Field(default=None, description='Estimated hours of work: 20, or "18-30".')
    max_runtime: SpanFrom1s | None = Field(
        default=None, description="Runtime after which an instance is destroyed. Default: from limit and hours."
    )
    deadline: Deadline | None = Field(
        default=None, description="Time by which it must be done: a duration from submission, or a time with zone."
    )
    active: Windows = Field(default=(), description="Local time windows in which it may start. Default: always.")
    priority: Whole = Field(default=0, ge=-1000, le=1000, description="Higher values run first.")
    retries: Whole = Field(default=2, ge=0, le=100, description="Number of retries after a lost instance.")
    depends_on: Words = Field(default=(), description="Jobs that must be done first.")
    require: Words = Field(
        default=(), description="Checklist items required before it rents (gpuwatch checklist tick)."
    )
    action: Literal["launch", "ask"] = Field(default="launch", description='"ask": each offer needs your approval.')
    plan: dict[str, Any] | None = Field(
        default=None, description="Figures for gpuwatch plan job (--keys lists them); the queue does not use them."
    )
    share_instance: Switch = Field(
        default=True, description="Whether it may run on an instance that another job no longer needs."
    )
    keep_on_failure: Span = Field(
        default=0.0, description="How long to keep the instance after a failed command (default 0s)."
    )

    @model_validator(mode="after")
    def _has_work(self) -> JobFileTable:
        if (self.command is None) == (self.script is None):
            raise ValueError("expected either command or script")
        sources = [one.source for one in self.inputs if is_remote(one.source)]
        targets = [
            result.target
            for result in self.results
            if result.target and (is_remote(result.target) or "://" in result.target)
        ]
        for address in [*sources, *targets]:
            if not is_store(address):
                raise ValueError(f"{address!r}: {EXPECTED}")
        if self.name in self.depends_on:
            raise ValueError("depends_on: a job cannot depend on itself")
        return self

    def value(self, script: str | None, folder: str) -> JobDefinition:
        """Return the plain value.

        Args:
            script: the text of the script; None if there is a command.
            folder: base of relative paths.
        """
        env = {name: one for name, one in self.env.items() if isinstance(one, str)}
        secret_env = {name: _reference(one) for name, one in self.env.items() if isinstance(one, Reference)}
        return JobDefinition(
            name=self.name,
            command=self.command or "",
            script=script,
            setup=self.setup,
            env=env,
            secret_env=secret_env,
            inputs=tuple(JobFiles(source=one.source, target=one.target or ".") for one in self.inputs),
            results=tuple(
                JobFiles(source=result.source, target=result.target or f"results/{self.name}")
                for result in self.results
            ),
            checkpoint=self.checkpoint.value() if self.checkpoint else None,
            pilot=self.pilot,
            resources=self._watch(),
            nodes=self.nodes,
            limit=self.limit.value(),
            hours=self.hours,
            deadline_s=self.deadline if isinstance(self.deadline, float) else None,
            deadline_at=None if isinstance(self.deadline, float) else self.deadline,
            active=self.active,
            priority=self.priority,
            retries=self.retries,
            depends_on=self.depends_on,
            max_runtime_s=self.max_runtime,
            keep_on_failure_s=self.keep_on_failure,
            share_instance=self.share_instance,
            folder=folder,
        )

    def _watch(self) -> Watch:
        return msgspec.structs.replace(
            self.resources,
            name=Purpose.of_job(self.name).watch,
            max_price_usd_gpu_hour=HIGHEST_USD,
            unlimited=False,
            action=Action(self.action),
            active=self.active,
            require=self.require,
            launch=LaunchSpec(image=self.image, max_active=1, max_total=0),
            repeat_every_s=None,
        )


def _reference(one: Reference) -> str:
    return f"env:{one.from_env}" if one.from_env else f"file:{one.from_file}"
