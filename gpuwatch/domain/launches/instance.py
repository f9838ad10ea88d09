"""One instance, as a provider's list shows it, in gpuwatch's words. What the provider does not say is None, never 0."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec


class InstanceState(StrEnum):
    """A rented instance, in gpuwatch's words; `Instance.status` keeps the provider's own."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"  # not running, its disk is billed
    OFFLINE = "offline"  # its host is gone; nobody knows whether it comes back
    FAILED = "failed"  # will not come to life by itself
    UNKNOWN = "unknown"  # a word we do not know, or no heartbeat


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance at a provider. Text is cleaned; prices are the provider's own, without commission."""

    instance_id: str
    label: str | None
    state: InstanceState
    status: str  # the provider's own words
    machine_id: str | None = None
    gpu: str | None = None  # canonical name
    gpu_wire: str | None = None
    gpu_count: int | None = None
    gpu_memory_gib: float | None = None  # of one GPU
    disk_gb: float | None = None
    cuda: float | None = None  # the driver's newest
    spot: bool | None = None
    listed_usd_hour: float | None = None  # while it runs, disk included
    stopped_usd_hour: float | None = None  # while it does not: its disk
    bid_usd_hour: float | None = None  # what is bid now, without disk; spot only
    min_bid_usd_hour: float | None = None  # what would have to be bid to run
    gpu_utilisation: float | None = None  # percent; None: not measured, never 0
    ssh_host: str | None = None
    ssh_port: int | None = None
    ssh_user: str | None = None  # None: root
    started_at: datetime | None = None
    ends_at: datetime | None = None  # the host's end of the contract
    maintenance_at: datetime | None = None
