"""What the history can be asked. Prices are listed GPU prices with the default disk, unless said otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import groupby

import msgspec

from gpuwatch.market.pricing import Commission
from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor, Executor
from gpuwatch.storage.hours import covers_between, roll_span
from gpuwatch.storage.kinds import is_meant, provider_in
from gpuwatch.storage.recording import seconds
from gpuwatch.storage.rollup import ALL_COUNTS, ALL_PROVIDERS, COVER_LASTS_S, HOUR_S, HourRow, Segment
from gpuwatch.storage.sketch import merge, quantile

HourLow = tuple[int, int]  # hours since 1970 (UTC); micro-dollars per GPU-hour

Found = dict[int, list[tuple[str, HourRow]]]  # hour → (provider, figures) of each part

_LOW = "SELECT hour, min_microusd FROM hourly WHERE segment_id = ? AND hour >= ? AND hour < ? ORDER BY hour"
_SKETCHES = "SELECT hour, sketch FROM hourly WHERE segment_id = ? AND hour >= ? AND hour < ?"
_HOURS = """SELECT hour, min_microusd, q1_microusd, median_microusd, q3_microusd, offers, offer_seconds, sketch
 FROM hourly WHERE segment_id = ? AND hour >= ? AND hour < ?"""
_SEGMENTS = "SELECT id, provider, gpu, gpu_count, spot, gpu_family FROM segment"
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


class TrackPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A span of a price track. Without offers the prices are None; `looked` tells whether that is known."""

    starts_at: datetime
    hours: int
    looked: bool
    offers: int = 0  # identities; the most that any hour of the span had
    min_microusd: int | None = None
    min_with_commission_microusd: int | None = None
    q1_microusd: int | None = None
    median_microusd: int | None = None
    q3_microusd: int | None = None


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
        commissions: by provider, for the lowest price with commission; a provider that is not named has none.

    Raises:
        StoreError: the database cannot be read.
    """
    first, after = _hours(since, now)
    with database.read() as connection:
        executor = CoreExecutor(connection)
        segments = _segments(executor, part, sums=False)
        found = _stored(executor, segments, first, after)
        found.update(_running(executor, segments, first, now))
        looked = _looked(executor, segments, first, after)
    rates = {name: 1 + float(one.on_top_rate(None)) for name, one in (commissions or {}).items()}
    spans = groupby(range(first, after), key=lambda hour: _day(hour, day_in))
    return [_point(list(hours), found, looked, rates) for _, hours in spans]


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
    rows = executor.rows(_SEGMENTS + (_SUMS if sums else _SINGLE))
    models = {row[2] for row in rows}
    families = set(part.gpus or ()) - models  # "RTX 4090" is a family and a model: then the model is meant
    return {
        number: (provider, gpu, count, spot)
        for number, provider, gpu, count, spot, family in rows
        if (part.spot is None or spot == int(part.spot))
        and (part.gpus is None or gpu in part.gpus or family in families)
        and (is_meant(provider, part.provider) if provider else part.provider is None)
        and (part.gpu_count is None or count == part.gpu_count)
    }


def _hour_of_week(hour: int, zone: tzinfo) -> int:
    if zone is UTC:
        return (hour + 72) % 168  # 1970 began on a Thursday
    local = datetime.fromtimestamp(hour * HOUR_S, zone)
    return local.weekday() * 24 + local.hour


def _day(hour: int, zone: tzinfo | None) -> object:
    return hour if zone is None else datetime.fromtimestamp(hour * HOUR_S, zone).date()


def _stored(executor: Executor, segments: Mapping[int, Segment], first: int, after: int) -> Found:
    found: Found = {}
    for number, segment in segments.items():
        for hour, *row in executor.rows(_HOURS, (number, first, after)):
            found.setdefault(hour, []).append((segment[0], HourRow(*row)))
    return found


def _running(executor: Executor, segments: Mapping[int, Segment], first: int, now: datetime) -> Found:
    """Hours that are not summed up yet, from the intervals; nothing is written."""
    next_hour = executor.rows("SELECT next_hour FROM history_state WHERE id = 1")[0][0]
    at_s = seconds(now)
    if next_hour is None or not segments:
        return {}
    hours = range(max(first, next_hour), at_s // HOUR_S + 1)
    if not hours:
        return {}
    everything = {row[0]: (row[1], row[2], row[3], row[4]) for row in executor.rows(_SEGMENTS)}
    wanted = set(segments.values())
    rolled = roll_span(executor, hours, everything, at_s)
    return {
        hour: [(segment[0], row) for segment, row in made.rows().items() if segment in wanted]
        for hour, made in rolled.items()
    }


def _looked(executor: Executor, segments: Mapping[int, Segment], first: int, after: int) -> set[int]:
    """In which hours did somebody look at some of this?"""
    covers = covers_between(executor, first * HOUR_S, after * HOUR_S, dict(segments))
    looked: set[int] = set()
    for polls in covers.values():
        for poll in polls:
            looked.update(range(poll.at_s // HOUR_S, (poll.at_s + COVER_LASTS_S - 1) // HOUR_S + 1))
    return looked


def _point(hours: Sequence[int], found: Found, looked: set[int], rates: Mapping[str, float]) -> TrackPoint:
    starts_at = datetime.fromtimestamp(hours[0] * HOUR_S, UTC)
    rows = [row for hour in hours for row in found.get(hour, ())]
    if not rows:
        known = any(hour in looked for hour in hours)
        return TrackPoint(starts_at=starts_at, hours=len(hours), looked=known)
    if len(rows) == 1:
        only = rows[0][1]
        q1, median, q3 = only.q1_microusd, only.median_microusd, only.q3_microusd
    else:
        merged = merge(row.sketch for _, row in rows)
        q1, median, q3 = (quantile(merged, share) or 0 for share in (0.25, 0.5, 0.75))
    return TrackPoint(
        starts_at=starts_at,
        hours=len(hours),
        looked=True,
        offers=max(sum(row.offers for _, row in found.get(hour, ())) for hour in hours),
        min_microusd=min(row.min_microusd for _, row in rows),
        min_with_commission_microusd=min(
            round(row.min_microusd * rates.get(provider_in(name), 1.0)) for name, row in rows
        ),
        q1_microusd=q1,
        median_microusd=median,
        q3_microusd=q3,
    )
