"""What the history can be asked. Prices are listed GPU prices with the default disk, unless said otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.analysis.scope import Scope
from gpuwatch.analysis.series import PriceSeries
from gpuwatch.analysis.summary import Every, Track, TrackPoint, hours_of_spans, starts_of
from gpuwatch.market.pricing import Commission
from gpuwatch.storage.executor import CoreExecutor, Executor
from gpuwatch.storage.hours import covers_between, roll_span
from gpuwatch.storage.kinds import is_meant, provider_in
from gpuwatch.storage.recording import seconds
from gpuwatch.storage.rollup import ALL_COUNTS, ALL_PROVIDERS, COVER_LASTS_S, HOUR_S, HourRow, Segment
from gpuwatch.storage.sketch import STEP, Weights, merge, quantile

if TYPE_CHECKING:
    from gpuwatch.storage.database import Database

HourLow = tuple[int, int]  # hours since 1970 (UTC); micro-dollars per GPU-hour

Rows = Sequence[tuple[str, HourRow]]  # (provider, figures) of each part
Found = dict[int, list[tuple[str, HourRow]]]  # by hour

_LOW = "SELECT hour, min_microusd FROM hourly WHERE segment_id = ? AND hour >= ? AND hour < ? ORDER BY hour"
_SKETCHES = "SELECT hour, sketch FROM hourly WHERE segment_id = ? AND hour >= ? AND hour < ?"
_HOURS = """SELECT hour, min_microusd, q1_microusd, median_microusd, q3_microusd, offers, offer_seconds, sketch
 FROM hourly WHERE segment_id = ? AND hour >= ? AND hour < ?"""
_SEGMENTS = "SELECT id, provider, gpu, gpu_count, spot, gpu_family FROM segment"
_FIRST = "SELECT (SELECT min(at_s) FROM poll), (SELECT min(hour) FROM hourly)"
_SUMS = f" WHERE gpu_count = {ALL_COUNTS} AND provider = '{ALL_PROVIDERS}'"
_SINGLE = f" WHERE gpu_count <> {ALL_COUNTS}"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the market is meant. `gpus` are canonical names or families; None: any.

    `provider` None: all that is or was live; "azure:listed": what Azure lists without proof of stock. What was imported
    of it counts, too (`storage.kinds`).
    """

    gpus: tuple[str, ...] | None = None
    provider: str | None = None
    gpu_count: int | None = None
    spot: bool | None = False  # None: both

    @property
    def scope(self) -> Scope:
        """The same in the words of all questions about the past."""
        return Scope(
            gpus=self.gpus,
            provider=self.provider,
            gpu_count_min=self.gpu_count,
            gpu_count_max=self.gpu_count,
            spot=self.spot,
        )


def cheapest_per_hour(
    database: Database, since: datetime, until: datetime, gpu: str | None = None, *, spot: bool = False
) -> dict[str, Sequence[HourLow]]:
    """The lowest GPU price of each GPU in each hour that is summed up, over all providers and counts.

    Args:
        gpu: a canonical name or a family; None: all.

    Returns:
        By GPU, the hours in order; an hour in which nobody looked, or nothing was on offer, is not there.

    Raises:
        StoreError: the database cannot be read.
    """
    part = Part(gpus=None if gpu is None else (gpu,), spot=spot)
    first, after = _hours(since, until)
    with database.read() as connection:
        executor = CoreExecutor(connection)
        return {
            segment[1]: executor.rows(_LOW, (number, first, after))
            for number, segment in segments_meant(executor, part.scope, sums=True).items()
        }


def hour_of_week_median(
    database: Database, part: Part, since: datetime, until: datetime, zone: tzinfo = UTC
) -> dict[int, int]:
    """The median GPU price (micro-dollars) of each hour of the week, right within 1 %, weighted by time on offer.

    Returns:
        By hour of the local week: 0 is Monday 00:00, 167 is Sunday 23:00. Hours without any offer are not there.

    Raises:
        StoreError: the database cannot be read.
    """
    first, after = _hours(since, until)
    by_hour: dict[int, list[bytes]] = {}
    with database.read() as connection:
        executor = CoreExecutor(connection)
        for number in segments_meant(executor, part.scope, sums=part.provider is None and part.gpu_count is None):
            for hour, sketch in executor.rows(_SKETCHES, (number, first, after)):
                by_hour.setdefault(hour, []).append(sketch)
    by_week: dict[int, list[bytes]] = {}
    for hour, sketches in by_hour.items():
        by_week.setdefault(_hour_of_week(hour, zone), []).extend(sketches)
    medians = ((hour, quantile(merge(sketches), 0.5)) for hour, sketches in sorted(by_week.items()))
    return {hour: median for hour, median in medians if median is not None}


def price_track(
    database: Database,
    part: Part,
    since: datetime,
    now: datetime,
    *,
    day_in: tzinfo | None = None,
    commissions: Mapping[str, Commission] | None = None,
) -> list[TrackPoint]:
    """From `since` until now, the running hour as far as it went; every hour (or day) has a point.

    Args:
        day_in: a point for each day of this zone; None: for each hour.
        commissions: by provider, for prices with commission; a provider that is not named has none.

    Raises:
        StoreError: the database cannot be read.
    """
    rates = {name: 1 + float(one.on_top_rate(None)) for name, one in (commissions or {}).items()}
    spans = (Every.HOUR, UTC) if day_in is None else (Every.DAY, day_in)
    return track(database, part.scope, (since, now), spans=spans, rates=rates).points


def track(
    database: Database,
    scope: Scope,
    span: tuple[datetime, datetime],
    *,
    spans: tuple[Every, tzinfo],
    rates: Mapping[str, float],
    trim: bool = False,
) -> Track:
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
        segments = segments_meant(executor, scope, sums=False)
        found = _stored(executor, segments, first, after)
        found.update(_running(executor, segments, first, span[1]))
        looked = _looked(executor, segments, first, after) | {hour for hour, rows in found.items() if rows}
    first = min((hour for hour in looked if hour >= first), default=after) if trim else first
    return Track(
        points=[_point(hours, found, looked, rates) for hours in hours_of_spans(first, after, *spans)],
        series=PriceSeries(
            first_hour=first,
            lows=[_low(rows, rates) if (rows := found.get(hour)) else None for hour in range(first, after)],
            looked=[hour in looked for hour in range(first, after)],
            source="the store",
        ),
    )


def first_look(database: Database) -> datetime | None:
    """Since when anything is known; None: nothing is. Raises StoreError."""
    with database.read() as connection:
        return first_look_in(CoreExecutor(connection))


def first_look_in(executor: Executor) -> datetime | None:
    """The same inside a transaction."""
    ((polled_s, hour),) = executor.rows(_FIRST)
    starts = [start for start in (polled_s, None if hour is None else hour * HOUR_S) if start is not None]
    return datetime.fromtimestamp(min(starts), UTC) if starts else None


def kept_from(database: Database) -> datetime | None:
    """From when on the prices themselves are there, not only what hours sum up; None: always. Raises StoreError."""
    with database.read() as connection:
        ((kept_s,),) = CoreExecutor(connection).rows("SELECT kept_from_s FROM history_state WHERE id = 1")
    return None if kept_s is None else datetime.fromtimestamp(kept_s, UTC)


def spellings_seen(database: Database) -> frozenset[str]:
    """Every GPU name and family that was ever met: what a watch may name. Raises StoreError."""
    with database.read() as connection:
        return spellings_in(CoreExecutor(connection))


def spellings_in(executor: Executor) -> frozenset[str]:
    """The same inside a transaction."""
    words = executor.rows("SELECT gpu FROM segment UNION SELECT gpu_family FROM segment")
    return frozenset(row[0] for row in (*words, *executor.rows("SELECT word FROM seen_word WHERE kind = 'gpu'")))


def _hours(since: datetime, until: datetime) -> tuple[int, int]:
    return seconds(since) // HOUR_S, -(-seconds(until) // HOUR_S)


def segments_meant(executor: Executor, scope: Scope, *, sums: bool) -> dict[int, Segment]:
    """The parts that are meant; `sums`: those over all providers and counts, instead of the single ones."""
    rows = executor.rows(_SEGMENTS + (_SUMS if sums else _SINGLE))
    models = frozenset(row[2] for row in rows)
    return {
        number: (provider, gpu, count, spot)
        for number, provider, gpu, count, spot, family in rows
        if scope.has_spot(bool(spot))
        and scope.has_gpu(gpu, family, models)
        and (is_meant(provider, scope.provider) if provider else scope.provider is None)
        and (sums or scope.has_count(count))
    }


def _hour_of_week(hour: int, zone: tzinfo) -> int:
    if zone is UTC:
        return (hour + 72) % 168  # 1970 began on a Thursday
    local = datetime.fromtimestamp(hour * HOUR_S, zone)
    return local.weekday() * 24 + local.hour


def _stored(executor: Executor, segments: Mapping[int, Segment], first: int, after: int) -> Found:
    found: Found = {}
    for number, segment in segments.items():
        for hour, *row in executor.rows(_HOURS, (number, first, after)):
            found.setdefault(hour, []).append((segment[0], HourRow(*row)))
    return found


def running_hours(
    executor: Executor, segments: Mapping[int, Segment], first: int, now: datetime
) -> dict[int, dict[int, HourRow]]:
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
    found: dict[int, dict[int, HourRow]] = {}
    for hour, made in roll_span(executor, hours, everything, at_s).items():
        for segment, row in made.rows().items():
            if segment in numbers:
                found.setdefault(numbers[segment], {})[hour] = row
    return found


def _running(executor: Executor, segments: Mapping[int, Segment], first: int, now: datetime) -> Found:
    found: Found = {}
    for number, by_hour in running_hours(executor, segments, first, now).items():
        for hour, row in by_hour.items():
            found.setdefault(hour, []).append((segments[number][0], row))
    return found


def _looked(executor: Executor, segments: Mapping[int, Segment], first: int, after: int) -> set[int]:
    """In which hours did somebody look at some of this?"""
    covers = covers_between(executor, first * HOUR_S, after * HOUR_S, dict(segments))
    looked: set[int] = set()
    for polls in covers.values():
        for poll in polls:
            looked.update(range(poll.at_s // HOUR_S, (poll.at_s + COVER_LASTS_S - 1) // HOUR_S + 1))
    return looked


def _point(hours: Sequence[int], found: Found, looked: set[int], rates: Mapping[str, float]) -> TrackPoint:
    known = sum(hour in looked for hour in hours)
    rows = [row for hour in hours for row in found.get(hour, ())]
    if not rows:
        return TrackPoint(starts_at=starts_of(hours), hours=len(hours), looked=known > 0, known_hours=known)
    q1, median, q3 = _quartiles(rows)
    q1_priced, median_priced, q3_priced = _with_commission(rows, (q1, median, q3), rates)
    return TrackPoint(
        starts_at=starts_of(hours),
        hours=len(hours),
        looked=True,
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


def _low(rows: Rows, rates: Mapping[str, float]) -> int:
    return min(round(row.min_microusd * rates.get(provider_in(name), 1.0)) for name, row in rows)


def _quartiles(rows: Rows) -> Sequence[int]:
    if len(rows) == 1:
        only = rows[0][1]
        return only.q1_microusd, only.median_microusd, only.q3_microusd
    return _quartiles_of(merge(row.sketch for _, row in rows))


def _with_commission(rows: Rows, listed: Sequence[int], rates: Mapping[str, float]) -> Sequence[int]:
    """The quartiles of prices with commission; of several commissions together right within 1 %."""
    by_rate: dict[float, list[bytes]] = {}
    for name, row in rows:
        by_rate.setdefault(rates.get(provider_in(name), 1.0), []).append(row.sketch)
    if len(by_rate) == 1:
        (rate,) = by_rate
        return [round(price * rate) for price in listed]
    total: Weights = {}
    for rate, sketches in by_rate.items():
        shift = round(math.log(rate) / math.log(STEP))
        for step, weight in merge(sketches).items():
            total[step + shift] = total.get(step + shift, 0) + weight
    return _quartiles_of(total)


def _quartiles_of(weights: Weights) -> Sequence[int]:
    return [quantile(weights, share) or 0 for share in (0.25, 0.5, 0.75)]
