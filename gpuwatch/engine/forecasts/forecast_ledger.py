"""The record of price forecasts: those of `max_price = "auto"` are stored, and all are scored once they are due.

The record decides whether optimal stopping can be trusted. numpy is loaded only where a forecast is scored.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime, timedelta

from gpuwatch.domain.forecasts.price_forecasts import (
    PriceForecast,
    Scored,
    forecast_record,
)
from gpuwatch.ports.store import ForecastRepository

log = logging.getLogger(__name__)

SCORE_EVERY = timedelta(hours=1)
STATE_EVERY = timedelta(days=1)  # within one wait; a new wait is recorded at once
_SAME_WAIT = timedelta(hours=1)  # maximum difference of the deadlines


class ForecastLedger:
    """Scores once an hour, and records the forecasts of automatic limits. Not thread-safe."""

    def __init__(self, forecasts: ForecastRepository) -> None:
        self._forecasts = forecasts
        self._scored_at: datetime | None = None
        self._newest: dict[str, PriceForecast] = {}  # by watch
        self._trusts: bool | None = None

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget the newest forecasts of all other watches; the store keeps them."""
        self._newest = {name: made for name, made in self._newest.items() if name in watches}

    @property
    def trusts_optimal_stopping(self) -> bool:
        """Whether the record so far supports it; the first call reads the record. Raises StoreError."""
        if self._trusts is None:
            self._trusts = forecast_record(self._forecasts.scored()).trusts_optimal_stopping
        return self._trusts

    def score_if_due(self, now: datetime) -> None:
        """Score due forecasts, at most once an hour. Raises StoreError."""
        if self._scored_at is not None and timedelta(0) <= now - self._scored_at < SCORE_EVERY:
            return
        count = score_due(self._forecasts, now)
        self._scored_at = now
        self._trusts = None
        if count:
            log.info("%d forecasts were scored: gpuwatch forecasts scores", count)

    def state(self, made: PriceForecast) -> None:
        """Store a watch's forecast: the first of each wait, then one a day. Raises StoreError."""
        watch = made.watch or ""
        if watch not in self._newest:
            newest = self._forecasts.newest_of(watch)
            if newest is not None:
                self._newest[watch] = newest
        earlier = self._newest.get(watch)
        is_same_wait = earlier is not None and abs(earlier.due_at - made.due_at) <= _SAME_WAIT
        if earlier is not None and is_same_wait and made.made_at - earlier.made_at < STATE_EVERY:
            return
        self._forecasts.add(made)
        self._newest[watch] = made


def score_due(forecasts: ForecastRepository, now: datetime) -> int:
    """Score due forecasts and store the scores; return how many. Raises StoreError."""
    due, found = forecasts.unscored(now), 0
    if not due:
        return 0
    from gpuwatch.domain.forecasts.forecast_scoring import score  # noqa: PLC0415 numpy: 16 MB

    for made in due:
        one = score(made, forecasts.series(made, now), now)
        if one is not None:
            forecasts.save_score(made.forecast_id, one)
            found += 1
    return found


def scored_until(forecasts: ForecastRepository, now: datetime) -> list[Scored]:
    """Return every forecast with its score; writes nothing. Raises StoreError."""
    from gpuwatch.domain.forecasts.forecast_scoring import score  # noqa: PLC0415 numpy: 16 MB

    return [
        (made, kept if kept is not None or made.due_at >= now else score(made, forecasts.series(made, now), now))
        for made, kept in forecasts.all()
    ]
