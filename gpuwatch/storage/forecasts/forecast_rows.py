"""Price forecasts as rows, with the prices that score them, and the waits of watches with `max_price = "auto"`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec
from sqlalchemy import Connection, and_, delete, func, select, update

from gpuwatch.domain.forecasts.price_forecasts import ForecastScore, PriceForecast
from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.history.price_series import (
    PriceSeries,
    gpu_pricer,
    known_until,
    series_of,
)
from gpuwatch.domain.market.money import REFERENCE_DISK_GB, Commission, microusd, usd
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.domain.watches.owner_names import owner_of
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.storage.forecasts.fitting_prices import SqlFittingPrices
from gpuwatch.storage.history.queries.stored_prices import read_market_history
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import forecast
from gpuwatch.storage.setup.stored_values import from_ms, to_ms, upsert
from gpuwatch.storage.setup.tables import auto_price
from gpuwatch.storage.setup.tables import launch as launches

HISTORY = timedelta(days=90)
_AT_ONCE = 100  # forecasts read at once


class SqlForecasts:
    """Implements `ports.store.ForecastRepository` over the database.

    Args:
        commissions: provider → its commission, for every provider that the history may contain.
        watches: the current ones. If the GPUs of a watch have changed, its forecast is scored by its own market scope.
    """

    def __init__(
        self, database: Database, commissions: Mapping[str, Commission], watches: Sequence[Watch] = ()
    ) -> None:
        self._database = database
        self._commissions = commissions
        self._watches = {watch.name: watch for watch in watches}

    def add(self, price_forecast: PriceForecast) -> None:
        """Store a forecast."""
        row = {
            "forecast_id": price_forecast.forecast_id,
            "source": price_forecast.source.value,
            "watch": price_forecast.watch,
            "made_at_ms": to_ms(price_forecast.made_at),
            "due_at_ms": to_ms(price_forecast.due_at),
            "statement": msgspec.json.encode(price_forecast).decode(),
        }
        with self._database.write() as connection:
            connection.execute(forecast.insert().values(row))

    def all(self) -> list[tuple[PriceForecast, ForecastScore | None]]:
        """Return every forecast with its score, oldest first."""
        query = select(forecast.c.statement, forecast.c.score).order_by(forecast.c.made_at_ms, forecast.c.forecast_id)
        with self._database.read() as connection:
            return [
                (_statement(row.statement), row.score and msgspec.json.decode(row.score, type=ForecastScore))
                for row in connection.execute(query)
            ]

    def scored(self) -> Iterator[tuple[PriceForecast, ForecastScore | None]]:
        """Yield every forecast with its score, oldest first, without its limits: they are by far its largest part."""
        query = select(forecast.c.statement, forecast.c.score).order_by(forecast.c.made_at_ms, forecast.c.forecast_id)
        with self._database.read() as connection:
            for statement, score in connection.execute(query.execution_options(yield_per=_AT_ONCE)):
                made = msgspec.structs.replace(_statement(statement), limits_usd=())
                yield made, score and msgspec.json.decode(score, type=ForecastScore)

    def unscored(self, due_before: datetime) -> list[PriceForecast]:
        """Return forecasts that are due and not scored yet."""
        is_due = (forecast.c.score.is_(None)) & (forecast.c.due_at_ms < to_ms(due_before))
        query = select(forecast.c.statement).where(is_due).order_by(forecast.c.due_at_ms)
        with self._database.read() as connection:
            return [_statement(text) for text in connection.execute(query).scalars()]

    def newest_of(self, watch: str) -> PriceForecast | None:
        """Return the newest forecast of a watch."""
        query = select(forecast.c.statement).where(forecast.c.watch == watch).order_by(forecast.c.made_at_ms.desc())
        with self._database.read() as connection:
            text = connection.execute(query.limit(1)).scalar()
        return None if text is None else _statement(text)

    def save_score(self, forecast_id: str, score: ForecastScore) -> None:
        """Store a score; an earlier one stays."""
        is_open = (forecast.c.forecast_id == forecast_id) & forecast.c.score.is_(None)
        with self._database.write() as connection:
            connection.execute(update(forecast).where(is_open).values(score=msgspec.json.encode(score).decode()))

    def series(self, price_forecast: PriceForecast, now: datetime) -> PriceSeries:
        """Return the lowest price of each hour since the forecast."""
        # an earlier poll still counts in its hour
        since = price_forecast.made_at - timedelta(seconds=COVERAGE_S + 3600)
        watch = self._watches.get(price_forecast.watch or "")
        if watch is not None and watch.gpu_names == price_forecast.scope.gpus:
            prices = SqlFittingPrices(self._database, self._commissions, self._commissions)
            return prices.series(watch, since, now, price_forecast.scope)
        market_history = read_market_history(self._database, price_forecast.scope, since, now + timedelta(seconds=1))
        series = series_of(market_history, gpu_pricer(market_history, self._commissions, REFERENCE_DISK_GB))
        return known_until(series, now)


def _statement(text: str) -> PriceForecast:
    return msgspec.json.decode(text, type=PriceForecast)


class SqlAutoPriceWaits:
    """Implements `ports.store.AutoPriceRepository` over the database; keeps the hours that are over.

    Args:
        commissions: of the queried providers; the history of others does not count.
        may_write: False: nothing is written; a wait without a stored beginning begins now.
        history: how far back prices count.
    """

    def __init__(
        self,
        database: Database,
        commissions: Mapping[str, Commission],
        may_write: bool = True,
        history: timedelta = HISTORY,
    ) -> None:
        self._database = database
        self._prices = SqlFittingPrices(database, commissions, commissions)
        self._may_write = may_write
        self._history = history

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

    def saved_limits(self, since: datetime, until: datetime) -> Mapping[str, Decimal]:
        """Return watch → limit of those that a daemon has stored in this time; a later one is of a wrong clock."""
        query = select(auto_price.c.watch, auto_price.c.limit_microusd_gpu_hour).where(
            auto_price.c.computed_at_ms.between(to_ms(since), to_ms(until)),
            auto_price.c.limit_microusd_gpu_hour.is_not(None),
        )
        with self._database.read() as connection:
            return {watch: usd(limit) for watch, limit in connection.execute(query)}

    def delete_except(self, watches: Collection[str]) -> None:
        """Delete the waits of removed watches: a later watch of the same name begins anew."""
        with self._database.read() as connection:
            stored = connection.execute(select(auto_price.c.watch)).scalars()
            own = [name for name in stored if owner_of(name) == self._database.owner]
        removed = [name for name in own if name not in watches]
        if removed and self._may_write:
            with self._database.write() as connection:
                connection.execute(delete(auto_price).where(auto_price.c.watch.in_(removed)))

    def series(self, watch: Watch, now: datetime) -> PriceSeries:
        """Return the matching, rentable prices of the last 90 days, from a full hour, including imported ones."""
        return self._prices.continued_series(watch, int((now - self._history).timestamp()) // HOUR_S, now)

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget what is kept for all other watches; the store keeps their waits."""
        self._prices.forget_except(watches)


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
