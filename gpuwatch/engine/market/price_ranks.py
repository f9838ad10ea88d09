"""Price ranks kept in memory: an alert states the rank of its price without reading the history."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

from gpuwatch.domain.history.price_rank import WINDOW_DAYS, HourlyLows, PriceRank, arrivals_at, rank_in
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.market.pricing import MICRO, Commission, price_of
from gpuwatch.domain.market.query import Query
from gpuwatch.ports.store import HourlyLowsReader

REFRESH_EVERY = timedelta(hours=1)  # the history has hourly values, so more often is useless


class PriceRanks:
    """The price ranks of some GPUs' offers. One task refreshes them; hunts read them at any time.

    Args:
        gpus: None: all.
        disk_gb: the disk that the history's prices include.
    """

    def __init__(self, reader: HourlyLowsReader, gpus: Collection[str] | None, disk_gb: float) -> None:
        self._reader = reader
        self._gpus = gpus
        self._disk_gb = disk_gb
        self._lows: Mapping[tuple[str, OfferKind, str, bool], HourlyLows] = {}
        self._read_at: datetime | None = None

    def refresh_if_due(self, now: datetime) -> bool:
        """Read the history again if an hour has passed. After a StoreError the old ranks stay valid."""
        read_at = self._read_at
        if read_at is not None and timedelta(0) <= now - read_at < REFRESH_EVERY:  # also after a clock stepped back
            return False
        self._lows = self._reader.hourly_lows(self._gpus, now - timedelta(days=WINDOW_DAYS), now)
        self._read_at = now
        return True

    def arrivals(self, provider: str, query: Query, now: datetime) -> float:
        """Return how much likelier a price under the query's limit is at this hour than at other hours of the day."""
        if query.max_listed_usd_hour is None:
            return 1.0
        most = query.max_listed_usd_hour / (query.count_max or query.count_min) * MICRO
        known = (self._lows.get((provider, OfferKind.LIVE, gpu, query.spot)) for gpu in query.gpus)
        hour = now.astimezone(UTC).hour
        return max((arrivals_at(history, most, hour) for history in known if history is not None), default=1.0)

    def rank_of(self, offer: Offer) -> PriceRank | None:
        """Return the rank among its provider's prices for this GPU and rental type; None: too little is known."""
        history = self._lows.get((offer.provider, offer.kind, offer.gpu, offer.spot))
        if history is None:
            return None
        listed = price_of(offer, self._disk_gb, Commission()).listed_microusd_hour
        return rank_in(history, round(listed / offer.gpu_count))  # hours are stored in whole micro-dollars
