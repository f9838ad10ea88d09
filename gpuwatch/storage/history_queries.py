"""Queries on the history. Prices are listed GPU prices with the default disk, unless a docstring says otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

from gpuwatch.domain.analysis.market_history import MarketFilter
from gpuwatch.domain.analysis.price_series import (
    PeriodLength,
    PricePeriod,
    PricePeriods,
    PriceSeries,
    hours_by_period,
    period_start,
)
from gpuwatch.storage.executor import CoreExecutor, Executor
from gpuwatch.storage.hourly_aggregates import aggregate_hours, covers_between
from gpuwatch.storage.hourly_rollup import COVER_LASTS_S, HOUR_S, HourlyAggregate, Segment
from gpuwatch.storage.price_sources import matches_source, provider_of_source
from gpuwatch.storage.quantile_sketch import STEP, SketchWeights, merge_sketches, quantile
from gpuwatch.storage.recording import seconds

if TYPE_CHECKING:
    from gpuwatch.storage.database import Database

SourceAggregates = Sequence[tuple[str, HourlyAggregate]]  # (provider, figures) of each part
AggregatesByHour = dict[int, list[tuple[str, HourlyAggregate]]]  # by hour

_HOURS = """SELECT hour, min_microusd, q1_microusd, median_microusd, q3_microusd, offers, offer_seconds, sketch
 FROM hourly WHERE segment_id = ? AND hour >= ? AND hour < ?"""
_SEGMENTS = """SELECT id, provider, gpu, gpu_count, spot, gpu_family FROM segment
 WHERE gpu_count > 0"""  # 0: sums that older versions stored
_SEEN_GPUS = "SELECT value FROM seen_value WHERE kind = 'gpu'"
_SEEN_GPUS_BEFORE_0005 = "SELECT word FROM seen_word WHERE kind = 'gpu'"
_FIRST = "SELECT (SELECT min(at_s) FROM poll), (SELECT min(hour) FROM hourly)"


def track(
    database: Database,
    scope: MarketFilter,
    span: tuple[datetime, datetime],
    *,
    spans: tuple[PeriodLength, tzinfo],
    rates: Mapping[str, float],
    trim: bool = False,
) -> PricePeriods:
    """The price track of a part of the market, out of the roll-up and, for what is not summed up yet, the intervals.

    Args:
        spans: how long the points are, and whose midnights they begin at.
        rates: provider → price ÷ listed price; 1 for one that is not named.
        trim: leave out the time before the first hour that somebody looked in.

    Raises:
        StoreError: the database cannot be read.
    """
    first, after = _hours(*span)
    with database.read() as connection:
        executor = CoreExecutor(connection)
        segments = matching_segments(executor, scope)
        found = _stored(executor, segments, first, after)
        found.update(_unfinished(executor, segments, first, span[1]))
        polled = _polled_hours(executor, segments, first, after) | {hour for hour, rows in found.items() if rows}
    first = min((hour for hour in polled if hour >= first), default=after) if trim else first
    return PricePeriods(
        points=[_point(hours, found, polled, rates) for hours in hours_by_period(first, after, *spans)],
        series=PriceSeries(
            first_hour=first,
            lows=[_low(rows, rates) if (rows := found.get(hour)) else None for hour in range(first, after)],
            polled=[hour in polled for hour in range(first, after)],
            source="the store",
        ),
    )


def first_poll_at(database: Database) -> datetime | None:
    """When the history begins; None without any. Raises StoreError."""
    with database.read() as connection:
        return first_poll_at_in(CoreExecutor(connection))


def first_poll_at_in(executor: Executor) -> datetime | None:
    """The same inside a transaction."""
    ((polled_s, hour),) = executor.rows(_FIRST)
    starts = [start for start in (polled_s, None if hour is None else hour * HOUR_S) if start is not None]
    return datetime.fromtimestamp(min(starts), UTC) if starts else None


def kept_from(database: Database) -> datetime | None:
    """From when on the prices themselves are there, not only what hours sum up; None: always. Raises StoreError."""
    with database.read() as connection:
        ((kept_s,),) = CoreExecutor(connection).rows("SELECT kept_from_s FROM history_state WHERE id = 1")
    return None if kept_s is None else datetime.fromtimestamp(kept_s, UTC)


def known_gpu_names(database: Database) -> frozenset[str]:
    """Every GPU name and family that was ever seen: what a watch may name. Raises StoreError.

    Older schemas are read as well: `run` validates the settings before it upgrades the database.
    """
    with database.read() as connection:
        from sqlalchemy import inspect  # noqa: PLC0415 - the light reader uses this module without SQLAlchemy

        older = not inspect(connection).has_table("seen_value")
        return known_gpu_names_in(CoreExecutor(connection), _SEEN_GPUS_BEFORE_0005 if older else _SEEN_GPUS)


def known_gpu_names_in(executor: Executor, seen_gpus: str = _SEEN_GPUS) -> frozenset[str]:
    """The same inside a transaction."""
    on_offer = executor.rows("SELECT gpu FROM segment UNION SELECT gpu_family FROM segment")
    return frozenset(name for (name,) in (*on_offer, *executor.rows(seen_gpus)))


def _hours(since: datetime, until: datetime) -> tuple[int, int]:
    return seconds(since) // HOUR_S, -(-seconds(until) // HOUR_S)


def matching_segments(executor: Executor, scope: MarketFilter) -> dict[int, Segment]:
    """The segments that a filter selects, by their number."""
    rows = executor.rows(_SEGMENTS)
    models = frozenset(row[2] for row in rows)
    return {
        number: (provider, gpu, count, spot)
        for number, provider, gpu, count, spot, family in rows
        if scope.has_spot(bool(spot))
        and scope.has_gpu(gpu, family, models)
        and scope.has_count(count)
        and matches_source(provider, scope.provider)
    }


def _stored(executor: Executor, segments: Mapping[int, Segment], first: int, after: int) -> AggregatesByHour:
    found: AggregatesByHour = {}
    for number, segment in segments.items():
        for hour, *row in executor.rows(_HOURS, (number, first, after)):
            found.setdefault(hour, []).append((segment[0], HourlyAggregate(*row)))
    return found


def unfinished_hours(
    executor: Executor, segments: Mapping[int, Segment], first: int, now: datetime
) -> dict[int, dict[int, HourlyAggregate]]:
    """Hours that are not summed up yet, from the intervals, by part and hour; nothing is written."""
    next_hour = executor.rows("SELECT next_hour FROM history_state WHERE id = 1")[0][0]
    at_s = seconds(now)
    if next_hour is None or not segments:
        return {}
    hours = range(max(first, next_hour), at_s // HOUR_S + 1)
    if not hours:
        return {}
    everything = {row[0]: (row[1], row[2], row[3], row[4]) for row in executor.rows(_SEGMENTS)}
    numbers = {segment: number for number, segment in segments.items()}
    found: dict[int, dict[int, HourlyAggregate]] = {}
    for hour, made in aggregate_hours(executor, hours, everything, at_s).items():
        for segment, row in made.rows().items():
            if segment in numbers:
                found.setdefault(numbers[segment], {})[hour] = row
    return found


def _unfinished(executor: Executor, segments: Mapping[int, Segment], first: int, now: datetime) -> AggregatesByHour:
    found: AggregatesByHour = {}
    for number, by_hour in unfinished_hours(executor, segments, first, now).items():
        for hour, row in by_hour.items():
            found.setdefault(hour, []).append((segments[number][0], row))
    return found


def _polled_hours(executor: Executor, segments: Mapping[int, Segment], first: int, after: int) -> set[int]:
    """In which hours was any of these segments polled?"""
    covers = covers_between(executor, first * HOUR_S, after * HOUR_S, dict(segments))
    polled: set[int] = set()
    for polls in covers.values():
        for poll in polls:
            polled.update(range(poll.at_s // HOUR_S, (poll.at_s + COVER_LASTS_S - 1) // HOUR_S + 1))
    return polled


def _point(hours: Sequence[int], found: AggregatesByHour, polled: set[int], rates: Mapping[str, float]) -> PricePeriod:
    known = sum(hour in polled for hour in hours)
    rows = [row for hour in hours for row in found.get(hour, ())]
    if not rows:
        return PricePeriod(starts_at=period_start(hours), hours=len(hours), polled=known > 0, known_hours=known)
    q1, median, q3 = _quartiles(rows)
    q1_priced, median_priced, q3_priced = _with_commission(rows, (q1, median, q3), rates)
    return PricePeriod(
        starts_at=period_start(hours),
        hours=len(hours),
        polled=True,
        known_hours=known,
        offers=max(sum(row.offers for _, row in found.get(hour, ())) for hour in hours),
        min_microusd=min(row.min_microusd for _, row in rows),
        min_with_commission_microusd=_low(rows, rates),
        q1_microusd=q1,
        median_microusd=median,
        q3_microusd=q3,
        q1_with_commission_microusd=q1_priced,
        median_with_commission_microusd=median_priced,
        q3_with_commission_microusd=q3_priced,
    )


def _low(rows: SourceAggregates, rates: Mapping[str, float]) -> int:
    return min(round(row.min_microusd * rates.get(provider_of_source(name), 1.0)) for name, row in rows)


def _quartiles(rows: SourceAggregates) -> Sequence[int]:
    if len(rows) == 1:
        only = rows[0][1]
        return only.q1_microusd, only.median_microusd, only.q3_microusd
    return _quartiles_of(merge_sketches(row.sketch for _, row in rows))


def _with_commission(rows: SourceAggregates, listed: Sequence[int], rates: Mapping[str, float]) -> Sequence[int]:
    """The quartiles of prices with commission; of several commissions together right within 1 %."""
    by_rate: dict[float, list[bytes]] = {}
    for name, row in rows:
        by_rate.setdefault(rates.get(provider_of_source(name), 1.0), []).append(row.sketch)
    if len(by_rate) == 1:
        (rate,) = by_rate
        return [round(price * rate) for price in listed]
    total: SketchWeights = {}
    for rate, sketches in by_rate.items():
        shift = round(math.log(rate) / math.log(STEP))
        for step, weight in merge_sketches(sketches).items():
            total[step + shift] = total.get(step + shift, 0) + weight
    return _quartiles_of(total)


def _quartiles_of(weights: SketchWeights) -> Sequence[int]:
    return [quantile(weights, share) or 0 for share in (0.25, 0.5, 0.75)]
