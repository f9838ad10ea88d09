"""What a watch decided at a time, and why: stored when it changes, so that it answers for the past. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec

from gpuwatch.domain.alerts.alert import without_numbers
from gpuwatch.domain.market.money import microusd
from gpuwatch.domain.watches.watch import Watch

RENTED = "rented"


class PastDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, which holds until the next one of its watch.

    Attributes:
        reason: a `DecisionReason`, `BlockReason` or `RefusalReason` by its value, or `RENTED`.
        text: why, in one line without a full stop, in English; empty: the reason says all.
        limit_microusd_gpu_hour: the limit in force; None: it was not a price.
    """

    at: datetime
    reason: str
    text: str = ""
    limit_microusd_gpu_hour: int | None = None

    def is_as(self, other: PastDecision | None) -> bool:
        """Whether another decision says the same: a budget that has a cent less is not news."""
        if other is None:
            return False
        return (self.reason, without_numbers(self.text)) == (other.reason, without_numbers(other.text))


def limit_of(watch: Watch) -> int | None:
    """The limit in micro-dollars per GPU-hour; None: the watch has none, or it limits the cost of a job."""
    if watch.unlimited or watch.max_job_cost_usd is not None:
        return None
    return microusd(watch.max_price_usd_gpu_hour)
