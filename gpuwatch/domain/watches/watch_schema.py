"""The schema of `[[watch]]`, and its conversion to plain values."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextvars import ContextVar
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from gpuwatch.domain.market.gpu_names import catalog, clean_name, fold
from gpuwatch.domain.market.places import unknown_country, unknown_place
from gpuwatch.domain.setup.durations import DURATION_PATTERN
from gpuwatch.domain.setup.fields import (
    MAX_USD,
    Line,
    Lines,
    Measure,
    Number,
    Share,
    Span,
    SpanFrom1d,
    SpanFrom1s,
    SpecTable,
    Switch,
    Table,
    UnknownName,
    Usd,
    Whole,
    Words,
    number,
    one_or_many,
    seconds,
)
from gpuwatch.domain.watches.computed_limits import highest_usd_gpu_hour
from gpuwatch.domain.watches.expression import comparisons_of, parse
from gpuwatch.domain.watches.launch_schema import BudgetTable, HandoverTable, LaunchTable, RelocateTable
from gpuwatch.domain.watches.watch import (
    MOST_GPUS,
    Action,
    AutoPrice,
    ChecklistPolicy,
    CpuArch,
    Prefer,
    SpotPolicy,
    Watch,
)
from gpuwatch.domain.watches.watch_job_schema import JobTable
from gpuwatch.domain.watches.windows import WINDOW_PATTERN, parse_window

# Provider spellings that are not in the catalogue; a context variable, because `value()` needs them after validation.
SEEN: ContextVar[Collection[str]] = ContextVar("SEEN", default=())
SEEN_PLACES: ContextVar[Collection[str]] = ContextVar("SEEN_PLACES", default=())  # regions seen at providers

_LOOKS_LIKE_A_TIME = re.compile(r"[0-9]{4}-")
_MAX_PRICE_SCHEMA = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "auto", "type": "string"}]}
_DEADLINE_SCHEMA = {
    "type": "string",
    "pattern": rf"^[0-9]{{4}}-|{DURATION_PATTERN}",
    "examples": ["2d", "2026-12-01T08:00:00Z"],
}
HIGHEST_USD = Decimal(10_000)  # no GPU is that expensive
_LOWEST_USD = Decimal("0.000001")  # no GPU is that cheap: used where no GPU can run the job
_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,5}")
_WINDOW_SCHEMA = {
    "type": "string",
    "pattern": WINDOW_PATTERN,
    "examples": ["22:00-08:00", "Mon-Fri 09:00-18:00", "Sat-Sun"],
}
Fraction = Annotated[Number, Field(ge=0, le=1), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})]


def _window(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError('expected a window in quotes, such as "22:00-08:00"')  # noqa: TRY004
    parse_window(value)
    return value


def _repeat(value: Any) -> Any:
    return value if value == "never" else seconds(value)


def _version(value: Any) -> str:
    if not isinstance(value, str) or not _VERSION.fullmatch(value.strip()):
        raise ValueError('expected a version in quotes, such as "550.54"')
    return value.strip()


def _max_price(value: Any) -> Any:
    if value == "auto":
        return value
    found = number(value)
    if found <= 0:
        raise ValueError("expected a number above 0")
    if found > MAX_USD:
        raise ValueError(f"expected a number of at most {MAX_USD}")
    return found


def _deadline(value: Any) -> float | datetime:
    """A duration, or a time: TOML has a type for times, the environment only text."""
    if isinstance(value, str) and not _LOOKS_LIKE_A_TIME.match(value):
        return seconds(value)
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, datetime) or found.tzinfo is None or not 2000 <= found.year < 2200:
        raise ValueError('expected a duration such as "2d", or a time with its zone such as 2026-12-01T08:00:00Z')
    return found.astimezone(UTC)


Window = Annotated[str, BeforeValidator(_window), WithJsonSchema(_WINDOW_SCHEMA)]
Windows = Annotated[tuple[Window, ...], BeforeValidator(one_or_many, json_schema_input_type=Window | list[Window])]
Deadline = Annotated[float | datetime, BeforeValidator(_deadline), WithJsonSchema(_DEADLINE_SCHEMA)]
Version = Annotated[str, BeforeValidator(_version)]


class GpuCount(Table):
    """`{ min = 1, max = 8 }`."""

    min: Whole = Field(default=1, ge=1, le=MOST_GPUS, description="Minimum number of GPUs in one offer.")
    max: Whole = Field(MOST_GPUS, ge=1, le=MOST_GPUS, description="Maximum number of GPUs in one offer.")

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


def _condition(text: str) -> str:
    for comparison in comparisons_of(parse(text)):
        values = [str(value) for value in comparison.values]
        if comparison.name == "gpu":
            named_gpus(values)
        elif comparison.name == "country" and (fault := next(filter(None, map(unknown_country, values)), None)):
            raise ValueError(fault)
        elif comparison.name == "cpu_arch" and not {value.lower() for value in values} <= {"x86_64", "arm64"}:
            raise ValueError("cpu_arch is 'x86_64' or 'arm64'")
    return text


ConditionText = Annotated[Line, AfterValidator(_condition)]
ConditionTexts = Annotated[
    tuple[ConditionText, ...], BeforeValidator(one_or_many, json_schema_input_type=str | list[str])
]


class WatchTable(SpecTable):
    """One `[[watch]]`: which offers, the threshold, when, and what to do."""

    name: Line = Field(description="Unique name, shown in alerts and in the history.")
    renamed_from: Line | Literal[""] | None = Field(
        default=None,
        description='Previous name: the watch keeps its launches, limits and history. "": a new watch.',
    )
    gpu: Lines = Field(
        description="GPU family or canonical name, one or several, in any spelling that a provider uses."
    )
    gpu_count: Annotated[GpuCount, BeforeValidator(_gpu_count, json_schema_input_type=int | GpuCount)] = Field(
        default=GpuCount(min=1, max=1), description="GPUs of one offer: a number, or { min = 1, max = 8 }."
    )
    max_price: (
        Annotated[Decimal | Literal["auto"], BeforeValidator(_max_price), WithJsonSchema(_MAX_PRICE_SCHEMA)] | None
    ) = Field(
        default=None,
        description='USD per GPU-hour, commission included; fires at or under it. "auto": computed from the history.',
    )
    max_price_cap: Usd | None = Field(
        default=None, description='Upper limit of max_price = "auto", in USD per GPU-hour.'
    )
    deadline: Deadline | None = Field(
        default=None,
        description='Time by which max_price = "auto" must rent: a duration from the first poll, or a time with zone.',
    )
    max_job_cost: Usd | None = Field(
        default=None, description="USD for the whole job of [watch.job], instead of max_price; fires at or under it."
    )
    job: JobTable | None = Field(default=None, description="Job for max_job_cost.")
    action: Literal["alert", "ask", "launch", "command"] = Field(
        default="alert", description="What to do when the watch fires."
    )
    command: Annotated[tuple[Line, ...], Field(min_length=1, max_length=100)] | None = Field(
        default=None,
        description='For action "command": program and arguments, no shell; {region}, {max_price}, … are substituted.',
    )
    command_timeout: SpanFrom1s = Field(default=600.0, description="Timeout of the command (default 10m).")
    handover: HandoverTable | None = Field(
        default=None, description='Task file for {task_file}: { to = "skypilot" or "dstack", run = "…" }.'
    )
    providers: Lines | None = Field(default=None, description="Providers to poll. Default: all enabled ones.")
    spot: Literal["no", "only", "any"] = Field(default="no", description="Whether to accept interruptible offers.")
    listed: Switch = Field(
        default=True,
        description="Also accept list prices (marked; stock unknown); false: live offers only. For action alert.",
    )
    cpu_arch: Literal["x86_64", "arm64", "any"] | None = Field(
        default=None, description="CPU architecture. Default: any for alert, all but arm64 for launch and ask."
    )
    disk_gb: Annotated[Measure, Field(ge=1)] | None = Field(
        None, description="GB of disk to rent; part of the price. Default: the provider's quote."
    )
    download_gb: Measure = Field(
        default=Decimal(0), description="GB that one job downloads; the cost is shown separately."
    )
    upload_gb: Measure = Field(default=Decimal(0), description="GB that one job uploads; the cost is shown separately.")
    min_vram_gib: Measure | None = Field(default=None, description="Minimum memory per GPU in GiB.")
    min_reliability: Fraction | None = Field(default=None, description="Minimum reliability of the host, 0 to 1.")
    min_reputation: Fraction | None = Field(
        default=None, description="Minimum reputation of the machine, 0 to 1: its reliability and your launches there."
    )
    verified: Switch | None = Field(default=None, description="true: only hosts verified by the provider.")
    datacenter: Switch | None = Field(default=None, description="true: only hosts in data centers.")
    regions: Words = Field(
        default=(),
        description='Countries, groups (EU, EEA, NA, APAC) or words in the region: ["EU", "NO", "Texas"]. '
        "Default: everywhere.",
    )
    min_cuda: Measure | None = Field(default=None, description="Minimum CUDA version of the driver: 12.4.")
    min_driver: Version | None = Field(default=None, description='Minimum driver version: "550.54".')
    min_download_mbps: Measure | None = Field(default=None, description="Minimum download speed in Mbit/s.")
    min_upload_mbps: Measure | None = Field(default=None, description="Minimum upload speed in Mbit/s.")
    min_disk_gb: Measure | None = Field(
        default=None, description="Minimum free disk at the host in GB (in addition to disk_gb)."
    )
    min_vcpu: Measure | None = Field(default=None, description="Minimum vCPUs of the offer.")
    min_ram_gib: Measure | None = Field(default=None, description="Minimum main memory of the offer in GiB.")
    min_ports: Annotated[Whole, Field(ge=0, le=65535)] | None = Field(
        default=None, description="Minimum number of open ports."
    )
    min_dlperf: Measure | None = Field(default=None, description="Minimum DLPerf score of the provider.")
    nvlink: Switch | None = Field(default=None, description="true: only with NVLink.")
    static_ip: Switch | None = Field(default=None, description="true: only with a static IP address.")
    available_for: Span | None = Field(default=None, description="Minimum time that the host stays available.")
    usd_per_tflop_hour: Usd | None = Field(
        default=None, description="Maximum GPU price in USD per hour and TFLOP/s (dense FP16, from the data sheet)."
    )
    usd_per_gib_hour: Usd | None = Field(
        default=None, description="Maximum GPU price in USD per hour and GiB of GPU memory."
    )
    when: ConditionText | None = Field(
        default=None,
        description='Condition on the offer: "gpu_ram >= 80 and (nvlink or gpu_count == 1)".',
    )
    any: ConditionTexts = Field(
        default=(), description='Conditions, at least one of which must hold: ["nvlink", "gpu_count == 1"].'
    )
    new_low: SpanFrom1d | None = Field(
        default=None,
        description="Fire only for a price below all stored prices of this GPU and rental type in this time: 30d.",
    )
    drop_by: Annotated[Share, Field(gt=0, lt=1)] | None = Field(
        default=None, description='Fire only for a price this far below the median of matching offers: "20%".'
    )
    restock: Switch = Field(
        default=False, description="true: fire only when a matching offer appears after complete polls without one."
    )
    drop_over: SpanFrom1d = Field(default=604_800.0, description="Time over which drop_by takes the median.")
    percentile: Annotated[Number, Field(gt=0, lt=100)] | None = Field(
        default=None, description="Fire only for a price in the lowest N percent of matching offers: 5."
    )
    percentile_over: SpanFrom1d = Field(default=2_592_000.0, description="Time over which percentile compares.")
    hold_for: Span = Field(
        default=0.0, description="Time that an offer must stay at or under the threshold before it fires (default 0s)."
    )
    active: Windows = Field(default=(), description="Local time windows in which it may fire. Default: always.")
    repeat_every: Annotated[
        float | Literal["never"],
        BeforeValidator(_repeat),
        WithJsonSchema({"type": "string", "pattern": f"^never$|{DURATION_PATTERN}", "examples": ["6h", "never"]}),
    ] = Field(default=21_600.0, description='Reminder interval while it fires, or "never" (default 6h).')
    improve_by: Fraction = Field(
        default=Decimal("0.05"), description="How much cheaper an offer must be for another alert, as a fraction."
    )
    tie: Share | None = Field(
        default=None,
        description="GPU prices within this share count as equal: the lower total decides, then quality. "
        "Default: 1% for launch and ask.",
    )
    prefer: Literal["cheapest-gpu", "cheapest-total", "fastest-per-dollar"] = Field(
        default="cheapest-gpu",
        description="How to rank offers: lowest GPU price, lowest total price, or most TFLOP/s per dollar.",
    )
    rearm: Annotated[Number, Field(ge=1, le=10)] = Field(
        default=Decimal(1), description="Re-arm after two polls without an offer under max_price times this."
    )
    notify: Lines | None = Field(default=None, description="Alert channels. Default: all configured ones.")
    max_per_day: Annotated[Whole, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Launches per UTC day, including failed ones. Default: unlimited."
    )
    relocate: RelocateTable | None = Field(
        default=None,
        description="Report a cheaper offer for a running launch: { min_saving, after }. gpuwatch does not move it.",
    )
    require: Annotated[
        tuple[Annotated[Line, Field(max_length=200)], ...],
        BeforeValidator(one_or_many, json_schema_input_type=str | list[str]),
    ] = Field(default=(), description="Checklist items required before it rents (gpuwatch checklist tick).")
    require_policy: Literal["block", "warn"] = Field(
        default="block",
        description="If an item is not ticked: block does not rent; warn rents and names it in the alert.",
    )
    launch: LaunchTable | None = Field(default=None, description="What to rent, for the actions launch and ask.")
    budget: BudgetTable = Field(default=BudgetTable(), description="Limits for the launches of this watch.")

    @field_validator("gpu")
    @classmethod
    def _gpus(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return check_gpus(value)

    @field_validator("regions")
    @classmethod
    def _places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        faults = [fault for text in value if (fault := unknown_place(text, SEEN_PLACES.get())) is not None]
        if faults:
            raise UnknownName("; ".join(faults))
        return value

    def _ceiling(self) -> Decimal:
        """A GPU price that no matching offer exceeds."""
        if isinstance(self.max_price, Decimal):
            return self.max_price
        if self.job is None or self.max_job_cost is None:
            return self.max_price_cap or HIGHEST_USD
        counts = range(self.gpu_count.min, self.gpu_count.max + 1)
        return highest_usd_gpu_hour(self.job.value(), self.max_job_cost, named_gpus(self.gpu), counts) or _LOWEST_USD

    def _auto(self) -> AutoPrice | None:
        if self.max_price != "auto" or self.max_price_cap is None:
            return None
        after = self.deadline if isinstance(self.deadline, float) else None
        at = self.deadline if isinstance(self.deadline, datetime) else None
        return AutoPrice(cap_usd_gpu_hour=self.max_price_cap, deadline_s=after, deadline_at=at)

    def value(self) -> Watch:
        """Return the value that the engine uses."""
        found = self.fields_of(Watch) | {
            "gpu_names": named_gpus(self.gpu),
            "max_price_usd_gpu_hour": self._ceiling(),
            "unlimited": self.max_price is None and self.max_job_cost is None,
            "auto": self._auto(),
            "max_job_cost_usd": self.max_job_cost,
            "max_usd_tflop_hour": self.usd_per_tflop_hour,
            "max_usd_gib_hour": self.usd_per_gib_hour,
            "any_of": self.any,
            "gpu_count_min": self.gpu_count.min,
            "gpu_count_max": self.gpu_count.max,
            "action": Action(self.action),
            "command": self.command or (),
            "spot": SpotPolicy(self.spot),
            "prefer": Prefer(self.prefer),
            "cpu_arch": CpuArch(self.cpu_arch) if self.cpu_arch else None,
            "repeat_every_s": None if self.repeat_every == "never" else float(self.repeat_every),
            "require_policy": ChecklistPolicy(self.require_policy),
        }
        return Watch(**found)


def named_gpus(wanted: Collection[str]) -> tuple[str, ...]:
    """Return the canonical names that an owner's texts stand for; a spelling in `SEEN` stands for itself.

    Raises:
        UnknownName: a text names no card; the message suggests what may have been meant.
    """
    seen = {fold(spelling): clean_name(spelling) for spelling in SEEN.get()}
    names: dict[str, None] = {}
    for text in wanted:
        recorded = seen.get(fold(text))
        found = catalog().wanted(text) or (*catalog().unlisted(text), *([recorded] if recorded else []))
        if not found:
            raise UnknownName(_unknown_gpu(text))
        names.update(dict.fromkeys(found))
    return tuple(names)


def check_gpus(wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the texts themselves if each one stands for a GPU. Raises UnknownName."""
    named_gpus(wanted)
    return wanted


def _unknown_gpu(text: str) -> str:
    near = catalog().suggest(text)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"unknown GPU {clean_name(text)!r}{hint}"
