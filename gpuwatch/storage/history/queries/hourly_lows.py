"""The lowest listed price of each hour, by provider, GPU and rental type, from the hourly aggregates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import func, select

from gpuwatch.domain.history.hourly_rollup import HOUR_S
from gpuwatch.domain.history.price_rank import HourlyLows
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.storage.history.recording.price_sources import kind_of_source, provider_of_source
from gpuwatch.storage.history.recording.recording import seconds_since_1970
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import hourly, segment

_Part = tuple[str, OfferKind, str, bool]


class SqlHourlyLows:
    """Implements `ports.store.HourlyLowsReader` over the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def hourly_lows(self, gpus: Collection[str] | None, since: datetime, until: datetime) -> Mapping[_Part, HourlyLows]:
        """Return it by provider, kind of price, GPU and spot; imported prices keep their kind. Raises StoreError."""
        first_hour, end_hour = seconds_since_1970(since) // HOUR_S, -(-seconds_since_1970(until) // HOUR_S)
        part = (segment.c.provider, segment.c.gpu, segment.c.spot)
        query = (
            select(*part, hourly.c.hour, func.min(hourly.c.min_microusd))
            .join_from(hourly, segment, hourly.c.segment_id == segment.c.id)
            # a GPU count of 0: older aggregates
            .where(hourly.c.hour >= first_hour, hourly.c.hour < end_hour, segment.c.gpu_count > 0)
            .group_by(*part, hourly.c.hour)
        )
        if gpus is not None:
            query = query.where(segment.c.gpu.in_(list(gpus)))
        lows_by_part: dict[_Part, dict[int, int]] = {}
        with self._database.read() as connection:
            for source, gpu, spot, hour, low in connection.execute(query):
                lows = lows_by_part.setdefault(
                    (provider_of_source(source), kind_of_source(source), gpu, bool(spot)), {}
                )
                lows[hour] = min(low, lows.get(hour, low))
        return {key: _sorted(lows) for key, lows in lows_by_part.items()}


def _sorted(lows: Mapping[int, int]) -> HourlyLows:
    hours = max(lows) - min(lows) + 1
    return HourlyLows(lows=tuple(sorted(lows.values())), days=-(-hours // 24), by_hour=lows)
