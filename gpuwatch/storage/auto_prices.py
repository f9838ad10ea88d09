"""When a watch with `max_price = "auto"` began to wait, as a row, and the history that fits it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from gpuwatch.domain.analysis.price_series import PriceSeries
from gpuwatch.domain.analysis.scope import MarketFilter
from gpuwatch.domain.backtest.fitting import fitting_series
from gpuwatch.domain.market.pricing import Commission, microusd
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from gpuwatch.storage.answer_changes import REFERENCE_DISK_GB
from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor, Executor
from gpuwatch.storage.stored_prices import read_tape
from gpuwatch.storage.watch_states import from_ms, to_ms

HISTORY = timedelta(days=90)
_SPOT = {SpotPolicy.NO: False, SpotPolicy.ONLY: True, SpotPolicy.ANY: None}
_SINCE = "SELECT since_ms FROM auto_price WHERE watch = ?"
_BEGIN = """INSERT INTO auto_price (watch, since_ms) VALUES (?, ?)
 ON CONFLICT (watch) DO UPDATE SET since_ms = excluded.since_ms"""
_LIMIT = "UPDATE auto_price SET limit_microusd_gpu_hour = ?, reckoned_at_ms = ? WHERE watch = ?"
_ALL = "SELECT watch FROM auto_price"
_FORGET = "DELETE FROM auto_price WHERE watch = ?"
_RAN_UNTIL = """SELECT MAX(ended_at_ms) FROM launch
 WHERE watch = ? AND dry_run = ? AND running_at_ms IS NOT NULL AND ended_at_ms IS NOT NULL"""


class SqlAutoPriceWaits:
    """Implements `ports.waits.Waits` over the database.

    Args:
        commissions: of the providers that are asked; the history of others does not count.
        keep: False: nothing is written; a wait that was never begun begins now.
    """

    def __init__(self, database: Database, commissions: Mapping[str, Commission], keep: bool = True) -> None:
        self._database = database
        self._commissions = commissions
        self._keep = keep

    def began(self, watch: Watch, now: datetime) -> datetime:
        """When it was first looked at, or its newest launch ended that ran. A beginning in the future is now."""
        with self._database.read() as connection:
            known = _since(CoreExecutor(connection), watch.name)
        if known is not None and known <= now:
            return known
        if self._keep:
            with self._database.write() as connection:
                CoreExecutor(connection).run(_BEGIN, (watch.name, to_ms(now)))
        return now

    def save_limit(self, watch: Watch, limit_usd_gpu_hour: Decimal, now: datetime) -> None:
        """Note the limit in force."""
        if self._keep:
            with self._database.write() as connection:
                CoreExecutor(connection).run(_LIMIT, (microusd(limit_usd_gpu_hour), to_ms(now), watch.name))

    def forget_except(self, watches: Collection[str]) -> None:
        """A watch of the same name that comes later begins anew."""
        with self._database.read() as connection:
            gone = [name for (name,) in CoreExecutor(connection).rows(_ALL) if name not in watches]
        if gone and self._keep:
            with self._database.write() as connection:
                for name in gone:
                    CoreExecutor(connection).run(_FORGET, (name,))

    def series(self, watch: Watch, now: datetime) -> PriceSeries:
        """Of the last 90 days, what fits and could have been rented; imported prices count as well."""
        scope = MarketFilter(
            gpus=watch.gpu_names,
            gpu_count_min=watch.gpu_count_min,
            gpu_count_max=watch.gpu_count_max,
            spot=_SPOT[watch.spot],
        )
        market_history = read_tape(self._database, scope, now - HISTORY, now + timedelta(seconds=1))
        return fitting_series(watch, market_history, self._commissions, REFERENCE_DISK_GB, self._commissions)


def _since(executor: Executor, watch: str) -> datetime | None:
    rows = executor.rows(_SINCE, (watch,))
    if not rows:
        return None
    ran_until = executor.rows(_RAN_UNTIL, (watch, False))[0][0]
    return from_ms(max(rows[0][0], ran_until or 0))
