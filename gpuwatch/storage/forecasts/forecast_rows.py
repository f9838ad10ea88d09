"""When a watch with `max_price = "auto"` began to wait, as a row, and the history for its limit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import Connection, and_, delete, func, select, update

from gpuwatch.domain.forecasts.backtest.replayed_candidates import fitting_series
from gpuwatch.domain.forecasts.price_forecasts import scope_of
from gpuwatch.domain.history.price_series import PriceSeries, known_until
from gpuwatch.domain.market.pricing import REFERENCE_DISK_GB, Commission, microusd
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.storage.history.queries.stored_prices import read_market_history
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.stored_values import from_ms, to_ms, upsert
from gpuwatch.storage.setup.tables import auto_price
from gpuwatch.storage.setup.tables import launch as launches

HISTORY = timedelta(days=90)


class SqlAutoPriceWaits:
    """Implements `ports.store.AutoPriceRepository` over the database.

    Args:
        commissions: of the queried providers; the history of others does not count.
        may_write: False: nothing is written; a wait without a stored beginning begins now.
    """

    def __init__(self, database: Database, commissions: Mapping[str, Commission], may_write: bool = True) -> None:
        self._database = database
        self._commissions = commissions
        self._may_write = may_write

    def wait_started_at(self, watch: Watch, now: datetime) -> datetime | None:
        """Return its first poll, or the end of its newest launch that ran; None: not yet, or in the future."""
        with self._database.read() as connection:
            stored_since = _wait_start(connection, watch.name)
        return stored_since if stored_since is not None and stored_since <= now else None

    def begin_wait(self, watch: Watch, now: datetime) -> datetime:
        """Store that its wait begins now, unless it has begun; return when it began."""
        if (started_at := self.wait_started_at(watch, now)) is not None:
            return started_at
        if self._may_write:
            with self._database.write() as connection:
                upsert(connection, auto_price, {"watch": watch.name, "since_ms": to_ms(now)})
        return now

    def save_limit(self, watch: Watch, limit_usd_gpu_hour: Decimal, now: datetime) -> None:
        """Store the current limit."""
        if self._may_write:
            limit = {"limit_microusd_gpu_hour": microusd(limit_usd_gpu_hour), "computed_at_ms": to_ms(now)}
            with self._database.write() as connection:
                connection.execute(update(auto_price).where(auto_price.c.watch == watch.name).values(**limit))

    def delete_except(self, watches: Collection[str]) -> None:
        """Delete the waits of removed watches: a later watch of the same name begins anew."""
        with self._database.read() as connection:
            removed = [name for name in connection.execute(select(auto_price.c.watch)).scalars() if name not in watches]
        if removed and self._may_write:
            with self._database.write() as connection:
                connection.execute(delete(auto_price).where(auto_price.c.watch.in_(removed)))

    def series(self, watch: Watch, now: datetime) -> PriceSeries:
        """Return the matching, rentable prices of the last 90 days, including imported ones."""
        return SqlPastPrices(self._database, self._commissions, self._commissions).series(watch, now - HISTORY, now)


class SqlPastPrices:
    """Implements `ports.store.PastPriceReader` over the database.

    Args:
        providers: only these; None: all with stored prices.
    """

    def __init__(
        self,
        database: Database,
        commissions: Mapping[str, Commission],
        providers: Collection[str] | None = None,
    ) -> None:
        self._database = database
        self._commissions = commissions
        self._providers = providers

    def series(self, watch: Watch, since: datetime, now: datetime) -> PriceSeries:
        """Return the hourly lowest price of a watch's offers at any price, including imports. Raises StoreError."""
        history = read_market_history(self._database, scope_of(watch), since, now + timedelta(seconds=1))
        matching = fitting_series(watch, history, self._commissions, REFERENCE_DISK_GB, self._providers)
        return known_until(matching, now)


def _wait_start(connection: Connection, watch: str) -> datetime | None:
    since_ms: int | None = connection.execute(select(auto_price.c.since_ms).where(auto_price.c.watch == watch)).scalar()
    if since_ms is None:
        return None
    has_run = and_(
        launches.c.watch == watch,
        launches.c.dry_run.is_(False),
        launches.c.running_at_ms.is_not(None),
        launches.c.ended_at_ms.is_not(None),
    )
    ended_ms = connection.execute(select(func.max(launches.c.ended_at_ms)).where(has_run)).scalar()
    return from_ms(max(since_ms, ended_ms or 0))
