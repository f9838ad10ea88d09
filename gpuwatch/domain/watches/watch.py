"""A watch: which offers, the threshold, when, and what to do. Plain validated values; `watch_schema` validates. Pure.

`watch_changes` compares the watches of the settings with those of the store: renamed, new, gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

import msgspec

from gpuwatch.domain.plan.job_hours import JobSpec
from gpuwatch.domain.watches.past_limits import MachineRecords, PastComparison
from gpuwatch.secret import Secret

MOST_GPUS = 1024  # in one offer; no machine has more
JOB_PREFIX = "job:"  # of the name under which a job is stored


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


class VerificationMode(StrEnum):
    """How to check a new instance against its offer before it counts as running."""

    NONE = "none"
    LISTED = "listed"  # the provider's list: GPU, count, memory, disk, CUDA
    SSH = "ssh"  # and the SSH port answers; with min_download_mbps: the speed is measured


class PriceIncreasePolicy(StrEnum):
    """What to do when a host proposes a higher price for a running contract."""

    ALERT = "alert"
    STOP = "stop"
    ACCEPT_UNDER = "accept_under"  # accepted while at or under max_price, else as `stop`


class BudgetPolicy(StrEnum):
    """What to do when running launches reach a budget. You get an alert at 80 % in any case."""

    WARN = "warn"
    STOP = "stop"


class ChecklistPolicy(StrEnum):
    """What to do while items of `require` are not ticked."""

    BLOCK = "block"  # nothing is rented
    WARN = "warn"  # it is rented, with a warning


class AutoPrice(msgspec.Struct, frozen=True, kw_only=True):
    """`max_price = "auto"`: computed from the price history and the time left; never above the cap."""

    cap_usd_gpu_hour: Decimal
    deadline_s: float | None = None  # after the first poll of the watch …
    deadline_at: datetime | None = None  # … or a fixed time; one of the two


class BidSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`bid = { max = 1.20, step = 0.05 }`: both in USD per GPU-hour with commission, like `max_price`."""

    max_usd_gpu_hour: Decimal
    step_usd_gpu_hour: Decimal = Decimal("0.05")


class RegistrySpec(msgspec.Struct, frozen=True, kw_only=True):
    """The login of a private image registry."""

    server: str
    username: str
    password: Secret

    def __repr__(self) -> str:
        return f"RegistrySpec({self.server!r}, {self.username!r})"


class RelocateSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`relocate = { min_saving = "15%", after = "2h" }`: when a cheaper offer is reported for a running launch."""

    min_saving: float = 0.15  # of the remaining cost, after set-up and minimum billing
    after_s: float = 7200.0  # of running


class VolumeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A volume at `mount`: an existing `volume_id`, or with `size_gb` the volume offer to create one from."""

    mount: str
    volume_id: str | None = None
    size_gb: float | None = None


class HookSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A hook of the owner, which receives the launch as JSON: a shell command, or a webhook signed with `secret`."""

    command: str | None = None
    url: Secret | None = None  # its path is often a token
    secret: Secret | None = None

    def __repr__(self) -> str:
        return f"HookSpec({'command' if self.command else 'url'})"


class HandoverSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`handover = { to = "skypilot", run = "python train.py" }`: the task file for a command."""

    to: str
    run: str


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What to rent and for how long: `[watch.launch]`. Durations in seconds; None: not set."""

    image: str = "vastai/pytorch"  # empty: that of the template
    onstart: str | None = None  # may contain secrets
    env: dict[str, str] = {}  # may contain secrets
    secret_env: dict[str, Secret] = {}  # the variables that were given by reference
    ports: tuple[str, ...] = ()  # "8000", "8080:8000", "53/udp"
    runtype: str = "ssh"  # empty: that of the template
    template: str | None = None
    registry: RegistrySpec | None = None
    volume: VolumeSpec | None = None
    label_extra: str | None = None  # after the launch's own label
    max_active: int = 1
    max_total: int = 1  # 0: no limit
    max_runtime_s: float | None = None
    ready_within_s: float = 900.0
    max_tries: int = 5  # candidates within one firing
    try_for_s: float = 120.0  # and at most this long in total
    quote_ttl_s: float = 5.0  # an answer younger than this is not checked again before the order
    approve_within_s: float = 900.0  # action "ask": how long its quote may be approved
    bid: BidSpec | None = None
    relaunch: bool = False  # after a preemption, rent another machine
    self_destruct: bool = False  # the instance ends itself at its deadline, even if gpuwatch is gone
    verify: VerificationMode = VerificationMode.LISTED
    ssh_key: str | None = None  # file of the private key for the login of verify = "ssh"
    wasteful_below: float | None = None  # percent of GPU utilisation; below it: alert
    wasteful_for_s: float = 1800.0
    idle_below: float | None = None  # percent of GPU utilisation; below it: end
    idle_for_s: float | None = None
    stop_outside: bool = False  # end when the watch's `active` windows close
    on_price_increase: PriceIncreasePolicy = PriceIncreasePolicy.ALERT
    on_running: HookSpec | None = None
    before_stop: HookSpec | None = None
    on_ended: HookSpec | None = None
    hook_timeout_s: float = 30.0

    def __repr__(self) -> str:
        return f"LaunchSpec({self.image!r}, max_runtime_s={self.max_runtime_s!r})"


class Budget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`[budget]` over everything that gpuwatch rents, or `[watch.budget]` over one watch. None: no such limit."""

    max_usd_hour: Decimal | None = None
    max_usd_day: Decimal | None = None
    max_usd_month: Decimal | None = None
    max_instances: int | None = None
    on_reached: BudgetPolicy = BudgetPolicy.WARN


class Purpose(msgspec.Struct, frozen=True):
    """What the stored name `watch` stands for: a watch of the settings, or with `job` the queued job of that name."""

    watch: str
    job: str | None

    @classmethod
    def of(cls, watch: str) -> Purpose:
        """Read a stored name."""
        return cls(watch, watch.removeprefix(JOB_PREFIX) if watch.startswith(JOB_PREFIX) else None)

    @classmethod
    def of_job(cls, job: str) -> Purpose:
        """The purpose of what is rented for the job of this name."""
        return cls(JOB_PREFIX + job, job)


class Watch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One `[[watch]]`. None means that the clause is not set."""

    name: str
    renamed_from: str | None = None  # its former name; "": it is new, even if another watch is gone; None: not stated
    gpu: tuple[str, ...]  # as the owner wrote it
    gpu_names: tuple[str, ...]  # canonical names for `gpu`; an uncatalogued spelling is its own name
    # With commission. If the history decides: the highest possible value; if the job's cost decides: a price that no
    # matching offer exceeds.
    max_price_usd_gpu_hour: Decimal
    unlimited: bool = False  # no price limit: another clause decides about alerts
    auto: AutoPrice | None = None
    max_job_cost_usd: Decimal | None = None  # the threshold is the cost of the whole job in `job`
    job: JobSpec | None = None
    gpu_count_min: int = 1
    gpu_count_max: int = 1
    action: Action = Action.ALERT
    command: tuple[str, ...] = ()  # action "command": words, with placeholders (`domain.watches.orchestrator_task`)
    command_timeout_s: float = 600.0
    handover: HandoverSpec | None = None
    providers: tuple[str, ...] | None = None  # None: all enabled
    spot: SpotPolicy = SpotPolicy.NO
    listed: bool = True  # watches that alert accept list prices too; those that rent never do
    cpu_arch: CpuArch | None = None  # None: any for alerts, all but arm64 for renting
    disk_gb: float | None = None  # None: the provider's default
    download_gb: float = 0.0  # traffic of one job, shown separately
    upload_gb: float = 0.0
    min_vram_gib: float | None = None  # of one GPU
    min_reliability: float | None = None  # 0 to 1
    min_reputation: float | None = None  # 0 to 1: domain.watches.past_limits
    records: MachineRecords = {}  # your own launches by machine, if this watch needs them
    verified: bool | None = None
    datacenter: bool | None = None
    regions: tuple[str, ...] = ()  # country codes, or words found in the region
    min_cuda: float | None = None
    min_driver: str | None = None
    min_download_mbps: float | None = None
    min_upload_mbps: float | None = None
    min_disk_gb: float | None = None  # free at the host, besides disk_gb
    min_vcpu: float | None = None
    min_ram_gib: float | None = None
    min_ports: int | None = None
    min_dlperf: float | None = None
    nvlink: bool | None = None
    static_ip: bool | None = None
    available_for_s: float | None = None  # the host must stay available at least this long
    max_usd_tflop_hour: Decimal | None = None  # GPU price by dense FP16 TFLOP/s of the data sheet
    max_usd_gib_hour: Decimal | None = None  # GPU price by GiB of its memory
    when: str | None = None  # a condition: domain.watches.expression
    any_of: tuple[str, ...] = ()  # conditions of which one must hold
    new_low_s: float | None = None  # below all stored prices of this GPU and rental type within that time
    drop_by: float | None = None  # this far below the median of the fitting offers, as a fraction …
    drop_over_s: float = 604_800.0  # … within that time
    percentile: float | None = None  # within the lowest part, in percent, of the prices of the fitting offers …
    percentile_over_s: float = 2_592_000.0  # … within that time
    restock: bool = False  # only if no fitting offer was on sale before
    past: PastComparison | None = None  # the current limits of these three; None: not computed
    hold_for_s: float = 0.0
    active: tuple[str, ...] = ()  # local windows; empty: always
    repeat_every_s: float | None = 21_600.0
    improve_by: float = 0.05
    tie: float | None = None  # prices this close count as equal, as a fraction; None: by the action (`choice.tie_of`)
    prefer: Prefer = Prefer.CHEAPEST_GPU
    rearm: float = 1.0
    notify: tuple[str, ...] | None = None  # None: all configured channels
    relocate: RelocateSpec | None = None  # reported only
    max_per_day: int | None = None  # instances that it may create within a UTC day, including failed ones
    require: tuple[str, ...] = ()  # items that must be ticked before it rents
    require_policy: ChecklistPolicy = ChecklistPolicy.BLOCK
    launch: LaunchSpec | None = None
    budget: Budget = Budget()

    @property
    def purpose(self) -> Purpose:
        """What it looks for offers for."""
        return Purpose.of(self.name)

    @property
    def rents_alone(self) -> bool:
        """Whether it rents, or lets a command rent, without asking."""
        return self.action is Action.LAUNCH or self.action is Action.COMMAND

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
