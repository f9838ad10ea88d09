"""The port for watches with `max_price = "auto"`: when the wait began, and the history that fits the watch."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from gpuwatch.domain.analysis.price_series import PriceSeries
from gpuwatch.domain.watches.watch import Watch


class AutoPriceRepository(Protocol):
    """Kept over a restart. All methods raise StoreError."""

    def began(self, watch: Watch, now: datetime) -> datetime:
        """When it was first looked at: now, if it never was. After a launch that ran, its wait begins anew."""

    def save_limit(self, watch: Watch, limit_usd_gpu_hour: Decimal, now: datetime) -> None:
        """Note the limit in force, for whoever asks."""

    def forget_except(self, watches: Collection[str]) -> None:
        """A watch that is not in the settings any more waits for nothing."""

    def series(self, watch: Watch, now: datetime) -> PriceSeries:
        """The lowest price of each hour of what fits the watch, as far back as is of use."""
