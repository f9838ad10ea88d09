"""A watch: which offers, the threshold, when, and what to do: `[[watch]]`, each key declared on its field. Pure.

`watch_changes` compares the watches of the settings with those of the store: renamed, new, gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from pydantic import BeforeValidator, Field

from gpuwatch.domain.market.offer import NO_GPU
from gpuwatch.domain.market.traffic import Traffic
from gpuwatch.domain.setup.fields import (
    Key,
    Line,
    Lines,
    Measure,
    Number,
    Share,
    Span,
    SpanFrom1d,
    SpanFrom1s,
    Spec,
    Switch,
    Usd,
    Whole,
    about,
    one_or_many,
)
from gpuwatch.domain.watches.launch_spec import Budget, EndPolicy, HandoverSpec, LaunchSpec, RelocateSpec
from gpuwatch.domain.watches.owner_names import Purpose
from gpuwatch.domain.watches.past_limits import MachineRecords, PastComparison
from gpuwatch.domain.watches.watch_fields import (
    ConditionText,
    ConditionTexts,
    FormerName,
    Fraction,
    GroupName,
    Places,
    Repeat,
    Version,
    WatchedGpus,
    WatchKeys,
    Windows,
    watched_gpus,
)
from gpuwatch.domain.watches.watch_job_schema import WatchJob, highest_usd_gpu_hour, job_of

HIGHEST_USD = Decimal(10_000)  # no GPU is that expensive
_LOWEST_USD = Decimal("0.000001")  # no GPU is that cheap: used where no GPU can run the job


class Action(StrEnum):
    """What a watch does when it fires."""

    ALERT = "alert"
    ASK = "ask"
    LAUNCH = "launch"
    COMMAND = "command"  # a command of the owner rents elsewhere


class SpotPolicy(StrEnum):
    """Whether interruptible offers are wanted."""

    NO = "no"
    ONLY = "only"
    ANY = "any"
    FIRST = "first"  # only spot offers for `spot_for` after it could first fire, then any


class Prefer(StrEnum):
    """Which of the offers at or under the threshold to rent first."""

    CHEAPEST_GPU = "cheapest-gpu"
    CHEAPEST_TOTAL = "cheapest-total"
    FASTEST_PER_DOLLAR = "fastest-per-dollar"  # dense 16-bit TFLOP/s of the data sheet


class CpuArch(StrEnum):
    """Which processor an offer must have."""

    X86_64 = "x86_64"
    ARM64 = "arm64"
    ANY = "any"


class ChecklistPolicy(StrEnum):
    """What to do while items of `require` are not ticked."""

    BLOCK = "block"  # nothing is rented
    WARN = "warn"  # it is rented, with a warning


class AutoPrice(msgspec.Struct, frozen=True, kw_only=True):
    """`max_price = "auto"`: computed from the price history and the time left; never above the cap."""

    cap_usd_gpu_hour: Decimal
    deadline_s: float | None = None  # after the first poll of the watch …
    deadline_at: datetime | None = None  # … or a fixed time; one of the two


class Watch(Spec, frozen=True, kw_only=True, gc=False):
    """One `[[watch]]`: which offers, the threshold, when, and what to do. None: a clause is not set."""

    Keys = WatchKeys

    name: Annotated[Line, about("Unique name, shown in alerts and in the history.")]
    renamed_from: Annotated[
        FormerName | None, about('Previous name: the watch keeps its launches, limits and history. "": a new watch.')
    ] = None
    group: Annotated[
        GroupName | None, about("Group of the watch: it inherits the keys of [group.NAME], after [defaults.watch].")
    ] = None
    gpu: WatchedGpus
    gpu_names: tuple[str, ...]  # canonical names for `gpu`; an uncatalogued spelling is its own name
    gpu_count_min: int = 1  # both 0: a machine without GPUs
    gpu_count_max: int = 1
    # with commission; decided by the history: the highest possible; by the job's cost: one that no match exceeds
    max_price_usd_gpu_hour: Decimal
    unlimited: bool = False  # no price limit: another clause decides about alerts
    auto: AutoPrice | None = None
    max_job_cost_usd: Annotated[
        Usd | None,
        about(
            "USD for the job of [watch.job], else for all of max_runtime, instead of max_price; fires at or under it."
        ),
        Key("max_job_cost"),
    ] = None
    job: Annotated[WatchJob | None, about("Job for max_job_cost.")] = None
    action: Annotated[Action, about("What to do when the watch fires.")] = Action.ALERT
    command: Annotated[
        tuple[Line, ...],
        about(
            'For action "command": program and arguments, no shell; {region}, {max_price}, … are substituted.',
            min_length=1,
            max_length=100,
        ),
    ] = ()
    command_timeout_s: Annotated[SpanFrom1s, about("Timeout of the command (default 10m).")] = 600.0
    handover: Annotated[
        HandoverSpec | None, about('Task file for {task_file}: { to = "skypilot" or "dstack", run = "…" }.')
    ] = None
    providers: Annotated[Lines | None, about("Providers to poll. Default: all enabled ones.")] = None
    spot: Annotated[
        SpotPolicy, about('Whether to accept interruptible offers; "first": only these for `spot_for`, then any.')
    ] = SpotPolicy.NO
    spot_for_s: Annotated[
        SpanFrom1s, about('For spot = "first": how long to wait for a spot offer while one on demand would do.')
    ] = 2700.0
    spot_until: datetime | None = None  # of a job with a deadline: a fixed time instead of `spot_for`
    listed: Annotated[
        Switch, about("Also accept list prices (marked; stock unknown); false: live offers only. For action alert.")
    ] = True
    cpu_arch: Annotated[
        CpuArch | None, about("CPU architecture. Default: any for alert, all but arm64 for launch and ask.")
    ] = None
    disk_gb: Annotated[
        Annotated[Measure, Field(ge=1)] | None,
        about("GB of disk to rent; part of the price. Default: the provider's quote."),
    ] = None
    download_gb: Annotated[
        Measure, about("GB that one launch downloads: its cost, spread over launch.max_runtime, is in the price.")
    ] = 0.0
    upload_gb: Annotated[Measure, about("GB that one launch uploads; counted as download_gb is.")] = 0.0
    min_vram_gib: Annotated[Measure | None, about("Minimum memory per GPU in GiB.")] = None
    min_reliability: Annotated[Fraction | None, about("Minimum reliability of the host, 0 to 1.")] = None
    min_reputation: Annotated[
        Fraction | None, about("Minimum reputation of the machine, 0 to 1: its reliability and your launches there.")
    ] = None
    verified: Annotated[Switch | None, about("true: only hosts verified by the provider.")] = None
    datacenter: Annotated[Switch | None, about("true: only hosts in data centers.")] = None
    regions: Annotated[
        Places,
        about(
            'Countries, groups (EU, EEA, NA, APAC) or words in the region: ["EU", "NO", "Texas"]. Default: everywhere.'
        ),
    ] = ()
    min_cuda: Annotated[Measure | None, about("Minimum CUDA version of the driver: 12.4.")] = None
    min_driver: Annotated[Version | None, about('Minimum driver version: "550.54".')] = None
    min_download_mbps: Annotated[Measure | None, about("Minimum download speed in Mbit/s.")] = None
    min_upload_mbps: Annotated[Measure | None, about("Minimum upload speed in Mbit/s.")] = None
    min_disk_gb: Annotated[Measure | None, about("Minimum free disk at the host in GB (in addition to disk_gb).")] = (
        None
    )
    min_vcpu: Annotated[Measure | None, about("Minimum vCPUs of the offer.")] = None
    min_ram_gib: Annotated[Measure | None, about("Minimum main memory of the offer in GiB.")] = None
    min_ports: Annotated[Annotated[Whole, Field(ge=0, le=65535)] | None, about("Minimum number of open ports.")] = None
    min_dlperf: Annotated[Measure | None, about("Minimum DLPerf score of the provider.")] = None
    nvlink: Annotated[Switch | None, about("true: only with NVLink.")] = None
    static_ip: Annotated[Switch | None, about("true: only with a static IP address.")] = None
    available_for_s: Annotated[Span | None, about("Minimum time that the host stays available.")] = None
    max_usd_tflop_hour: Annotated[
        Usd | None,
        about("Maximum GPU price in USD per hour and TFLOP/s (dense FP16, from the data sheet)."),
        Key("usd_per_tflop_hour"),
    ] = None
    max_usd_gib_hour: Annotated[
        Usd | None, about("Maximum GPU price in USD per hour and GiB of GPU memory."), Key("usd_per_gib_hour")
    ] = None
    when: Annotated[
        ConditionText | None, about('Condition on the offer: "gpu_ram >= 80 and (nvlink or gpu_count == 1)".')
    ] = None
    any_of: Annotated[
        ConditionTexts, about('Conditions, at least one of which must hold: ["nvlink", "gpu_count == 1"].'), Key("any")
    ] = ()
    new_low_s: Annotated[
        SpanFrom1d | None,
        about("Fire only for a price below all stored prices of this GPU and rental type in this time: 30d."),
    ] = None
    drop_by: Annotated[
        Annotated[Share, Field(gt=0, lt=1)] | None,
        about('Fire only for a price this far below the median of matching offers: "20%".'),
    ] = None
    restock: Annotated[
        Switch, about("true: fire only when a matching offer appears after complete polls without one.")
    ] = False
    drop_over_s: Annotated[SpanFrom1d, about("Time over which drop_by takes the median.")] = 604800.0
    percentile: Annotated[
        Annotated[Number, Field(gt=0, lt=100)] | None,
        about("Fire only for a price in the lowest N percent of matching offers: 5."),
    ] = None
    percentile_over_s: Annotated[SpanFrom1d, about("Time over which percentile compares.")] = 2592000.0
    hold_for_s: Annotated[
        Span, about("Time that an offer must stay at or under the threshold before it fires (default 0s).")
    ] = 0.0
    active: Annotated[Windows, about("Local time windows in which it may fire. Default: always.")] = ()
    repeat_every_s: Annotated[Repeat, about('Reminder interval while it fires, or "never" (default 6h).')] = 21600.0
    improve_by: Annotated[Fraction, about("How much cheaper an offer must be for another alert, as a fraction.")] = 0.05
    tie: Annotated[
        Share | None,
        about(
            "GPU prices within this share count as equal: the lower total decides, then quality. "
            "Default: 1% for launch and ask."
        ),
    ] = None
    prefer: Annotated[
        Prefer, about("How to rank offers: lowest GPU price, lowest total price, or most TFLOP/s per dollar.")
    ] = Prefer.CHEAPEST_GPU
    rearm: Annotated[
        Number, about("Re-arm after two polls without an offer under max_price times this.", ge=1, le=10)
    ] = 1.0
    notify: Annotated[Lines | None, about("Alert channels. Default: all configured ones.")] = None
    max_per_day: Annotated[
        Annotated[Whole, Field(ge=1, le=1000000)] | None,
        about("Launches per UTC day, including failed ones. Default: unlimited."),
    ] = None
    relocate: Annotated[
        RelocateSpec | None,
        about("Report a cheaper offer for a running launch: { min_saving, after }. gpuwatch does not move it."),
    ] = None
    require: Annotated[
        Annotated[
            tuple[Annotated[Line, Field(max_length=200)], ...],
            BeforeValidator(one_or_many, json_schema_input_type=str | list[str]),
        ],
        about("Checklist items required before it rents (gpuwatch watches checklist tick)."),
    ] = ()
    require_policy: Annotated[
        ChecklistPolicy, about("If an item is not ticked: block does not rent; warn rents and names it in the alert.")
    ] = ChecklistPolicy.BLOCK
    on_end: Annotated[EndPolicy, about('At its end or when idle: "destroy", or "stop".')] = EndPolicy.DESTROY
    keep_disk_for_s: Annotated[SpanFrom1s, about("With stop, time until its disk is destroyed (default 3d).")] = (
        259200.0
    )
    launch: Annotated[LaunchSpec | None, about("What to rent, for the actions launch and ask.")] = None
    budget: Annotated[Budget, about("Limits for the launches of this watch.")] = Budget()
    only_observed: bool = False  # of a running job: its offers are compared with its machine, and nothing is decided
    records: MachineRecords = msgspec.field(default_factory=dict)  # your launches by machine, if it needs them
    past: PastComparison | None = None  # the current limits of its comparisons with past prices; None: not computed

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """The cards that its texts name, and the limit of their price."""
        gpu_names, job = watched_gpus(table.gpu), job_of(table)
        counts = (0, 0) if gpu_names == (NO_GPU,) else (table.gpu_count.min, table.gpu_count.max)
        is_auto = table.max_price == "auto" and table.max_price_cap is not None
        after_s = table.deadline if isinstance(table.deadline, float) else None
        at = table.deadline if isinstance(table.deadline, datetime) else None
        return {
            "gpu_names": gpu_names,
            "gpu_count_min": counts[0],
            "gpu_count_max": counts[1],
            "max_price_usd_gpu_hour": _ceiling(table, job, gpu_names),
            "job": job,
            "unlimited": table.max_price is None and table.max_job_cost is None,
            "auto": AutoPrice(cap_usd_gpu_hour=table.max_price_cap, deadline_s=after_s, deadline_at=at)
            if is_auto
            else None,
        }

    @property
    def purpose(self) -> Purpose:
        """What it looks for offers for."""
        return Purpose.of(self.name)

    @property
    def wants_no_gpu(self) -> bool:
        """Whether it looks for machines without GPUs."""
        return not self.gpu_count_max

    @property
    def rents_alone(self) -> bool:
        """Whether it rents, or lets a command rent, without asking."""
        return not self.only_observed and (self.action is Action.LAUNCH or self.action is Action.COMMAND)

    @property
    def traffic(self) -> Traffic | None:
        """The traffic that its price contains. None: none is set, the cost of its job contains it, or there is no
        `launch.max_runtime` over which to spread it.
        """
        runtime_s = None if self.launch is None else self.launch.max_runtime_s
        if runtime_s is None or self.max_job_cost_usd is not None or not (self.download_gb or self.upload_gb):
            return None
        return Traffic(self.download_gb, self.upload_gb, runtime_s)

    @property
    def has_waits(self) -> bool:
        """Whether its own settings may keep it from acting on an offer at or under its limit."""
        return bool(self.active or self.hold_for_s or self.restock) or self.spot is SpotPolicy.FIRST

    @property
    def rents_itself(self) -> bool:
        """Whether gpuwatch rents for it, immediately or after an approval, so that it needs the provider's account."""
        return self.action is Action.LAUNCH or self.action is Action.ASK

    @property
    def has_fixed_limit(self) -> bool:
        """Whether none of its clauses depends on the price history or on your launches."""
        return self.auto is None and not self.compares_with_past and self.min_reputation is None

    @property
    def compares_with_past(self) -> bool:
        """Whether an offer's price is compared with stored prices."""
        return self.new_low_s is not None or self.drop_by is not None or self.percentile is not None

    @property
    def has_near_limit(self) -> bool:
        """Whether an offer that does not match can prevent it from being re-armed."""
        return self.rearm > 1 or self.new_low_s is not None


def _ceiling(table: Any, job: WatchJob | None, gpu_names: Sequence[str]) -> Decimal:
    """A GPU price that no matching offer exceeds."""
    if isinstance(table.max_price, Decimal):
        return table.max_price
    if job is None or table.max_job_cost is None:
        return table.max_price_cap or HIGHEST_USD
    counts = range(table.gpu_count.min, table.gpu_count.max + 1)
    return highest_usd_gpu_hour(job, table.max_job_cost, gpu_names, counts) or _LOWEST_USD


class WatchChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between the watches of the settings and those of the store.

    Attributes:
        renamed: old name → new name.
        added: names that are new.
        blocked: watches that may not rent yet: each may be the new name of a removed watch with an active launch.
        removed: names that are no longer in the settings.
        abandoned: those of them with active launches.
    """

    renamed: Mapping[str, str]
    added: Sequence[str]
    blocked: Sequence[str]
    removed: Sequence[str]
    abandoned: Sequence[str]


def watch_changes(
    watches: Sequence[Watch], in_use: Collection[str], retired: Collection[str], alive: Collection[str]
) -> WatchChanges:
    """Compare the watches of the settings with those of the store.

    Args:
        in_use: names in the settings when they were last read.
        retired: names in earlier settings.
        alive: names of watches with active launches.
    """
    names = {watch.name for watch in watches}
    known = {*in_use, *retired}
    renamed = {w.renamed_from: w.name for w in watches if w.renamed_from in known and w.renamed_from not in names}
    renamed = {old: new for old, new in renamed.items() if old}
    taken = {*renamed.values(), *in_use, *alive}
    abandoned = sorted(set(alive) - names - renamed.keys())
    unknown = [watch for watch in watches if watch.name not in taken]
    unsure = [watch for watch in unknown if abandoned and watch.renamed_from != ""]
    return WatchChanges(
        renamed=renamed,
        added=[watch.name for watch in watches if watch.name not in in_use and watch not in unsure],
        blocked=[watch.name for watch in unsure if watch.action is not Action.ALERT],
        removed=sorted({*in_use, *abandoned} - names - renamed.keys()),
        abandoned=abandoned,
    )
