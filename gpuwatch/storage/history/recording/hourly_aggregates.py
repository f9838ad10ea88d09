"""Reads the intervals for an hourly roll-up (from the cache or the database), and stores its rows."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection, Engine, and_, bindparam, delete, event, func, insert, or_, select

from gpuwatch.domain.history.hourly_rollup import (
    CoveringPoll,
    CoverScope,
    HourlyAggregate,
    HourlyRollup,
    PricedInterval,
    Segment,
    gpu_price,
    lowest_prices,
)
from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.market.offer import Verification
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.storage.history.recording.answer_changes import reference_microusd
from gpuwatch.storage.history.recording.open_prices import OpenPrices
from gpuwatch.storage.history.recording.price_sources import is_imported_source, matches_source
from gpuwatch.storage.history.recording.recorded_polls import known_scopes, read_covering_times, read_polls
from gpuwatch.storage.history.recording.recording import EndedInterval
from gpuwatch.storage.setup.machine_facts import stored_verification
from gpuwatch.storage.setup.stored_values import execute_many
from gpuwatch.storage.setup.tables import history_state, hourly, price_interval, segment, series

if TYPE_CHECKING:
    from gpuwatch.domain.history.market_history import MarketFilter

_CHUNK_HOURS = 24
_HOURS = "hours"  # in the `info` of a connection
_NO_DISK_PRICE = -1
_VALUES_PER_INTERVAL = 5  # values per ended interval

K = TypeVar("K", bound=Hashable)
HourRows = dict[Segment, HourlyAggregate]
SourceAggregates = Sequence[tuple[str, HourlyAggregate]]  # (provider, aggregate) of each part of the market
SplitHour = tuple[SourceAggregates, SourceAggregates]  # before and after a time within the hour

# NULL: it is current. A price that no poll has missed since an import counts as long as its last poll.
COUNTS_UNTIL_S = func.coalesce(price_interval.c.ended_s, price_interval.c.seen_to_s + COVERAGE_S)
# Of each machine, what began before its newest price at the start had ended by then: not read, it is most of a history.
_begun = price_interval.alias()
_BEGUN_AT_START_S = (
    select(func.max(_begun.c.seen_from_s))
    .where(_begun.c.series_id == series.c.id, _begun.c.seen_from_s <= bindparam("since_s"))
    .correlate(series)
    .scalar_subquery()
)
COUNTS_IN_SPAN = and_(
    price_interval.c.seen_from_s >= func.coalesce(_BEGUN_AT_START_S, 0),
    price_interval.c.seen_from_s < bindparam("until_s"),
    or_(COUNTS_UNTIL_S.is_(None), bindparam("since_s") < COUNTS_UNTIL_S),
)
INTERVALS = (
    select(
        series.c.segment_id,
        price_interval.c.series_id,
        price_interval.c.seen_from_s,
        COUNTS_UNTIL_S,
        price_interval.c.machine_microusd_hour,
        price_interval.c.disk_microusd_gb_month,
    )
    .join(series, series.c.id == price_interval.c.series_id)
    .where(series.c.segment_id.in_(bindparam("segments", expanding=True)), COUNTS_IN_SPAN)
)
_INTERVALS_OF_VERIFIED = INTERVALS.where(series.c.verification == stored_verification(Verification.VERIFIED))
_SEGMENTS = select(
    segment.c.id, segment.c.provider, segment.c.gpu, segment.c.gpu_count, segment.c.spot, segment.c.gpu_family
).where(segment.c.gpu_count > 0)  # 0: older rows


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
    connection: Connection, start_s: int, end_s: int, segments: Mapping[int, Segment]
) -> dict[CoverScope, list[CoveringPoll]]:
    """Return the covering polls that apply to a span of time; a poll of all models counts for each."""
    scopes = {(provider, gpu, spot) for provider, gpu, _, spot in segments.values()}
    read = {scope for provider, gpu, spot in scopes for scope in ((provider, gpu, spot), (provider, "", spot))}
    polls = read_polls(connection, read, start_s - COVERAGE_S, end_s, covering=True)
    sorted_polls = {
        scope: sorted((CoveringPoll(one.at_s, one.complete_to_microusd) for one in found), key=itemgetter(0))
        for scope, found in polls.items()
    }
    covers: dict[CoverScope, list[CoveringPoll]] = {}
    for scope in scopes:
        own = sorted_polls.get(scope, [])
        of_all = sorted_polls.get((scope[0], "", scope[2]), [])  # most GPUs share it
        covers[scope] = sorted((*own, *of_all), key=itemgetter(0)) if own and scope[1] else own or of_all
    return covers


def polled_hours(connection: Connection, first_hour: int, end_hour: int) -> list[int]:
    """Return the hours that can have data: those with a poll shortly before or in them."""
    scopes = known_scopes(connection)
    polls = read_polls(connection, scopes, first_hour * HOUR_S - COVERAGE_S, end_hour * HOUR_S)
    polled = {at_s // HOUR_S for of_scope in polls.values() for at_s in of_scope.at_s}
    lasting_hours = COVERAGE_S // HOUR_S
    hours = {hour + later for hour in polled for later in range(lasting_hours + 1)}
    return sorted(hour for hour in hours if first_hour <= hour < end_hour)


def aggregate_from_memory(
    connection: Connection, first_hour: int, end_hour: int, prices: OpenPrices, log: EndedIntervalLog
) -> Iterator[tuple[int, HourRows]]:
    """Aggregate hours [first, after) from the cache; the log must reach back to their start."""
    segments = segments_by_id(prices)
    for hour in range(first_hour, end_hour):
        end_s = (hour + 1) * HOUR_S
        covers = covers_between(connection, hour * HOUR_S, end_s, segments)
        rows: HourRows = {}
        for (gpu, spot), part in _by_gpu(segments).items():
            rollup = HourlyRollup(hour, part, covers, end_s)
            rollup.add(intervals_in_memory(prices, log, part, gpu, spot))
            rows |= rollup.rows()
        yield hour, rows


def aggregate_from_store(
    connection: Connection, first_hour: int, end_hour: int, prices: OpenPrices
) -> Iterator[tuple[int, HourRows]]:
    """Aggregate hours [first, after) from the stored intervals, one day at a time."""
    segments = segments_by_id(prices)
    hours = polled_hours(connection, first_hour, end_hour)
    while hours:
        chunk = [hour for hour in hours if hour < hours[0] + _CHUNK_HOURS]
        hours = hours[len(chunk) :]
        yield from aggregate_hours(connection, chunk, segments, (chunk[-1] + 1) * HOUR_S).items()


def aggregate_hours(
    connection: Connection, hours: Sequence[int], segments: Mapping[int, Segment], end_s: int, *, verified: bool = False
) -> dict[int, HourRows]:
    """Aggregate hours, in ascending order, from the intervals of these segments; the last one only until `end_s`.

    Args:
        verified: only of hosts that their provider called verified when it listed them last.
    """
    aggregates: dict[int, HourRows] = {hour: {} for hour in hours}
    for hour, rollup in rollups(connection, hours, segments, end_s, verified=verified):
        aggregates[hour] |= rollup.rows()
    return aggregates


def split_hour(
    connection: Connection, segments: Mapping[int, Segment], at_s: int, until_s: int, *, verified: bool = False
) -> SplitHour:
    """Aggregate the parts of an hour before and after a time within it, from the intervals; nothing from `until_s`."""
    start_s = at_s // HOUR_S * HOUR_S
    ends = min(at_s, until_s), max(at_s, min(start_s + HOUR_S, until_s))
    spans = zip((start_s, at_s), ends, strict=True)
    before, after = (_part_of_hour(connection, segments, *span, verified=verified) for span in spans)
    return before, after


def _part_of_hour(
    connection: Connection, segments: Mapping[int, Segment], start_s: int, end_s: int, *, verified: bool
) -> list[tuple[str, HourlyAggregate]]:
    rows: HourRows = {}
    for _, rollup in rollups(connection, [start_s // HOUR_S], segments, end_s, start_s, verified=verified):
        rows |= rollup.rows()
    return [(segment[0], row) for segment, row in rows.items()]


def rollups(
    connection: Connection,
    hours: Sequence[int],
    segments: Mapping[int, Segment],
    end_s: int,
    from_s: int = 0,
    *,
    verified: bool = False,
) -> Iterator[tuple[int, HourlyRollup]]:
    """Yield the results of `aggregate_hours`: each hour once for each GPU and rental type; the first from `from_s`."""
    start_s = hours[0] * HOUR_S
    covers = covers_between(connection, start_s, end_s, segments)
    query = _INTERVALS_OF_VERIFIED if verified else INTERVALS
    for part in _by_gpu(segments).values():
        by_hour = {hour: HourlyRollup(hour, part, covers, end_s, from_s) for hour in hours}
        rows = connection.execute(query, {"segments": list(part), "since_s": start_s, "until_s": end_s})
        for number, series_id, interval_from_s, until_s, machine, disk in rows:
            price = reference_microusd(machine, disk)
            interval = PricedInterval(number, series_id, interval_from_s, until_s, price)
            last_s = end_s if interval.until_s is None else min(interval.until_s, end_s)
            first = bisect_left(hours, interval.from_s // HOUR_S)
            for hour in hours[first : bisect_right(hours, (last_s - 1) // HOUR_S)]:
                by_hour[hour].add((interval,))
        yield from by_hour.items()


def lows_of_verified(
    connection: Connection,
    segments: Mapping[int, Segment],
    hours: range,
    part_of: Callable[[Segment], K],
    price_of: Callable[[int, Segment], int] = lambda listed, _: listed,
) -> Iterator[tuple[K, int, int]]:
    """Yield the lowest GPU prices of verified hosts, from the intervals: part, hour, micro-dollars.

    No hour has stored rows of them alone. It begins where prices are still stored; one GPU and rental type at a time,
    as a month of a large market would fill many MB.

    Args:
        part_of: which hours are compared with each other.
        price_of: the price that counts, of the listed one.
    """
    kept_s = connection.execute(select(history_state.c.kept_from_s)).scalar() or 0
    hours = range(max(hours.start, -(-kept_s // HOUR_S)), hours.stop)
    if not hours:
        return
    span = {"since_s": hours.start * HOUR_S, "until_s": hours.stop * HOUR_S}
    covers = covers_between(connection, span["since_s"], span["until_s"], segments)
    for of_gpu in _by_gpu(segments).values():
        parts: dict[K, list[tuple[int, PricedInterval]]] = {}
        rows = connection.execute(_INTERVALS_OF_VERIFIED, {"segments": list(of_gpu), **span})
        for number, series_id, from_s, until_s, machine, disk in rows:
            key = of_gpu[number]
            interval = PricedInterval(number, series_id, from_s, until_s, reference_microusd(machine, disk))
            parts.setdefault(part_of(key), []).append((price_of(gpu_price(interval, key), key), interval))
        for part, priced in parts.items():
            yield from ((part, hour, price) for price, hour in lowest_prices(priced, of_gpu, covers, hours))


def _by_gpu(segments: Mapping[int, Segment]) -> dict[tuple[str, int], dict[int, Segment]]:
    """Group segments by GPU and rental type. All at once would need several MB, which a process never returns."""
    parts: dict[tuple[str, int], dict[int, Segment]] = {}
    for number, key in segments.items():
        parts.setdefault((key[1], key[3]), {})[number] = key
    return parts


def unfinished_hours(
    connection: Connection, segments: Mapping[int, Segment], first: int, now_s: int, *, verified: bool = False
) -> dict[int, dict[int, HourlyAggregate]]:
    """Aggregate hours without stored rows, from the intervals, by part and hour; writes nothing.

    Args:
        verified: only verified hosts, as in `aggregate_hours`: no hour has stored rows of them alone.
    """
    next_hour = connection.execute(select(history_state.c.next_hour)).scalar_one()
    if next_hour is None or not segments:
        return {}
    hours = range(first if verified else max(first, next_hour), now_s // HOUR_S + 1)
    if not hours:
        return {}
    numbers = {key: number for number, key in segments.items()}
    aggregates: dict[int, dict[int, HourlyAggregate]] = {}
    for hour, rows in aggregate_hours(connection, hours, segments, now_s, verified=verified).items():
        for key, row in rows.items():
            aggregates.setdefault(numbers[key], {})[hour] = row
    return aggregates


def covered_hours(connection: Connection, segments: Mapping[int, Segment], first_hour: int, end_hour: int) -> set[int]:
    """Return the hours to which a poll of any of these segments applies."""
    scopes = {(provider, name, spot) for provider, gpu, _, spot in segments.values() for name in (gpu, "")}
    hours: set[int] = set()
    for times in read_covering_times(connection, scopes, first_hour * HOUR_S - COVERAGE_S, end_hour * HOUR_S).values():
        for lag_s in (*range(0, COVERAGE_S, HOUR_S), COVERAGE_S - 1):
            hours.update(((times + lag_s) // HOUR_S).tolist())
    return hours


def read_hours_of(engine: Engine, store: Connection) -> None:
    """Let every connection to a copy of a store read the hourly prices there: they are not in the copy."""
    event.listen(engine, "connect", lambda _, record: record.info.update({_HOURS: store}))


def hours_in(connection: Connection) -> Connection:
    """Return where a reader finds the hourly prices: here, or in the store of which this is a copy."""
    store: Connection = connection.info.get(_HOURS, connection)
    return store


def write_hour(connection: Connection, hour: int, rows: HourRows, prices: OpenPrices) -> None:
    """Replace the stored rows of an hour; rows of imported prices stay if `rows` has none.

    The cache has no imported prices, and the import has aggregated them already.
    """
    replaced_ids = [number for key, number in prices.segments.items() if key in rows or not is_imported_source(key[0])]
    connection.execute(delete(hourly).where(hourly.c.hour == hour, hourly.c.segment_id.in_(replaced_ids)))
    new_rows = [{"segment_id": prices.segments[key], "hour": hour, **row._asdict()} for key, row in rows.items()]
    execute_many(connection, insert(hourly), new_rows)


def matching_segments(connection: Connection, scope: MarketFilter) -> dict[int, Segment]:
    """Return the segments that a filter selects, by id."""
    rows = connection.execute(_SEGMENTS).all()
    models = frozenset(row.gpu for row in rows)
    return {
        number: (provider, gpu, count, spot)
        for number, provider, gpu, count, spot, family in rows
        if scope.has_spot(bool(spot))
        and scope.has_gpu(gpu, family, models)
        and scope.has_count(count)
        and matches_source(provider, scope.provider)
    }


def segments_by_id(prices: OpenPrices) -> dict[int, Segment]:
    """Return the parts of the market by id, without machines without GPUs: no price per GPU-hour exists there."""
    return {number: segment for segment, number in prices.segments.items() if segment[2]}
