"""The data of a watch with `max_price = "auto"` at each moment of the history, for `gpuwatch backtest`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec

from gpuwatch.domain.forecasts.backtest.replayed_candidates import fitting_series
from gpuwatch.domain.history.market_history import MarketHistory
from gpuwatch.domain.history.price_series import HOUR_S, PriceSeries
from gpuwatch.domain.market.pricing import Commission
from gpuwatch.domain.watches.watch import Watch

BACKTEST_RECOMPUTE_EVERY = timedelta(hours=6)  # in the time of the history


class BacktestWaits:
    """Implements `ports.store.AutoPriceRepository` over a recorded market. An hour is visible once it is over.

    Args:
        reference_disk_gb: the disk in a quote if the watch requests none.
    """

    def __init__(
        self, market_history: MarketHistory, commissions: Mapping[str, Commission], reference_disk_gb: float
    ) -> None:
        self._history = market_history
        self._commissions = commissions
        self._disk_gb = reference_disk_gb
        self._first_polls: dict[str, datetime] = {}
        self._complete_series: dict[str, PriceSeries] = {}

    def wait_started_at(self, watch: Watch, now: datetime) -> datetime | None:
        """Return the time of the first poll; None: there was none."""
        return self._first_polls.get(watch.name)

    def begin_wait(self, watch: Watch, now: datetime) -> datetime:
        """Note and return the time of the first poll."""
        return self._first_polls.setdefault(watch.name, now)

    def save_limit(self, watch: Watch, limit_usd_gpu_hour: Decimal, now: datetime) -> None:
        """Do nothing: nothing reads it."""

    def delete_except(self, watches: Collection[str]) -> None:
        """Do nothing: there is nothing to forget."""

    def series(self, watch: Watch, now: datetime) -> PriceSeries:
        """Return the hours that were over."""
        complete = self._complete_series.get(watch.name)
        if complete is None:
            complete = fitting_series(watch, self._history, self._commissions, self._disk_gb)
            self._complete_series[watch.name] = complete
        known = max(0, int(now.timestamp()) // HOUR_S - complete.first_hour)
        return msgspec.structs.replace(complete, lows=complete.lows[:known], polled=complete.polled[:known])
