"""One rented instance, with its earlier states for delayed lists."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpuwatch.emulator.instances.lifecycles import Delays, LifecycleStep
from gpuwatch.emulator.market.machines import EmulatedMachine

GPU_BILLED = frozenset({"running", "frozen", "rebooting"})
NEVER = float("inf")
# Fields that a delayed list shows as they were.
SNAPSHOT_FIELDS = (
    *("actual_status", "intended_status", "cur_state", "next_state", "status_msg"),
    *("has_ssh", "measured", "running_since", "label", "base_usd_hour", "end_date", "min_bid"),
)


class RateChange(NamedTuple):
    """The rates of an accepted increase, and their start: USD per hour for all GPUs, USD per GB and month of disk."""

    at: float
    gpu_usd_hour: float
    storage_cost: float


@dataclass(slots=True)
class EmulatedInstance:
    """One contract; the answer of `GET instances/{id}/` is derived from it."""

    id: int
    offer_id: int
    machine: EmulatedMachine
    gpus: tuple[int, ...]
    row: dict[str, Any]  # the offer as it was rented, priced with this disk
    body: dict[str, Any]  # the create request
    created_at: float
    is_bid: bool
    base_usd_hour: float
    label: str | None
    delays: Delays
    end_date: float = NEVER
    min_bid: float = 0.0
    actual_status: str | None = None
    intended_status: str = "running"
    cur_state: str = "running"
    next_state: str = "running"
    status_msg: str | None = None
    has_ssh: bool = False
    measured: bool = False
    running_since: float | None = None
    gpu_util: float | None = 97.0
    trace: list[tuple[float, float | None]] = field(default_factory=list)  # (time, GPU use in per cent from then on)
    rival_usd_hour: float | None = None
    queued: bool = False
    steps: list[LifecycleStep] = field(default_factory=list)
    cutover: RateChange | None = None
    expired_at: float | None = None
    ended_at: float = NEVER
    overrides: dict[str, Any] = field(default_factory=dict)  # values of its row that differ from the rented offer
    ssh: tuple[str, int] | None = None  # the real address of its ssh server, if a test started one
    ssh_user: str | None = None  # the login user of that server; None: root
    history: list[tuple[float, tuple[Any, ...]]] = field(default_factory=list)

    @property
    def image(self) -> str:
        """The requested image."""
        return str(self.body.get("image") or "vastai/base-image:latest")

    @property
    def disk_usd_hour(self) -> float:
        """The price of the disk while the instance exists."""
        return float(self.row["storage_total_cost"])

    @property
    def gpu_usd_hour(self) -> float:
        """The hourly price of its GPUs in the current state."""
        return self.base_usd_hour if self.actual_status in GPU_BILLED else 0.0

    def utilisation(self, now: float) -> float | None:
        """Return its GPU use in per cent: the latest due entry of the trace, else the value that was set."""
        due = [percent for at, percent in self.trace if at <= now]
        return due[-1] if due else self.gpu_util

    def record_snapshot(self, at: float) -> None:
        """Store a snapshot for delayed lists."""
        self.history.append((at, tuple(getattr(self, name) for name in SNAPSHOT_FIELDS)))

    def as_of(self, timestamp: float) -> EmulatedInstance:
        """Return its state at a time; its oldest one if it did not exist yet."""
        snapshots = [values for at, values in self.history if at <= timestamp] or [
            values for _, values in self.history[:1]
        ]
        snapshot = copy.copy(self)
        for name, value in zip(SNAPSHOT_FIELDS, snapshots[-1] if snapshots else (), strict=False):
            setattr(snapshot, name, value)
        return snapshot
