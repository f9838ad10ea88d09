"""Limits that come from the past: stored prices, and your own launches on a machine. Pure.

- `new_low`, `drop_by`, `percentile`: the current limit of each; `domain.history.past_lows` computes them;
- the reputation of a machine: its reliability in a poll, and the results of your own launches on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from gpuwatch.domain.market.offer import Offer

NEW_LOW, DROP_BY, PERCENTILE = "new_low", "drop_by", "percentile"
_TOLERANCE = 1e-6  # more than floating-point error, less than any price step
PRIOR_LAUNCHES = 4  # assumed: the polled reliability weighs as much as this many launches
UNKNOWN_RELIABILITY = 0.9  # assumed if the provider does not state it
ProviderMachine = tuple[str, str]  # (provider, machine)


class PastLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The price limit of one clause for one GPU and rental type."""

    clause: str  # NEW_LOW: below it; the others: at or below it
    gpu: str
    spot: bool
    microusd_gpu_hour: float | None  # None: nothing to compare with, so no offer satisfies the clause
    basis: str  # its basis, or why there is nothing to compare with
    hours: int = 0  # hours with offers that it is based on
    since: datetime | None = None  # the first of these hours

    @property
    def of(self) -> str:
        """Its GPU and rental type."""
        return f"{self.gpu} spot" if self.spot else self.gpu

    @property
    def how(self) -> str:
        """The comparison with a price."""
        return "under" if self.clause == NEW_LOW else "at or under"

    def is_met_by(self, microusd_gpu_hour: float, *, or_equal: bool) -> bool:
        """Whether a GPU price satisfies the limit, within rounding error."""
        if self.microusd_gpu_hour is None:
            return False
        slack = self.microusd_gpu_hour * _TOLERANCE + 1
        return microusd_gpu_hour <= self.microusd_gpu_hour + (slack if or_equal else -slack)


class PastComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The current limits from the history for the offers of one watch."""

    limits: tuple[PastLimit, ...]
    disk_gb: float  # disk size included in the prices
    or_equal: bool = False  # whether a price equal to the lowest also counts as a new low

    def unmet(self, offer: Offer, microusd_gpu_hour: float) -> PastLimit | None:
        """The first limit for an offer's GPU and rental type that the offer does not meet."""
        for limit in self.limits_of(offer):
            if not limit.is_met_by(microusd_gpu_hour, or_equal=self.or_equal or limit.clause != NEW_LOW):
                return limit
        return None

    def limits_of(self, offer: Offer) -> list[PastLimit]:
        """The limits for an offer's GPU and rental type."""
        return [limit for limit in self.limits if (limit.gpu, limit.spot) == (offer.gpu, offer.spot)]


class MachineRecord(msgspec.Struct, frozen=True):
    """Your own launches on one machine: successes, and failures of the machine."""

    good: int = 0
    bad: int = 0


MachineRecords = Mapping[ProviderMachine, MachineRecord]
_NONE = MachineRecord()


def reputation(reliability: float | None, record: MachineRecord) -> float:
    """The expected share of successful launches, 0 to 1; the polled reliability counts as `PRIOR_LAUNCHES` launches."""
    shown = UNKNOWN_RELIABILITY if reliability is None else reliability
    return (PRIOR_LAUNCHES * shown + record.good) / (PRIOR_LAUNCHES + record.good + record.bad)


def machine_record_of(offer: Offer, records: MachineRecords) -> MachineRecord:
    """The record of the offer's machine; empty for stock, which is a different machine each time."""
    if offer.machine_id is None or offer.terms.fungible:
        return _NONE
    return records.get((offer.provider, offer.machine_id), _NONE)
