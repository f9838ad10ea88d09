"""A watch: which offers, the threshold, when, and what to do. Plain values, already validated (see `schema`)."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum

import msgspec


class Action(StrEnum):
    """What a firing watch does."""

    ALERT = "alert"
    ASK = "ask"
    LAUNCH = "launch"


class SpotPolicy(StrEnum):
    """Whether interruptible offers are wanted."""

    NO = "no"
    ONLY = "only"
    ANY = "any"


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to rent and how long: `[watch.launch]`. Durations in seconds; None: not set."""

    image: str = "vastai/pytorch"
    onstart: str | None = None
    env: dict[str, str] = {}
    runtype: str = "ssh"
    template: str | None = None
    max_active: int = 1
    max_total: int = 1  # 0: no limit
    max_runtime_s: float | None = None
    ready_within_s: float = 900.0
    max_tries: int = 5  # candidates within one firing
    quote_ttl_s: float = 5.0  # an answer younger than this needs no second look before the rent
    idle_below: float | None = None  # percent of GPU use
    idle_for_s: float | None = None


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[watch]]`. None means that the clause is not set."""

    name: str
    gpu: tuple[str, ...]  # as the owner wrote it
    gpu_names: tuple[str, ...]  # canonical names that `gpu` stands for; an uncatalogued spelling stands for itself
    max_price_usd_gpu_hour: Decimal  # commission included
    gpu_count_min: int = 1
    gpu_count_max: int = 1
    action: Action = Action.ALERT
    providers: tuple[str, ...] | None = None  # None: all enabled
    spot: SpotPolicy = SpotPolicy.NO
    disk_gb: float | None = None  # None: what the provider quotes by default
    download_gb: float = 0.0  # traffic of one job, shown apart
    upload_gb: float = 0.0
    min_vram_gib: float | None = None  # of one GPU
    min_reliability: float | None = None  # 0 to 1
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
    available_for_s: float | None = None  # the host must stay at least so long
    hold_for_s: float = 0.0
    active: tuple[str, ...] = ()  # local windows; empty: always
    repeat_every_s: float | None = 21_600.0
    improve_by: float = 0.05
    rearm: float = 1.0
    notify: tuple[str, ...] | None = None  # None: all configured channels
    launch: LaunchSpec | None = None


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """`[budget]`: over everything that gpuwatch rents. None: no such limit."""

    max_usd_hour: Decimal | None = None
    max_usd_day: Decimal | None = None
    max_usd_month: Decimal | None = None
    max_instances: int | None = None
