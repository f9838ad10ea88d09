"""What an owner may write in `[[watch]]`, `[watch.launch]` and `[budget]`, and the plain values that come of it."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextvars import ContextVar
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from gpuwatch.market.gpu_names import catalog, clean_name, fold
from gpuwatch.watches.fields import (
    Line,
    Lines,
    Measure,
    Number,
    Span,
    SpanFrom1s,
    Switch,
    Table,
    Text,
    Usd,
    Whole,
    Words,
    one_or_many,
    seconds,
)
from gpuwatch.watches.watch import Action, Budget, LaunchSpec, SpotPolicy, Watch
from gpuwatch.watches.windows import parse_window

# Spellings that providers use and no catalogue knows; a context, because pydantic-settings passes none to validators.
SEEN: ContextVar[Collection[str]] = ContextVar("SEEN", default=())
MOST_GPUS = 1024  # of one offer; no machine has more


def _window(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError('expected a window in quotes, such as "22:00-08:00"')  # noqa: TRY004
    parse_window(value)
    return value


def _repeat(value: Any) -> Any:
    return value if value == "never" else seconds(value)


def _env(value: Any) -> Any:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise ValueError('expected a table of text, such as { NAME = "value" }')
    for name in value:
        if not name or "=" in name or "\x00" in name:
            raise ValueError("expected names of environment variables")
    return value


def _version(value: Any) -> str:
    if not isinstance(value, str) or not _VERSION.fullmatch(value.strip()):
        raise ValueError('expected a version in quotes, such as "550.54"')
    return value.strip()


_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,5}")
_WINDOW_SCHEMA = {"type": "string", "examples": ["22:00-08:00", "Mon-Fri 09:00-18:00", "Sat-Sun"]}
Window = Annotated[str, BeforeValidator(_window), WithJsonSchema(_WINDOW_SCHEMA)]
Version = Annotated[str, BeforeValidator(_version)]
Fraction = Annotated[Number, Field(ge=0, le=1), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})]


class GpuCount(Table):
    """`{ min = 1, max = 8 }`."""

    min: Whole = Field(default=1, ge=1, le=MOST_GPUS, description="GPUs of one offer, at least.")
    max: Whole = Field(MOST_GPUS, ge=1, le=MOST_GPUS, description="GPUs of one offer, at most.")

    @model_validator(mode="after")
    def _in_order(self) -> GpuCount:
        if self.min > self.max:
            raise ValueError("expected min to be at most max")
        return self


def _gpu_count(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MOST_GPUS:
            raise ValueError(f"expected a number from 1 to {MOST_GPUS}")
        return {"min": value, "max": value}
    if not isinstance(value, (dict, GpuCount)):
        raise ValueError("expected a whole number, or { min = 1, max = 8 }")  # noqa: TRY004
    return value


class LaunchTable(Table):
    """`[watch.launch]`: what to rent, and how long."""

    image: Line = Field(default="vastai/pytorch", description="Container image.")
    onstart: Text | None = Field(default=None, description="Shell commands that run when the instance starts.")
    env: Annotated[dict[str, str], BeforeValidator(_env)] = Field(
        default_factory=dict, description="Environment variables of the instance, as text."
    )
    runtype: Line = Field(default="ssh", description="How the instance is entered, in the provider's words.")
    template: Line | None = Field(default=None, description="A template of the provider, by its hash or id.")
    max_active: Whole = Field(default=1, ge=1, le=1000, description="Instances of this watch alive at once.")
    max_total: Whole = Field(default=1, ge=0, le=1_000_000, description="Instances of this watch in all; 0: no limit.")
    max_runtime: SpanFrom1s | None = Field(
        None, description="Duration; then the instance is destroyed. Needed while dry_run = false."
    )
    ready_within: SpanFrom1s = Field(
        900.0, description="Duration; not running by then: destroyed, and the next offer is tried (default 15m)."
    )
    max_tries: Whole = Field(default=5, ge=1, le=100, description="Offers tried within one firing.")
    quote_ttl: Span = Field(
        default=5.0,
        description="Duration; an answer younger than this needs no second look before the rent (default 5s).",
    )
    idle_below: Annotated[Number, Field(gt=0, le=100)] | None = Field(
        default=None, description="Percent of GPU use; goes with idle_for."
    )
    idle_for: SpanFrom1s | None = Field(None, description="Duration under idle_below; then the instance is destroyed.")

    @model_validator(mode="after")
    def _idle_pair(self) -> LaunchTable:
        if (self.idle_below is None) != (self.idle_for is None):
            raise ValueError("expected idle_below and idle_for together")
        return self

    def value(self) -> LaunchSpec:
        """As the engine uses it."""
        return LaunchSpec(
            image=self.image,
            onstart=self.onstart,
            env=dict(self.env),
            runtype=self.runtype,
            template=self.template,
            max_active=self.max_active,
            max_total=self.max_total,
            max_runtime_s=self.max_runtime,
            ready_within_s=self.ready_within,
            max_tries=self.max_tries,
            quote_ttl_s=self.quote_ttl,
            idle_below=_float(self.idle_below),
            idle_for_s=self.idle_for,
        )


class WatchTable(Table):
    """One `[[watch]]`: which offers, the threshold, when, and what to do."""

    name: Line = Field(description="Its name, once in the file; alerts and the history show it.")
    gpu: Lines = Field(
        description="Family or canonical name, one or several; any spelling a provider uses is understood."
    )
    gpu_count: Annotated[GpuCount, BeforeValidator(_gpu_count, json_schema_input_type=int | GpuCount)] = Field(
        default=GpuCount(min=1, max=1), description="GPUs of one offer: a number, or { min = 1, max = 8 }."
    )
    max_price: Usd = Field(description="USD per GPU-hour, commission included; at or under it fires.")
    action: Literal["alert", "ask", "launch"] = Field(default="alert", description="What to do when it fires.")
    providers: Lines | None = Field(default=None, description="Which providers; default: all that are enabled.")
    spot: Literal["no", "only", "any"] = Field(default="no", description="Interruptible offers.")
    disk_gb: Annotated[Measure, Field(ge=1)] | None = Field(
        None, description="GB of disk to rent; part of the price. Default: what the provider quotes."
    )
    download_gb: Measure = Field(default=Decimal(0), description="GB that one job downloads; its cost is shown apart.")
    upload_gb: Measure = Field(default=Decimal(0), description="GB that one job uploads; its cost is shown apart.")
    min_vram_gib: Measure | None = Field(default=None, description="GiB of memory of one GPU, at least.")
    min_reliability: Fraction | None = Field(default=None, description="Reliability of the host, 0 to 1, at least.")
    verified: Switch | None = Field(default=None, description="true: only hosts that the provider has verified.")
    datacenter: Switch | None = Field(default=None, description="true: only hosts in data centres.")
    regions: Words = Field(
        default=(), description='Country codes, or words found in the region: ["DE", "Norway"]; default: everywhere.'
    )
    min_cuda: Measure | None = Field(default=None, description="CUDA version of the driver, at least: 12.4.")
    min_driver: Version | None = Field(default=None, description='Driver version, at least: "550.54".')
    min_download_mbps: Measure | None = Field(default=None, description="Mbit/s from the internet, at least.")
    min_upload_mbps: Measure | None = Field(default=None, description="Mbit/s to the internet, at least.")
    min_disk_gb: Measure | None = Field(default=None, description="GB free at the host, at least (besides disk_gb).")
    min_vcpu: Measure | None = Field(default=None, description="vCPUs of the offer, at least.")
    min_ram_gib: Measure | None = Field(default=None, description="GiB of main memory of the offer, at least.")
    min_ports: Annotated[Whole, Field(ge=0, le=65535)] | None = Field(default=None, description="Open ports, at least.")
    min_dlperf: Measure | None = Field(default=None, description="The provider's DLPerf score, at least.")
    nvlink: Switch | None = Field(default=None, description="true: only with NVLink.")
    static_ip: Switch | None = Field(default=None, description="true: only with a fixed address.")
    available_for: Span | None = Field(default=None, description="Duration that the host must still stay, at least.")
    hold_for: Span = Field(default=0.0, description="Duration under the threshold before it fires (default 0s).")
    active: Annotated[tuple[Window, ...], BeforeValidator(one_or_many, json_schema_input_type=str | list[str])] = Field(
        default=(), description="Windows of local time in which it may fire; default: always."
    )
    repeat_every: Annotated[
        float | Literal["never"],
        BeforeValidator(_repeat),
        WithJsonSchema({"type": "string", "examples": ["6h", "never"]}),
    ] = Field(default=21_600.0, description='Duration between reminders while it fires, or "never" (default 6h).')
    improve_by: Fraction = Field(default=Decimal("0.05"), description="Fraction cheaper at which it is told again.")
    rearm: Annotated[Number, Field(ge=1, le=10)] = Field(
        default=Decimal(1), description="Ready to fire anew when no offer is under max_price times this, in two polls."
    )
    notify: Lines | None = Field(default=None, description="Channels; default: all that are configured.")
    launch: LaunchTable | None = Field(default=None, description="What to rent; for action launch and ask.")

    @field_validator("gpu")
    @classmethod
    def _gpus(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return check_gpus(value)

    def value(self) -> Watch:
        """As the engine uses it."""
        return Watch(
            name=self.name,
            gpu=self.gpu,
            gpu_names=gpu_names(self.gpu),
            max_price_usd_gpu_hour=self.max_price,
            gpu_count_min=self.gpu_count.min,
            gpu_count_max=self.gpu_count.max,
            action=Action(self.action),
            providers=self.providers,
            spot=SpotPolicy(self.spot),
            disk_gb=_float(self.disk_gb),
            download_gb=float(self.download_gb),
            upload_gb=float(self.upload_gb),
            min_vram_gib=_float(self.min_vram_gib),
            min_reliability=_float(self.min_reliability),
            verified=self.verified,
            datacenter=self.datacenter,
            regions=self.regions,
            min_cuda=_float(self.min_cuda),
            min_driver=self.min_driver,
            min_download_mbps=_float(self.min_download_mbps),
            min_upload_mbps=_float(self.min_upload_mbps),
            min_disk_gb=_float(self.min_disk_gb),
            min_vcpu=_float(self.min_vcpu),
            min_ram_gib=_float(self.min_ram_gib),
            min_ports=self.min_ports,
            min_dlperf=_float(self.min_dlperf),
            nvlink=self.nvlink,
            static_ip=self.static_ip,
            available_for_s=self.available_for,
            hold_for_s=self.hold_for,
            active=self.active,
            repeat_every_s=None if self.repeat_every == "never" else float(self.repeat_every),
            improve_by=float(self.improve_by),
            rearm=float(self.rearm),
            notify=self.notify,
            launch=self.launch.value() if self.launch else None,
        )


class BudgetTable(Table):
    """`[budget]`: over everything that gpuwatch rents; a launch that would break one is refused, and told."""

    max_usd_hour: Usd | None = Field(default=None, description="USD per hour of all instances together.")
    max_usd_day: Usd | None = Field(default=None, description="USD per day (UTC).")
    max_usd_month: Usd | None = Field(default=None, description="USD per month (UTC).")
    max_instances: Annotated[Whole, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Instances alive at once."
    )

    def value(self) -> Budget:
        """As the engine uses it."""
        return Budget(
            max_usd_hour=self.max_usd_hour,
            max_usd_day=self.max_usd_day,
            max_usd_month=self.max_usd_month,
            max_instances=self.max_instances,
        )


def gpu_names(wanted: Collection[str]) -> tuple[str, ...]:
    """Canonical names that an owner's texts stand for; a spelling of `SEEN` stands for itself.

    Raises:
        ValueError: nobody has ever spelled a GPU so; the message says what may have been meant.
    """
    seen = {fold(spelling): clean_name(spelling) for spelling in SEEN.get()}
    names: dict[str, None] = {}
    for text in wanted:
        found = catalog().wanted(text) or ((seen[fold(text)],) if fold(text) in seen else ())
        if not found:
            raise ValueError(_unknown_gpu(text))
        names.update(dict.fromkeys(found))
    return tuple(names)


def check_gpus(wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The texts themselves, if each stands for a GPU. Raises ValueError."""
    gpu_names(wanted)
    return wanted


def _unknown_gpu(text: str) -> str:
    near = catalog().suggest(text)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"nobody knows a GPU {clean_name(text)!r}{hint}"


def _float(value: Decimal | None) -> float | None:
    return None if value is None else float(value)
