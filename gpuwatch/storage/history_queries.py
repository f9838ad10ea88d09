"""Queries on the history. Prices are listed GPU prices with the default disk, unless a docstring says otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo

from sqlalchemy import Connection, inspect, select, text

from gpuwatch.domain.analysis.market_history import MarketFilter
from gpuwatch.domain.analysis.price_series import (
    PeriodLength,
    PeriodSpan,
    PricePeriod,
    PricePeriods,
    PriceSeries,
    period_spans,
)
from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import driver_executor
from gpuwatch.storage.hourly_aggregates import (
    SourceAggregates,
    SplitHour,
    covered_hours,
    matching_segments,
    split_hour,
    unfinished_hours,
)
from gpuwatch.storage.hourly_rollup import HOUR_S, HourlyAggregate, Segment
from gpuwatch.storage.light_reader import GPU_NAMES, HISTORY_START, history_start
from gpuwatch.storage.price_sources import provider_of_source
from gpuwatch.storage.quantile_sketch import STEP, SketchWeights, merge_sketches, quantile, step_of
from gpuwatch.storage.recording import seconds
from gpuwatch.storage.tables import history_state, hourly

AggregatesByHour = dict[int, list[tuple[str, HourlyAggregate]]]  # by hour

_AGGREGATE_COLUMNS = [hourly.c[name] for name in HourlyAggregate._fields]


def read_price_periods(
    database: Database,
    scope: MarketFilter,
    span: tuple[datetime, datetime],
    *,
    spans: tuple[PeriodLength, tzinfo],
    rates: Mapping[str, float],
    trim: bool = False,
) -> PricePeriods:
    """Return the price series of a part of the market, from aggregated hours and, for the newest, the intervals.

    Args:
        spans: the length of the points, and the time zone of their midnights.
        rates: provider → price ÷ listed price; 1 if missing.
        trim: omit the time before the first hour with a poll.

    Raises:
        StoreError: the database cannot be read.
    """
    first_hour, end_hour = seconds(span[0]) // HOUR_S, -(-seconds(span[1]) // HOUR_S)
    with database.read() as connection:
        executor = driver_executor(connection)  # for the roll-up's own functions
        segments = matching_segments(executor, scope)
        unfinished: AggregatesByHour = {}
        for number, by_hour in unfinished_hours(executor, segments, first_hour, span[1]).items():
            for hour, figures in by_hour.items():
                unfinished.setdefault(hour, []).append((segments[number][0], figures))
        # after a late poll an hour is in both, until it is aggregated again
        aggregates = _stored_aggregates(connection, segments, first_hour, end_hour) | unfinished
        polled_hours = covered_hours(executor, segments, first_hour, end_hour) | aggregates.keys()
        if trim:
            first_hour = min((hour for hour in polled_hours if hour >= first_hour), default=end_hour)
        periods = list(period_spans(first_hour, end_hour, *spans))
        kept_s = connection.execute(select(history_state.c.kept_from_s)).scalar() or 0
        split = {
            at_s: split_hour(executor, segments, at_s, seconds(span[1]))
            if at_s // HOUR_S * HOUR_S >= kept_s
            else _whole_hour(aggregates.get(at_s // HOUR_S, []), at_s)
            for at_s, _ in periods
            if at_s % HOUR_S
        }
    return PricePeriods(
        points=[_point(period, aggregates, split, polled_hours, rates) for period in periods],
        series=PriceSeries(
            first_hour=first_hour,
            lows=[
                _low(rows, rates) if (rows := aggregates.get(hour)) else None for hour in range(first_hour, end_hour)
            ],
            polled=[hour in polled_hours for hour in range(first_hour, end_hour)],
            source="the store",
        ),
    )


def first_poll_at(database: Database) -> datetime | None:
    """Return the beginning of the history, or None. Raises StoreError."""
    with database.read() as connection:
        return history_start(*connection.execute(text(HISTORY_START)).one())


def kept_from(database: Database) -> datetime | None:
    """Return from when prices are stored, not only hourly aggregates; None: always. Raises StoreError."""
    with database.read() as connection:
        kept_s = connection.execute(select(history_state.c.kept_from_s)).scalar_one()
    return None if kept_s is None else datetime.fromtimestamp(kept_s, UTC)


def known_gpu_names(database: Database) -> frozenset[str]:
    """Return every GPU name and family ever seen, which a watch may name. Raises StoreError.

    Also reads older schemas: `run` validates the settings before it upgrades the database.
    """
    with database.read() as connection:
        is_older_schema = not inspect(connection).has_table("seen_value")
        names = GPU_NAMES.replace("value FROM seen_value", "word FROM seen_word") if is_older_schema else GPU_NAMES
        return frozenset(connection.execute(text(names)).scalars())


def known_places(database: Database) -> frozenset[str]:
    """Return every region that a provider has shown, from any schema. Raises StoreError."""
    with database.read() as connection:
        return frozenset(connection.execute(text("SELECT region FROM place")).scalars())


def _stored_aggregates(
    connection: Connection, segments: Mapping[int, Segment], first: int, after: int
) -> AggregatesByHour:
    query = select(hourly.c.segment_id, hourly.c.hour, *_AGGREGATE_COLUMNS).where(
        hourly.c.segment_id.in_(list(segments)), hourly.c.hour >= first, hourly.c.hour < after
    )
    aggregates: AggregatesByHour = {}
    for segment_id, hour, *figures in connection.execute(query).all():
        aggregates.setdefault(hour, []).append((segments[segment_id][0], HourlyAggregate(*figures)))
    return aggregates


def _whole_hour(rows: SourceAggregates, at_s: int) -> SplitHour:
    """Both parts of an hour whose intervals were pruned: the longer one gets all of it, and the later of two halves."""
    return (rows, []) if at_s % HOUR_S > HOUR_S / 2 else ([], rows)


def _point(
    period: PeriodSpan,
    aggregates: AggregatesByHour,
    split: Mapping[int, SplitHour],
    polled: set[int],
    rates: Mapping[str, float],
) -> PricePeriod:
    starts_at, known_hours = datetime.fromtimestamp(period.start_s, UTC), period.known_hours(polled)
    whole_hours = range(-(-period.start_s // HOUR_S), period.end_s // HOUR_S)
    by_hour: list[SourceAggregates] = [aggregates.get(hour, []) for hour in whole_hours]
    by_hour += [split[period.start_s][1]] if period.start_s in split else []
    by_hour += [split[period.end_s][0]] if period.end_s in split else []
    rows = [row for hour in by_hour for row in hour]
    if not rows:
        return PricePeriod(starts_at=starts_at, hours=period.hours, polled=known_hours > 0, known_hours=known_hours)
    q1, median, q3 = _quartiles(rows)
    q1_priced, median_priced, q3_priced = _with_commission(rows, (q1, median, q3), rates)
    return PricePeriod(
        starts_at=starts_at,
        hours=period.hours,
        polled=True,
        known_hours=known_hours,
        offers=max(sum(row.offers for _, row in hour) for hour in by_hour),
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
        aggregate = rows[0][1]
        return aggregate.q1_microusd, aggregate.median_microusd, aggregate.q3_microusd
    weights = merge_sketches(row.sketch for _, row in rows)
    return _quartiles_of(weights, lowest_microusd=min(row.min_microusd for _, row in rows))


def _with_commission(rows: SourceAggregates, listed: Sequence[int], rates: Mapping[str, float]) -> Sequence[int]:
    """Return the quartiles of prices with commission; with several commissions they are accurate to 1 %."""
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
    return _quartiles_of(total, lowest_microusd=_low(rows, rates))


def _quartiles_of(weights: SketchWeights, lowest_microusd: int) -> Sequence[int]:
    """The middles of their steps; in the step of the lowest price that price itself, as its middle may be lower."""
    prices = [quantile(weights, share) or 0 for share in (0.25, 0.5, 0.75)]
    return [lowest_microusd if step_of(price) <= step_of(lowest_microusd) else price for price in prices]
