"""The limits of a watch at a given moment: its automatic limit, past prices, and the records of machines.

The settings say how a limit is computed; hunts and jobs need the computed limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.forecasts.auto_limits import AutoPrices
from gpuwatch.engine.watches.machine_reputations import MachineReputations
from gpuwatch.engine.watches.observed_limits import PastLimits


class WatchLimits:
    """Computes the current limits of watches. Thread-safe: the hunts of several providers call it."""

    def __init__(self, auto_prices: AutoPrices, past_limits: PastLimits, reputations: MachineReputations) -> None:
        self._auto_prices = auto_prices
        self._past_limits = past_limits
        self._reputations = reputations

    def of(
        self, watch: Watch, now: datetime, polled_at: Mapping[bool, datetime] | None = None, *, provider: str = ""
    ) -> Watch:
        """Return the watch with its current limits. Raises StoreError.

        Args:
            polled_at: by spot, when its last answered poll at the provider was sent; None: now.
        """
        limited = self._auto_prices.with_current_limit(watch, now)
        limited = self._past_limits.with_past(limited, now, polled_at, provider=provider)
        return self._reputations.with_records(limited, now)

    def deadline(self, watch: Watch, now: datetime) -> datetime | None:
        """Return the deadline of an automatic limit; None: the watch has none. Raises StoreError."""
        return self._auto_prices.standing(watch, now).deadline if watch.auto is not None else None
