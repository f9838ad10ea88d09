"""Queries on the history: price periods, the lowest price of each hour, current offers, known names.

Prices are listed GPU prices with the default disk, unless a docstring says otherwise.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import groupby
from operator import itemgetter

from sqlalchemy import Connection, case, column, func, inspect, select, table, union

from gpuwatch.domain.history.hourly_rollup import (
    STEP,
    HourlyAggregate,
    Segment,
    SketchWeights,
    merge_sketches,
    quantiles,
    step_of,
)
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.past_lows import HourlyLows
from gpuwatch.domain.history.price_series import (
    PeriodLength,
    PeriodSpan,
    PricePeriod,
    PricePeriods,
    PriceSeries,
    period_spans,
)
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.market.offer import NO_GPU, OfferKind, Verification
from gpuwatch.domain.market.search_query import SaleKey, SalePrice
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.storage.history.recording.hourly_aggregates import (
    SourceAggregates,
    SplitHour,
    covered_hours,
    hours_in,
    lows_of_verified,
    matching_segments,
    split_hour,
    unfinished_hours,
)
from gpuwatch.storage.history.recording.open_prices import BY_SERIES, NEVER, NEWEST_S, load_open_prices
from gpuwatch.storage.history.recording.price_sources import kind_of_source, provider_of_source
from gpuwatch.storage.history.recording.recorded_polls import first_poll_s, newest_covers
from gpuwatch.storage.history.recording.recording import seconds_since_1970
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import seen_value
from gpuwatch.storage.setup.stored_values import AnyRow
from gpuwatch.storage.setup.tables import (
    history_state,
    hourly,
    place,
    price_interval,
    segment,
    series,
)

AggregatesByHour = dict[int, list[tuple[str, HourlyAggregate]]]
_ROWS_AT_ONCE = 4096
_HIGHER = 2**63  # than any price
_Part = tuple[str, OfferKind, str, bool]
_SEEN_WORD = table("seen_word", column("kind"), column("word"))  # older schemas: today's `seen_value`
_FIRST_OF_SEGMENT = select(func.min(hourly.c.hour)).where(hourly.c.segment_id == segment.c.id).scalar_subquery()
FIRST_HOUR = select(func.min(_FIRST_OF_SEGMENT)).select_from(segment)
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
    until_s, verified = seconds_since_1970(span[1]), scope.verified
    first_hour, end_hour = seconds_since_1970(span[0]) // HOUR_S, -(-until_s // HOUR_S)
    with database.read() as connection:
        segments = matching_segments(connection, scope)
        unfinished: AggregatesByHour = {}
        running = unfinished_hours(connection, segments, first_hour, until_s, verified=verified)
        for number, by_hour in running.items():
            for hour, figures in by_hour.items():
                unfinished.setdefault(hour, []).append((segments[number][0], figures))
        # after a late poll an hour is in both, until it is aggregated again
        stored = {} if verified else _stored_aggregates(connection, segments, first_hour, end_hour)
        aggregates = stored | unfinished
        polled_hours = covered_hours(connection, segments, first_hour, end_hour) | aggregates.keys()
        if trim:
            first_hour = min((hour for hour in polled_hours if hour >= first_hour), default=end_hour)
        periods = list(period_spans(first_hour, end_hour, *spans))
        kept_s = connection.execute(select(history_state.c.kept_from_s)).scalar() or 0
        split = {
            at_s: split_hour(connection, segments, at_s, until_s, verified=verified)
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
        polled_s = first_poll_s(connection)
        first_hour = hours_in(connection).execute(FIRST_HOUR).scalar()
    starts = [polled_s, None if first_hour is None else first_hour * HOUR_S]
    start_s = min((at_s for at_s in starts if at_s is not None), default=None)
    return None if start_s is None else datetime.fromtimestamp(start_s, UTC)


def kept_from(database: Database) -> datetime | None:
    """Return from when prices are stored, not only hourly aggregates; None: always. Raises StoreError."""
    with database.read() as connection:
        kept_s = connection.execute(select(history_state.c.kept_from_s)).scalar_one()
    return None if kept_s is None else datetime.fromtimestamp(kept_s, UTC)


def newest_prices(database: Database, gpus: Collection[str] | None = None) -> list[tuple[str, str, datetime]]:
    """Return when any price of each GPU was last seen, by name in the history and GPU. Raises StoreError."""
    scope = segment.c.provider, segment.c.gpu, segment.c.spot
    open_from_s = case((price_interval.c.seen_to_s.is_(None), price_interval.c.seen_from_s))
    query = (
        select(*scope, func.max(price_interval.c.seen_to_s), func.max(open_from_s))
        .join_from(segment, series, series.c.segment_id == segment.c.id)
        .join(price_interval, BY_SERIES)
        .where(price_interval.c.seen_from_s == NEWEST_S)
        .group_by(*scope)
    )
    if gpus is not None:
        query = query.where(segment.c.gpu.in_(list(gpus)))
    newest: dict[tuple[str, str], int] = {}
    with database.read() as connection:
        covers = newest_covers(connection)
        for name, gpu, spot, seen_to_s, from_s in connection.execute(query):
            covered_s = [covers[one] for one in ((name, gpu, spot), (name, "", spot)) if one in covers]
            open_s = None if from_s is None else max(covered_s, default=from_s)
            seen = [at_s for at_s in (newest.get((name, gpu)), seen_to_s, open_s) if at_s is not None]
            newest[name, gpu] = max(seen)
    return [(name, gpu, datetime.fromtimestamp(at_s, UTC)) for (name, gpu), at_s in newest.items()]


def known_gpu_names(database: Database) -> frozenset[str]:
    """Return every GPU name and family ever seen, which a watch may name. Raises StoreError.

    Also reads older schemas: `run` validates the settings before it upgrades the database.
    """
    with database.read() as connection:
        seen_gpus = select(seen_value.c.value).where(seen_value.c.kind == "gpu")
        if not inspect(connection).has_table("seen_value"):
            seen_gpus = select(_SEEN_WORD.c.word).where(_SEEN_WORD.c.kind == "gpu")
        names = union(select(segment.c.gpu), select(segment.c.gpu_family), seen_gpus)
        return frozenset(connection.execute(names).scalars()) - {NO_GPU}


def known_places(database: Database) -> frozenset[str]:
    """Return every region that a provider has shown, from any schema. Raises StoreError."""
    with database.read() as connection:
        return frozenset(connection.execute(select(place.c.region)).scalars())


def _stored_aggregates(
    connection: Connection, segments: Mapping[int, Segment], first: int, after: int
) -> AggregatesByHour:
    query = select(hourly.c.segment_id, hourly.c.hour, *_AGGREGATE_COLUMNS).where(
        hourly.c.segment_id.in_(list(segments)), hourly.c.hour >= first, hourly.c.hour < after
    )
    aggregates: AggregatesByHour = {}
    streamed = {
        "yield_per": _ROWS_AT_ONCE
    }  # PostgreSQL's driver would hold all rows at once, beside what is made of them
    for rows in hours_in(connection).execute(query, execution_options=streamed).partitions():
        for row in rows:
            aggregates.setdefault(row[1], []).append((segments[row[0]][0], HourlyAggregate._make(row[2:])))
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
    starts_at, known_hours = datetime.fromtimestamp(period.start_s, UTC), period.known_hours(period.known_s(polled))
    whole_hours = range(-(-period.start_s // HOUR_S), period.end_s // HOUR_S)
    by_hour: list[SourceAggregates] = [aggregates.get(hour, []) for hour in whole_hours]
    by_hour += [split[period.start_s][1]] if period.start_s in split else []
    by_hour += [split[period.end_s][0]] if period.end_s in split else []
    rows = [row for hour in by_hour for row in hour]
    if not rows:
        return PricePeriod(starts_at=starts_at, hours=period.hours, polled=known_hours > 0, known_hours=known_hours)
    lows = min(row.min_microusd for _, row in rows), _low(rows, rates)
    (q1, median, q3), (q1_priced, median_priced, q3_priced) = _quartiles(rows, rates, lows)
    return PricePeriod(
        starts_at=starts_at,
        hours=period.hours,
        polled=True,
        known_hours=known_hours,
        offers=max(sum(row.offers for _, row in hour) for hour in by_hour),
        min_microusd=lows[0],
        min_with_commission_microusd=lows[1],
        q1_microusd=q1,
        median_microusd=median,
        q3_microusd=q3,
        q1_with_commission_microusd=q1_priced,
        median_with_commission_microusd=median_priced,
        q3_with_commission_microusd=q3_priced,
    )


def _low(rows: SourceAggregates, rates: Mapping[str, float]) -> int:
    lows: dict[str, int] = {}
    for name, row in rows:
        if row.min_microusd < lows.get(name, _HIGHER):
            lows[name] = row.min_microusd
    return min(round(low * rates.get(provider_of_source(name), 1.0)) for name, low in lows.items())


def _quartiles(
    rows: SourceAggregates, rates: Mapping[str, float], lows: tuple[int, int]
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the quartiles as listed and with commission; with several commissions these are accurate to 1 %.

    Args:
        lows: the lowest price as listed, and with commission.
    """
    by_name: dict[str, list[bytes]] = {}
    for name, row in rows:
        by_name.setdefault(name, []).append(row.sketch)
    by_rate: dict[float, list[bytes]] = {}
    for name, sketches in by_name.items():
        by_rate.setdefault(rates.get(provider_of_source(name), 1.0), []).extend(sketches)
    merged = {} if len(rows) == 1 else {rate: merge_sketches(sketches) for rate, sketches in by_rate.items()}
    if merged:
        total = _shifted_sum((weights, 0) for weights in merged.values())
        listed = _quartiles_of(total, lowest_microusd=lows[0])
    else:
        aggregate = rows[0][1]
        listed = aggregate.q1_microusd, aggregate.median_microusd, aggregate.q3_microusd
    if len(by_rate) == 1:
        (rate,) = by_rate
        return listed, [round(price * rate) for price in listed]
    shifted = _shifted_sum((weights, round(math.log(rate) / math.log(STEP))) for rate, weights in merged.items())
    return listed, _quartiles_of(shifted, lowest_microusd=lows[1])


def _shifted_sum(parts: Iterable[tuple[SketchWeights, int]]) -> SketchWeights:
    """The sum of sketches, each moved by a number of steps."""
    total: SketchWeights = {}
    for weights, shift in parts:
        for step, weight in weights.items():
            total[step + shift] = total.get(step + shift, 0) + weight
    return total


def _quartiles_of(weights: SketchWeights, lowest_microusd: int) -> Sequence[int]:
    """The middles of their steps; in the step of the lowest price that price itself, as its middle may be lower."""
    prices = quantiles(weights, (0.25, 0.5, 0.75)) or [0, 0, 0]
    return [lowest_microusd if step_of(price) <= step_of(lowest_microusd) else price for price in prices]


class SqlHourlyLows:
    """Implements `ports.store.HourlyLowsReader` over the database.

    Args:
        providers: only their prices; None: all.
        gpu_count: only offers of this many GPUs; None: all.
    """

    def __init__(
        self, database: Database, providers: Collection[str] | None = None, gpu_count: int | None = None
    ) -> None:
        self._database = database
        self._providers = providers
        self._gpu_count = gpu_count

    def hourly_lows(
        self, gpus: Collection[str] | None, since: datetime, until: datetime, *, verified: bool = False
    ) -> Mapping[_Part, HourlyLows]:
        """Return it by provider, kind of price, GPU and spot; imported prices keep their kind. Raises StoreError."""
        first_hour, end_hour = seconds_since_1970(since) // HOUR_S, -(-seconds_since_1970(until) // HOUR_S)
        if verified:
            return self._of_verified(gpus, first_hour, end_hour)
        query = (
            select(segment.c.gpu, segment.c.provider, segment.c.spot, hourly.c.hour, func.min(hourly.c.min_microusd))
            .join_from(hourly, segment, hourly.c.segment_id == segment.c.id)
            # a GPU count of 0: older aggregates
            .where(hourly.c.hour >= first_hour, hourly.c.hour < end_hour, segment.c.gpu_count > 0)
            .group_by(segment.c.gpu, segment.c.provider, segment.c.spot, hourly.c.hour)
            .order_by(segment.c.gpu)
        )
        if gpus is not None:
            query = query.where(segment.c.gpu.in_(list(gpus)))
        if self._gpu_count is not None:
            query = query.where(segment.c.gpu_count == self._gpu_count)
        found: dict[_Part, HourlyLows] = {}
        with self._database.read() as connection:
            for gpu, rows in groupby(hours_in(connection).execute(query), key=itemgetter(0)):
                found |= self._of_gpu(gpu, rows)
        return found

    def _of_verified(self, gpus: Collection[str] | None, first_hour: int, end_hour: int) -> Mapping[_Part, HourlyLows]:
        """Return only hours that are over: of the others, no prices are read twice."""
        scope = MarketFilter(gpu_count_min=self._gpu_count, gpu_count_max=self._gpu_count)
        found: dict[str, list[tuple[str, str, bool, int, int]]] = {}
        with self._database.read() as connection:
            end_hour = min(end_hour, connection.execute(select(history_state.c.next_hour)).scalar() or end_hour)
            segments = {
                number: part
                for number, part in matching_segments(connection, scope).items()
                if gpus is None or part[1] in gpus
            }
            hours = range(first_hour, end_hour)
            parts = lows_of_verified(connection, segments, hours, lambda key: (key[0], key[1], bool(key[3])))
            for (source, gpu, spot), hour, low in parts:
                found.setdefault(gpu, []).append((gpu, source, spot, hour, low))
        return {part: lows for gpu, rows in found.items() for part, lows in self._of_gpu(gpu, rows).items()}

    def _of_gpu(self, gpu: str, rows: Iterable[AnyRow | tuple[str, str, bool, int, int]]) -> Mapping[_Part, HourlyLows]:
        lows_by_part: dict[_Part, dict[int, int]] = {}
        for _, source, spot, hour, low in rows:
            provider = provider_of_source(source)
            if self._providers is None or provider in self._providers:
                lows = lows_by_part.setdefault((provider, kind_of_source(source), gpu, bool(spot)), {})
                lows[hour] = min(low, lows.get(hour, low))
        return {part: _compact(lows) for part, lows in lows_by_part.items()}


def _compact(lows: Mapping[int, int]) -> HourlyLows:
    hours = sorted(lows, key=lambda hour: (lows[hour], hour))
    return HourlyLows(
        lows=array("q", (lows[hour] for hour in hours)),
        days=-(-(max(hours) - min(hours) + 1) // 24),
        hours=array("i", hours),
    )


def prices_on_sale(database: Database, provider: str) -> Mapping[SaleKey, Sequence[SalePrice]]:
    """Return the offers of each completely read GPU and rental type.

    Raises:
        StoreError: the database cannot be read.
    """
    with database.read() as connection:
        prices = load_open_prices(connection)
    on_sale: dict[SaleKey, Sequence[SalePrice]] = {}
    for spot in (False, True):
        provider_prices = prices.prices_of(provider, int(spot))
        for gpu in {*provider_prices.covered_s, *provider_prices.models} - {""}:
            if provider_prices.newest_cover(gpu) != NEVER:
                on_sale[gpu, spot] = [
                    SalePrice(
                        count,
                        open_price.machine_microusd / MICRO,
                        (open_price.disk_microusd or 0) / MICRO,
                        None if open_price.verification is None else open_price.verification is Verification.VERIFIED,
                        machine_id=machine,
                    )
                    for (machine, count), open_price in provider_prices.models.get(gpu, {}).items()
                ]
    return on_sale
