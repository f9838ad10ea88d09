"""The lowest price of each hour of every GPU at once, from the hourly aggregates: for pages, so without numpy."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult, bindparam, func, select

from gpuwatch.domain.history.hourly_rollup import Segment
from gpuwatch.domain.history.market_history import COVERAGE_S, MarketFilter
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.storage.history.recording.hourly_aggregates import hours_in, lows_of_verified, matching_segments
from gpuwatch.storage.history.recording.price_sources import provider_of_source
from gpuwatch.storage.history.recording.recorded_polls import read_polls
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import history_state, hourly

_NEXT_HOUR = select(history_state.c.next_hour)
_HIGHER = 2**63  # than any price
# one GPU at a time: grouping a whole market takes the database twice as long
_LOWS = (
    select(hourly.c.hour, func.min(hourly.c.min_microusd))
    .where(hourly.c.segment_id.in_(bindparam("segments", expanding=True)))
    .where(hourly.c.hour >= bindparam("first_hour"), hourly.c.hour < bindparam("end_hour"))
    .group_by(hourly.c.hour)
)


class GpuLows(NamedTuple):
    """The past hours of one GPU.

    Attributes:
        lows: hour since 1970 → micro-dollars per GPU-hour, commission included; missing: nothing was on sale, or it is
            not known.
        unpolled: the newest hours that no poll covers.
    """

    lows: Mapping[int, int]
    unpolled: Collection[int]


def read_gpu_lows(
    database: Database, scope: MarketFilter, end_hour: int, hours: int, recent_hours: int, rates: Mapping[str, float]
) -> tuple[Mapping[str, GpuLows], int]:
    """Return the lowest prices of `hours` hours by GPU, and the hour that follows them: only those that are over.

    Args:
        end_hour: they end at this one, or with the newest that is stored.
        recent_hours: of so many, tell which were polled.
        rates: provider → price ÷ listed price; 1 if missing.

    Raises:
        StoreError: the database cannot be read.
    """
    with database.read() as connection:
        segments = matching_segments(connection, scope)
        end_hour = min(end_hour, connection.execute(_NEXT_HOUR).scalar() or end_hour)
        lows_of = _lows_of_verified if scope.verified else _lows
        lows = lows_of(connection, segments, range(end_hour - hours, end_hour), rates)
        recent = range(end_hour - recent_hours, end_hour)
        missing = {gpu: [hour for hour in recent if hour not in prices] for gpu, prices in lows.items()}
        unpolled = _unpolled(connection, segments, missing, recent)
    return {gpu: GpuLows(prices, unpolled[gpu]) for gpu, prices in lows.items()}, end_hour


def _lows(
    connection: Connection, segments: Mapping[int, Segment], hours: range, rates: Mapping[str, float]
) -> dict[str, dict[int, int]]:
    parts: dict[str, dict[float, list[int]]] = {}
    for number, (source, gpu, _, _) in segments.items():
        rate = rates.get(provider_of_source(source), 1.0)
        parts.setdefault(gpu, {}).setdefault(rate, []).append(number)
    found: dict[str, dict[int, int]] = {}
    for gpu, by_rate in parts.items():
        prices: dict[int, int] = {}
        for rate, numbers in by_rate.items():
            span = {"segments": numbers, "first_hour": hours.start, "end_hour": hours.stop}
            for hour, listed in _fetched(hours_in(connection).execute(_LOWS, span)):
                price = round(listed * rate)
                if price < prices.get(hour, _HIGHER):
                    prices[hour] = price
        if prices:
            found[gpu] = prices
    return found


def _lows_of_verified(
    connection: Connection, segments: Mapping[int, Segment], hours: range, rates: Mapping[str, float]
) -> dict[str, dict[int, int]]:
    """Also a GPU of which no host was verified: its hours were polled, and nothing was on sale."""
    found: dict[str, dict[int, int]] = {gpu: {} for _, gpu, _, _ in segments.values()}

    def price_of(listed: int, key: Segment) -> int:
        return round(listed * rates.get(provider_of_source(key[0]), 1.0))

    for gpu, hour, price in lows_of_verified(connection, segments, hours, lambda key: key[1], price_of):
        found[gpu][hour] = min(price, found[gpu].get(hour, _HIGHER))
    return found


def _fetched(found: CursorResult[Any]) -> Iterable[Sequence[int]]:
    """Return rows of integers as the driver has them: they need no conversion, and SQLAlchemy's rows take as long."""
    rows: Iterable[Sequence[int]] = found.cursor.fetchall()
    found.close()
    return rows


def _unpolled(
    connection: Connection, segments: Mapping[int, Segment], missing: Mapping[str, Collection[int]], recent: range
) -> dict[str, set[int]]:
    """Of hours without a price, return those that no poll covers. Where there is a price, one does."""
    scopes: dict[str, set[tuple[str, str, int]]] = {}
    for source, gpu, _, spot in segments.values():
        if missing.get(gpu):
            scopes.setdefault(gpu, set()).update(((source, gpu, spot), (source, "", spot)))
    wanted = {scope for of_gpu in scopes.values() for scope in of_gpu}
    span = recent.start * HOUR_S - COVERAGE_S, recent.stop * HOUR_S
    polls = read_polls(connection, wanted, *span, covering=True) if wanted else {}

    def is_covered(hour: int, of_gpu: Iterable[tuple[str, str, int]]) -> bool:
        first_s, end_s = hour * HOUR_S - COVERAGE_S + 1, (hour + 1) * HOUR_S
        times = (polls[scope].at_s for scope in of_gpu if scope in polls)
        return any((at := bisect_left(one, first_s)) < len(one) and one[at] < end_s for one in times)

    return {gpu: {hour for hour in hours if not is_covered(hour, scopes[gpu])} for gpu, hours in missing.items()}
