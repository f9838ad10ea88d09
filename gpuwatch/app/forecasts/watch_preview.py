"""Preview of a changed watch before it is saved, from the store: its offers now, and what it would have done.

Apart from the report of a backtest: settings are changed with tomlkit, which only the page loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.forecasts.backtest import BacktestRequest, run_backtest
from gpuwatch.app.watches.matching_prices import HoursUnder, MatchingPrices, matching_prices
from gpuwatch.app.watches.watch_status import WatchStatus, watch_statuses
from gpuwatch.errors import StoreError, UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings


class WatchPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a watch would find now, and what it would have found. `under` None: its limit is no price."""

    status: WatchStatus
    prices: MatchingPrices
    under: HoursUnder | None


class PastRental(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that a watch would have rented."""

    at: datetime
    hours: float
    cost_usd: float


class PastActions(msgspec.Struct, frozen=True, kw_only=True):
    """What a watch would have done."""

    rentals: Sequence[PastRental]
    alerts: int
    has_budget_refusals: bool

    @property
    def cost_usd(self) -> float:
        """All rentals together."""
        return sum(one.cost_usd for one in self.rentals)

    @property
    def hours(self) -> float:
        """All rentals together."""
        return sum(one.hours for one in self.rentals)


def preview_watch(settings: Settings, watch: Watch, days: int, now: datetime) -> WatchPreview:
    """What a watch finds in the store. Sends no request. Raises StoreError."""
    (status,) = watch_statuses(settings, [watch])
    prices = matching_prices(settings, watch, days, now)
    has_price = not watch.unlimited and watch.max_job_cost_usd is None
    under = prices.under(status.limit_usd_gpu_hour) if has_price else None
    return WatchPreview(status=status, prices=prices, under=under)


def past_actions(settings: Settings, watch: Watch, days: int, now: datetime) -> PastActions | None:
    """What a watch would have done with the prices of the last days; None: its GPUs were not polled."""
    request = BacktestRequest(
        names=(), gpu=(), max_price=None, count=None, spot=None, action=None, max_runtime_s=None, thresholds=(),
        since=now - timedelta(days=days), until=now, data=None, provider=None, job_s=None, deadline_s=None,
        strict=False,
    )  # fmt: skip
    try:
        ((_, result),) = run_backtest(settings, [watch], request, lambda what, done, of: None).results
    except (StoreError, UsageError):
        return None
    if result is None:
        return None
    rentals = [
        PastRental(at=event.at, hours=event.hours or 0.0, cost_usd=event.cost_usd or 0.0)
        for event in result.events
        if event.launched
    ]
    return PastActions(rentals=rentals, alerts=result.fires, has_budget_refusals=bool(result.budget_refusals))
