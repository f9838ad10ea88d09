"""Price forecasts as rows, and the prices that score them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import select, update

from gpuwatch.domain.forecasts.backtest.replayed_candidates import fitting_series
from gpuwatch.domain.forecasts.price_forecasts import ForecastScore, PriceForecast
from gpuwatch.domain.history.price_series import POLL_LASTS_S, PriceSeries, gpu_pricer, known_until, series_of
from gpuwatch.domain.market.pricing import REFERENCE_DISK_GB, Commission
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.storage.history.queries.stored_prices import read_market_history
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.forecast_tables import forecast
from gpuwatch.storage.setup.stored_values import to_ms


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
            return [(_statement(row.statement), _score(row.score)) for row in connection.execute(query)]

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
        since = price_forecast.made_at - timedelta(seconds=POLL_LASTS_S + 3600)
        market_history = read_market_history(self._database, price_forecast.scope, since, now + timedelta(seconds=1))
        watch = self._watches.get(price_forecast.watch or "")
        if watch is not None and watch.gpu_names == price_forecast.scope.gpus:
            series = fitting_series(watch, market_history, self._commissions, REFERENCE_DISK_GB, self._commissions)
        else:
            series = series_of(market_history, gpu_pricer(market_history, self._commissions, REFERENCE_DISK_GB))
        return known_until(series, now)


def _statement(text: str) -> PriceForecast:
    return msgspec.json.decode(text, type=PriceForecast)


def _score(text: str | None) -> ForecastScore | None:
    return None if text is None else msgspec.json.decode(text, type=ForecastScore)
