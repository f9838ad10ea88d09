"""Reads the intervals for an hourly roll-up (from the cache or the database), and stores its rows."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from gpuwatch.storage.answer_changes import reference_microusd
from gpuwatch.storage.executor import Executor, Row
from gpuwatch.storage.hourly_rollup import (
    COVERAGE_S,
    HOUR_S,
    CoveringPoll,
    CoverScope,
    HourlyAggregate,
    HourlyRollup,
    PricedInterval,
    Segment,
    ended_at,
)
from gpuwatch.storage.open_prices import OpenPrices
from gpuwatch.storage.price_sources import is_imported_source, matches_source
from gpuwatch.storage.recording import EndedInterval, seconds

if TYPE_CHECKING:
    from gpuwatch.domain.analysis.market_history import MarketFilter

_CHUNK_HOURS = 24
_NO_DISK_PRICE = -1
_VALUES_PER_INTERVAL = 5  # values per ended interval

HourRows = dict[Segment, HourlyAggregate]
SourceAggregates = Sequence[tuple[str, HourlyAggregate]]  # (provider, aggregate) of each part of the market
SplitHour = tuple[SourceAggregates, SourceAggregates]  # before and after a time within the hour

_INTERVALS = """SELECT p.series_id, s.segment_id, p.seen_from_s, p.seen_to_s, p.machine_microusd_hour,
 p.disk_microusd_gb_month FROM price_interval p JOIN series s ON s.id = p.series_id
 WHERE p.seen_from_s < ? AND (p.seen_to_s IS NULL OR p.seen_to_s >= ?)"""
_OF_SOURCE = " AND s.segment_id IN (SELECT id FROM segment WHERE provider = ?)"
_OF_SEGMENTS = " AND s.segment_id IN ({})"
_ORDER = " ORDER BY p.series_id, p.seen_from_s"
INTERVALS_OF_SOURCE = _INTERVALS + _OF_SOURCE + _ORDER
_COVERS = """SELECT at_s, complete_to_microusd FROM poll WHERE covers = 1 AND provider = ? AND gpu IN (?, '')
 AND spot = ? AND at_s >= ? AND at_s < ? ORDER BY at_s"""
_POLLED = "SELECT DISTINCT at_s / 3600 FROM poll WHERE at_s >= ? AND at_s < ?"
_SEGMENTS = "SELECT id, provider, gpu, gpu_count, spot, gpu_family FROM segment WHERE gpu_count > 0"  # 0: older rows
WRITE_HOURLY = """INSERT INTO hourly (segment_id, hour, min_microusd, q1_microusd, median_microusd, q3_microusd, offers,
 offer_seconds, sketch) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""


class EndedIntervalLog:
    """Recently ended intervals, packed by segment, for the roll-up of the current hour."""

    def __init__(self, since_s: int) -> None:
        self.since_s = since_s  # all that ended from then on is included
        self._values: dict[int, array[int]] = {}

    def add(self, ended: Iterable[EndedInterval]) -> None:
        """Append intervals."""
        for interval in ended:
            disk = _NO_DISK_PRICE if interval.disk_microusd is None else interval.disk_microusd
            values = self._values.setdefault(interval.segment_id, array("q"))
            values.extend((interval.series_id, interval.from_s, interval.until_s, interval.machine_microusd, disk))

    def segment_intervals(self, segment_id: int) -> Iterator[PricedInterval]:
        """Yield the intervals of one segment."""
        values = iter(self._values.get(segment_id, ()))
        for series_id, from_s, until_s, machine, disk in zip(*[values] * _VALUES_PER_INTERVAL, strict=True):
            price = reference_microusd(machine, None if disk == _NO_DISK_PRICE else disk)
            yield PricedInterval(segment_id, series_id, from_s, until_s, price)

    def drop_before(self, before_s: int) -> None:
        """Drop intervals that ended before then, segment by segment: a second copy of all would need more memory."""
        for segment_id in list(self._values):
            values = self._values.pop(segment_id)
            newer = array("q")
            for start in range(0, len(values), _VALUES_PER_INTERVAL):
                if values[start + 2] > before_s:
                    newer.extend(values[start : start + _VALUES_PER_INTERVAL])
            if newer:
                self._values[segment_id] = newer


def intervals_in_memory(
    prices: OpenPrices, log: EndedIntervalLog, segments: Mapping[int, Segment], gpu: str, spot: int
) -> Iterator[PricedInterval]:
    """Yield the open intervals of one GPU and rental type, and those that ended since the log began."""
    for segment_id in segments:
        yield from log.segment_intervals(segment_id)
    for (_, stored_spot), provider_prices in prices.by_provider.items():
        if stored_spot == spot:
            for open_price in chain.from_iterable(model.values() for model in provider_prices.offers_of_gpu(gpu)):
                price = reference_microusd(open_price.machine_microusd, open_price.disk_microusd)
                yield PricedInterval(open_price.segment_id, open_price.series_id, open_price.seen_from_s, None, price)


def covers_between(
    executor: Executor, start_s: int, end_s: int | None, segments: Mapping[int, Segment]
) -> dict[CoverScope, list[CoveringPoll]]:
    """Return the covering polls that apply to a span of time; a poll of all models counts for each."""
    until_s = 2**31 - 1 if end_s is None else end_s
    return {
        scope: [CoveringPoll(*row) for row in executor.rows(_COVERS, (*scope, start_s - COVERAGE_S, until_s))]
        for scope in {(provider, gpu, spot) for provider, gpu, _, spot in segments.values()}
    }


def polled_hours(executor: Executor, first_hour: int, end_hour: int) -> list[int]:
    """Return the hours that can have data: those with a poll shortly before or in them."""
    rows = executor.rows(_POLLED, (first_hour * HOUR_S - COVERAGE_S, end_hour * HOUR_S))
    lasting_hours = COVERAGE_S // HOUR_S
    hours = {int(row[0]) + later for row in rows for later in range(lasting_hours + 1)}
    return sorted(hour for hour in hours if first_hour <= hour < end_hour)


def aggregate_from_memory(
    executor: Executor, first_hour: int, end_hour: int, prices: OpenPrices, log: EndedIntervalLog
) -> Iterator[tuple[int, HourRows]]:
    """Aggregate hours [first, after) from the cache; the log must reach back to their start."""
    segments = segments_by_id(prices)
    for hour in range(first_hour, end_hour):
        end_s = (hour + 1) * HOUR_S
        covers = covers_between(executor, hour * HOUR_S, end_s, segments)
        rows: HourRows = {}
        for (gpu, spot), part in _by_gpu(segments).items():
            rollup = HourlyRollup(hour, part, covers, end_s)
            rollup.add(intervals_in_memory(prices, log, part, gpu, spot))
            rows |= rollup.rows()
        yield hour, rows


def aggregate_from_store(
    executor: Executor, first_hour: int, end_hour: int, prices: OpenPrices
) -> Iterator[tuple[int, HourRows]]:
    """Aggregate hours [first, after) from the stored intervals, one day at a time."""
    segments = segments_by_id(prices)
    hours = polled_hours(executor, first_hour, end_hour)
    while hours:
        chunk = [hour for hour in hours if hour < hours[0] + _CHUNK_HOURS]
        hours = hours[len(chunk) :]
        yield from aggregate_hours(executor, chunk, segments, (chunk[-1] + 1) * HOUR_S).items()


def aggregate_hours(
    executor: Executor, hours: Sequence[int], segments: Mapping[int, Segment], end_s: int
) -> dict[int, HourRows]:
    """Aggregate hours, in ascending order, from the intervals of these segments; the last one only until `end_s`."""
    aggregates: dict[int, HourRows] = {hour: {} for hour in hours}
    for hour, rollup in rollups(executor, hours, segments, end_s):
        aggregates[hour] |= rollup.rows()
    return aggregates


def split_hour(executor: Executor, segments: Mapping[int, Segment], at_s: int, until_s: int) -> SplitHour:
    """Aggregate the parts of an hour before and after a time within it, from the intervals; nothing from `until_s`."""
    start_s = at_s // HOUR_S * HOUR_S
    ends = min(at_s, until_s), max(at_s, min(start_s + HOUR_S, until_s))
    before, after = (_part_of_hour(executor, segments, *span) for span in zip((start_s, at_s), ends, strict=True))
    return before, after


def _part_of_hour(
    executor: Executor, segments: Mapping[int, Segment], start_s: int, end_s: int
) -> list[tuple[str, HourlyAggregate]]:
    rows: HourRows = {}
    for _, rollup in rollups(executor, [start_s // HOUR_S], segments, end_s, start_s):
        rows |= rollup.rows()
    return [(segment[0], row) for segment, row in rows.items()]


def rollups(
    executor: Executor, hours: Sequence[int], segments: Mapping[int, Segment], end_s: int, from_s: int = 0
) -> Iterator[tuple[int, HourlyRollup]]:
    """Yield the results of `aggregate_hours`: each hour once for each GPU and rental type; the first from `from_s`."""
    start_s = hours[0] * HOUR_S
    covers = covers_between(executor, start_s, None, segments)
    ended_polls = {scope: [poll for poll in polls if poll.at_s < end_s] for scope, polls in covers.items()}
    poll_times = {scope: [poll.at_s for poll in polls] for scope, polls in covers.items()}
    for part in _by_gpu(segments).values():
        by_hour = {hour: HourlyRollup(hour, part, ended_polls, end_s, from_s) for hour in hours}
        sql = _INTERVALS + _OF_SEGMENTS.format(", ".join(map(str, part))) + _ORDER
        rows = executor.rows(sql, (end_s, start_s - COVERAGE_S))
        for _, group in groupby(rows, key=itemgetter(0)):
            for interval in _intervals_of(list(group), poll_times, part):
                last_s = end_s if interval.until_s is None else min(interval.until_s, end_s)
                first = bisect_left(hours, interval.from_s // HOUR_S)
                for hour in hours[first : bisect_right(hours, (last_s - 1) // HOUR_S)]:
                    by_hour[hour].add((interval,))
        yield from by_hour.items()


def _by_gpu(segments: Mapping[int, Segment]) -> dict[tuple[str, int], dict[int, Segment]]:
    """Group segments by GPU and rental type. All at once would need several MB, which a process never returns."""
    parts: dict[tuple[str, int], dict[int, Segment]] = {}
    for number, segment in segments.items():
        parts.setdefault((segment[1], segment[3]), {})[number] = segment
    return parts


def unfinished_hours(
    executor: Executor, segments: Mapping[int, Segment], first: int, now: datetime
) -> dict[int, dict[int, HourlyAggregate]]:
    """Aggregate hours without stored rows, from the intervals, by part and hour; writes nothing."""
    next_hour = executor.rows("SELECT next_hour FROM history_state WHERE id = 1")[0][0]
    at_s = seconds(now)
    if next_hour is None or not segments:
        return {}
    hours = range(max(first, next_hour), at_s // HOUR_S + 1)
    if not hours:
        return {}
    numbers = {segment: number for number, segment in segments.items()}
    aggregates: dict[int, dict[int, HourlyAggregate]] = {}
    for hour, rows in aggregate_hours(executor, hours, segments, at_s).items():
        for segment, row in rows.items():
            aggregates.setdefault(numbers[segment], {})[hour] = row
    return aggregates


def covered_hours(executor: Executor, segments: Mapping[int, Segment], first_hour: int, end_hour: int) -> set[int]:
    """Return the hours to which a poll of any of these segments applies."""
    covers = covers_between(executor, first_hour * HOUR_S, end_hour * HOUR_S, segments)
    hours: set[int] = set()
    for polls in covers.values():
        for poll in polls:
            hours.update(range(poll.at_s // HOUR_S, (poll.at_s + COVERAGE_S - 1) // HOUR_S + 1))
    return hours


def write_hour(executor: Executor, hour: int, rows: HourRows, prices: OpenPrices) -> None:
    """Replace the stored rows of an hour; rows of imported prices stay if `rows` has none.

    The cache has no imported prices, and the import has aggregated them already.
    """
    replaced_ids = [
        number for segment, number in prices.segments.items() if segment in rows or not is_imported_source(segment[0])
    ]
    write_rows(executor, hour, rows, prices, replaced_ids=replaced_ids)


def write_rows(
    executor: Executor,
    hour: int,
    rows: HourRows,
    prices: OpenPrices,
    *,
    replaced_ids: Sequence[int],
) -> None:
    """Store some parts of an hour in place of these segments."""
    numbers = ", ".join(map(str, replaced_ids))
    if numbers:
        executor.run(f"DELETE FROM hourly WHERE hour = ? AND segment_id IN ({numbers})", (hour,))  # noqa: S608
    new_rows: list[Row] = []
    for segment, row in rows.items():
        new_rows.append((prices.segments[segment], hour, *row))
    executor.run_many(WRITE_HOURLY, new_rows)


def matching_segments(executor: Executor, scope: MarketFilter) -> dict[int, Segment]:
    """Return the segments that a filter selects, by id."""
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


def segments_by_id(prices: OpenPrices) -> dict[int, Segment]:
    """Return the parts of the market by id."""
    return {number: segment for segment, number in prices.segments.items()}


def _intervals_of(
    rows: Sequence[Row], covers: Mapping[CoverScope, list[int]], segments: Mapping[int, Segment]
) -> Iterator[PricedInterval]:
    provider, gpu, _, spot = segments[rows[0][1]]
    seen_spans = [(row[2], row[3]) for row in rows]
    polls = covers.get((provider, gpu, spot), [])
    for position, (series, segment, from_s, _, machine, disk) in enumerate(rows):
        yield PricedInterval(
            segment, series, from_s, ended_at(seen_spans, position, polls), reference_microusd(machine, disk)
        )
