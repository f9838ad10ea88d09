"""How often the recorded prices of a watch's offers came under its limit lately."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from gpuwatch.app.watches.nearest import UNDER_DAYS
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.bootstrap.provider_access import providers_polled_for
from gpuwatch.bootstrap.rules import commissions_of
from gpuwatch.domain.history.past_lows import times_under
from gpuwatch.domain.market.money import MICRO
from gpuwatch.errors import StoreError
from gpuwatch.storage.history.queries.poll_queries import last_sweeps

if TYPE_CHECKING:
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

_SPAN = timedelta(days=UNDER_DAYS)
_HALF_MICRO = 0.5  # a GPU price is rounded to whole micro-dollars


def times_under_limits(settings: Settings, watches: Sequence[Watch], now: datetime) -> dict[str, int | None]:
    """How often the lowest price came under the limit of each watch in the last 7 days; None: too little is recorded.

    A store that cannot be read says nothing, and neither does one without sweeps: other searches see only the offers
    under a limit.
    """
    try:
        with open_store_read_only(settings) as store:
            newest = [swept.at for name, swept in last_sweeps(store).items() if name in settings.providers]
            if not newest or now - max(newest) > _SPAN:
                return {}
            return {watch.name: _times_under(settings, store, watch, now) for watch in watches}
    except StoreError:
        return {}


def _times_under(settings: Settings, store: Database, watch: Watch, now: datetime) -> int | None:
    if watch.unlimited or watch.max_job_cost_usd is not None:
        return None
    from gpuwatch.storage.forecasts.fitting_prices import SqlFittingPrices  # noqa: PLC0415 a check may have no history

    prices = SqlFittingPrices(store, commissions_of(settings), providers_polled_for(watch, settings.providers))
    series = prices.series(watch, now - _SPAN, now)
    return times_under(series, float(watch.max_price_usd_gpu_hour) * MICRO + _HALF_MICRO)
