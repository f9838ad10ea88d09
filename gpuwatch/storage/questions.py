"""What the history can be asked. Prices are listed GPU prices with the default disk, unless said otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import groupby

import msgspec

from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor, Executor
from gpuwatch.storage.hours import covers_between, roll_span
from gpuwatch.storage.recording import seconds
from gpuwatch.storage.rollup import ALL_COUNTS, ALL_PROVIDERS, COVER_LASTS_S, HOUR_S, HourRow, Segment
from gpuwatch.storage.sketch import merge, quantile

HourLow = tuple[int, int]  # hours since 1970 (UTC); micro-dollars per GPU-hour

_LOW = "SELECT hour, min_microusd FROM hourly WHERE segment_id = ? AND hour >= ? AND hour < ? ORDER BY hour"
_SKETCHES = "SELECT hour, sketch FROM hourly WHERE segment_id = ? AND hour >= ? AND hour < ?"
_HOURS = """SELECT hour, min_microusd, q1_microusd, median_microusd, q3_microusd, offers, offer_seconds, sketch
 FROM hourly WHERE segment_id = ? AND hour >= ? AND hour < ?"""
_SEGMENTS = "SELECT id, provider, gpu, gpu_count, spot, gpu_family FROM segment"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the market is meant. `gpus` are canonical names or families; None: any."""

    gpus: tuple[str, ...] | None = None
    provider: str | None = None
    gpu_count: int | None = None
    spot: bool = False


class TrackPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One hour of a price track. Without offers the prices are None; `looked` tells whether that is known."""

    hour: int  # hours since 1970, UTC
    looked: bool
    offers: int = 0
    min_microusd: int | None = None
    q1_microusd: int | None = None
    median_microusd: int | None = None
    q3_microusd: int | None = None

    @property
    def starts_at(self) -> datetime:
        """The hour's beginning."""
        return datetime.fromtimestamp(self.hour * HOUR_S, UTC)


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
            for number, segment in _segments(executor, part, sums=True).items()
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
        for number in _segments(executor, part, sums=part.provider is None and part.gpu_count is None):
            for hour, sketch in executor.rows(_SKETCHES, (number, first, after)):
                by_hour.setdefault(hour, []).append(sketch)
    by_week: dict[int, list[bytes]] = {}
    for hour, sketches in by_hour.items():
        by_week.setdefault(_hour_of_week(hour, zone), []).extend(sketches)
    medians = ((hour, quantile(merge(sketches), 0.5)) for hour, sketches in sorted(by_week.items()))
    return {hour: median for hour, median in medians if median is not None}


def price_track(database: Database, part: Part, since: datetime, now: datetime) -> list[TrackPoint]:
    """Hour by hour from `since` until now, the running hour as far as it went; every hour has a point.

    Raises:
        StoreError: the database cannot be read.
    """
    first, after = _hours(since, now)
    with database.read() as connection:
        executor = CoreExecutor(connection)
        segments = _segments(executor, part, sums=False)
        found = {hour: list(rows) for hour, rows in _stored(executor, segments, first, after)}
        for hour, rows in _running(executor, segments, first, now).items():
            found[hour] = rows
        looked = _looked(executor, segments, part, first, after)
    return [_point(hour, found.get(hour, []), hour in looked) for hour in range(first, after)]


def spellings_seen(database: Database) -> frozenset[str]:
    """Every GPU name and family that was ever met: what a watch may name. Raises StoreError."""
    with database.read() as connection:
        executor = CoreExecutor(connection)
        words = executor.rows("SELECT gpu FROM segment UNION SELECT gpu_family FROM segment")
        return frozenset(row[0] for row in (*words, *executor.rows("SELECT word FROM seen_word WHERE kind = 'gpu'")))


def _hours(since: datetime, until: datetime) -> tuple[int, int]:
    return seconds(since) // HOUR_S, -(-seconds(until) // HOUR_S)


def _segments(executor: Executor, part: Part, *, sums: bool) -> dict[int, Segment]:
    """The parts that are meant; `sums`: those over all providers and counts, instead of the single ones."""
    return {
        number: (provider, gpu, count, spot)
        for number, provider, gpu, count, spot, family in executor.rows(_SEGMENTS)
        if (provider == ALL_PROVIDERS and count == ALL_COUNTS) == sums
        and spot == int(part.spot)
        and (part.gpus is None or gpu in part.gpus or family in part.gpus)
        and (part.provider is None or provider == part.provider)
        and (part.gpu_count is None or count == part.gpu_count)
    }


def _hour_of_week(hour: int, zone: tzinfo) -> int:
    if zone is UTC:
        return (hour + 72) % 168  # 1970 began on a Thursday
    local = datetime.fromtimestamp(hour * HOUR_S, zone)
    return local.weekday() * 24 + local.hour


def _stored(
    executor: Executor, segments: Iterable[int], first: int, after: int
) -> Iterable[tuple[int, Iterable[HourRow]]]:
    rows = [row for number in segments for row in executor.rows(_HOURS, (number, first, after))]
    rows.sort(key=lambda row: row[0])
    return ((hour, [HourRow(*row[1:]) for row in same]) for hour, same in groupby(rows, key=lambda row: row[0]))


def _running(
    executor: Executor, segments: Mapping[int, Segment], first: int, now: datetime
) -> dict[int, list[HourRow]]:
    """Hours that are not summed up yet, from the intervals; nothing is written."""
    next_hour = executor.rows("SELECT next_hour FROM history_state WHERE id = 1")[0][0]
    at_s = seconds(now)
    if next_hour is None or not segments:
        return {}
    hours = range(max(first, next_hour), at_s // HOUR_S + 1)
    if not hours:
        return {}
    everything = _segments_all(executor)
    wanted = set(segments.values())
    rolled = roll_span(executor, hours, everything, at_s)
    return {hour: [row for segment, row in made.rows().items() if segment in wanted] for hour, made in rolled.items()}


def _segments_all(executor: Executor) -> dict[int, Segment]:
    return {row[0]: (row[1], row[2], row[3], row[4]) for row in executor.rows(_SEGMENTS)}


def _looked(executor: Executor, segments: Mapping[int, Segment], part: Part, first: int, after: int) -> set[int]:
    """In which hours did somebody look at all of this?"""
    covers = covers_between(executor, first * HOUR_S, after * HOUR_S, dict(segments))
    looked: set[int] = set()
    for polls in covers.values():
        for poll in polls:
            looked.update(range(poll.at_s // HOUR_S, (poll.at_s + COVER_LASTS_S - 1) // HOUR_S + 1))
    return looked


def _point(hour: int, rows: Sequence[HourRow], looked: bool) -> TrackPoint:
    if not rows:
        return TrackPoint(hour=hour, looked=looked)
    if len(rows) == 1:
        q1, median, q3 = rows[0].q1_microusd, rows[0].median_microusd, rows[0].q3_microusd
    else:
        merged = merge(row.sketch for row in rows)
        q1, median, q3 = (quantile(merged, share) or 0 for share in (0.25, 0.5, 0.75))
    return TrackPoint(
        hour=hour,
        looked=True,
        offers=sum(row.offers for row in rows),
        min_microusd=min(row.min_microusd for row in rows),
        q1_microusd=q1,
        median_microusd=median,
        q3_microusd=q3,
    )
