"""The values of the keys of a job file: names, files, variables, checkpoints, limits, offers. Pure."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema

from gpuwatch.domain.jobs.run_status import is_safe_path
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import NO_GPU
from gpuwatch.domain.setup.cron import parse_cron
from gpuwatch.domain.setup.durations import parse_duration
from gpuwatch.domain.setup.fields import (
    Key,
    Line,
    Reference,
    SpanFrom1s,
    Spec,
    Usd,
    Whole,
    about,
    one_or_many,
)
from gpuwatch.domain.setup.store_addresses import Store
from gpuwatch.domain.watches.launch_spec import shell_command
from gpuwatch.domain.watches.launch_text import check_value
from gpuwatch.domain.watches.watch import Watch

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_BRACES = re.compile(r"\{[^{}]*,[^{}]*\}")  # {lr} is a value of a sweep
_PERCENT = re.compile(r"([0-9]{1,2}(?:\.[0-9]{1,3})?)\s*%")
Command = Annotated[str, BeforeValidator(shell_command)]


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
Cron = Annotated[Line, AfterValidator(_cron), WithJsonSchema({"type": "string", "examples": ["0 2 * * 6", "@daily"]})]
WorkPath = Annotated[Line, AfterValidator(_work_path)]
WorkPaths = Annotated[tuple[WorkPath, ...], BeforeValidator(one_or_many, json_schema_input_type=str | list[str])]
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

    def share(self, nodes: int) -> JobLimit:
        """The share of one of several machines."""
        total, hourly = (None if usd is None else usd / nodes for usd in (self.max_usd, self.max_usd_hour))
        return msgspec.structs.replace(self, max_usd=total, max_usd_hour=hourly)


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


def _prepare_resources(values: Any) -> Any:
    is_named = not isinstance(values, dict) or "gpu" in values or "min_vram_gib" in values
    return _resources(values if is_named else {"gpu": NO_GPU} | values)


PrepareResources = Annotated[Watch, BeforeValidator(_prepare_resources)]


def _with_gpu(values: Any) -> Any:
    """`gpu` of `[prepare]` is one of the conditions on its offers, which are validated together."""
    resources = values.get("resources", {}) if isinstance(values, dict) else None
    if not isinstance(resources, dict):
        return values
    if "gpu" in resources:
        raise ValueError("expected gpu beside command, not in resources")
    return values | {"resources": {"gpu": values["gpu"]} | resources} if "gpu" in values else values


WITH_GPU = BeforeValidator(_with_gpu)
