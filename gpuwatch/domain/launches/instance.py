"""One instance as in a provider's list. A missing value is None, never 0."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

CHANGING_EVERY_S = 3.0  # between two lists of instances while a launch is changing
RUNNING_EVERY_S = 10.0  # while everything runs


class InstanceState(StrEnum):
    """The state of a rented instance; `Instance.status` holds the provider's own text."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"  # not running; its disk is billed
    OFFLINE = "offline"  # its host is unreachable and may come back
    FAILED = "failed"  # does not start by itself
    EXITED = "exited"  # its container ended by itself; its disk is billed
    ENDING = "ending"  # the provider is deleting it; it never runs again
    ENDED = "ended"  # the provider states that it has ended; in no list, only in the answer about one instance
    UNKNOWN = "unknown"  # an unknown status, or no heartbeat


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance at a provider. Text is cleaned; prices are the provider's own, without commission."""

    instance_id: str
    label: str | None
    state: InstanceState
    status: str  # the provider's own text
    machine_id: str | None = None
    gpu: str | None = None  # canonical name
    gpu_wire: str | None = None
    gpu_count: int | None = None
    gpu_memory_gib: float | None = None  # of one GPU
    disk_gb: float | None = None
    cuda: float | None = None  # the newest version that the driver supports
    spot: bool | None = None
    listed_usd_hour: float | None = None  # while it runs, including its disk
    stopped_usd_hour: float | None = None  # while it does not run: its disk
    bid_usd_hour: float | None = None  # the current bid, without disk; spot only
    min_bid_usd_hour: float | None = None  # the lowest bid that would run
    gpu_utilisation: float | None = None  # percent; None: not measured, never 0
    ssh_host: str | None = None
    ssh_port: int | None = None
    ssh_user: str | None = None  # None: root
    started_at: datetime | None = None
    ends_at: datetime | None = None  # when the host ends the contract
    maintenance_at: datetime | None = None
    unknown_status: str | None = None  # a word in its status that gpuwatch does not know; None: all are known
    is_placed: bool = True  # False: the provider or orchestrator found no machine for it, and nothing was billed
