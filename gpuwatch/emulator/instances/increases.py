"""Price increases that hosts announce for running contracts, and the renter's answers.

source: the generated specification and the official client (2026-08): one row per announcement, with its own number;
the new rate applies from the contract's present end, never earlier; a rejected row has no effect. The client prints the
GPU rates as dollars per GPU and hour, so they are for one GPU here.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SECONDS_A_MONTH = 720 * 3600


class Proposal(NamedTuple):
    """What a host proposes: USD per hour for all GPUs, USD per GB and month of disk, old and new platform fee.

    `effective_after_s` moves the contract's end, and with it the change of rates, to that many seconds from now; None
    leaves it.
    """

    gpu_usd_hour: float
    effective_after_s: float | None = None
    extends_s: float = 30 * 86_400.0
    storage_cost: float | None = None
    fees: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Increase:
    """One announcement; USD per hour for all GPUs, USD per GB and month, USD per GB of traffic, fractions of one."""

    id: int
    contract_id: int
    host_id: int
    gpus: int
    old_gpu_usd_hour: float
    new_gpu_usd_hour: float
    old_storage_cost: float
    new_storage_cost: float | None
    old_fee: float | None
    new_fee: float | None
    contract_end: float
    ask_end: float
    created_at: float

    def row(self) -> dict[str, Any]:
        """Return its list row; unchanged values are null on both sides, as in the vendor's example."""
        disk = self.new_storage_cost
        fee = (self.new_fee, self.old_fee) if self.new_fee is not None else (None, None)
        return {
            "pending_price_increase_id": self.id,
            "contract_id": self.contract_id,
            "host_id": self.host_id,
            "new_gpu_costpersec": self.new_gpu_usd_hour / self.gpus / 3600,
            "old_gpu_costpersec": self.old_gpu_usd_hour / self.gpus / 3600,
            "new_disk_ram_costpersec": None if disk is None else disk / SECONDS_A_MONTH,
            "old_disk_ram_costpersec": None if disk is None else self.old_storage_cost / SECONDS_A_MONTH,
            **dict.fromkeys(("new_bwu_cost", "old_bwu_cost", "new_bwd_cost", "old_bwd_cost")),
            "new_platform_fee": fee[0],
            "old_platform_fee": fee[1],
            "contract_end_date": self.contract_end,
            "ask_end_date": self.ask_end,
            "created_at": self.created_at,
        }


@dataclass(slots=True)
class Increases:
    """All announcements; `answers` contains the result of those that are no longer pending."""

    pending: dict[int, Increase] = field(default_factory=dict)
    answers: dict[int, str] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(999))

    def announce(self, **terms: Any) -> Increase:
        """Add an announcement; withdraws an older one of the same contract."""
        for older in [one for one in self.pending.values() if one.contract_id == terms["contract_id"]]:
            self.settle(older.id, "withdrawn")
        increase = Increase(id=next(self._numbers), **terms)
        self.pending[increase.id] = increase
        return increase

    def settle(self, increase_id: int, answer: str) -> Increase:
        """Remove an announcement from the list.

        Args:
            increase_id: a pending one.
            answer: `accepted`, `rejected`, `withdrawn` or `lapsed`.

        Raises:
            KeyError: it is not pending.
        """
        settled = self.pending.pop(increase_id)
        self.answers[increase_id] = answer
        return settled

    def lapse(self, now: float, alive: set[int]) -> None:
        """Drop announcements without an answer at the contract's end, and those of a contract that is gone."""
        for one in list(self.pending.values()):
            if one.contract_end <= now or one.contract_id not in alive:
                self.settle(one.id, "lapsed")
