"""Hourly aggregates of imported prices, for all hours of a part of a file at once; same results as `hourly_rollup`.

A daemon aggregates one hour from its cache at a time; an import aggregates months.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, bindparam, delete, insert, select

from gpuwatch.domain.history.hourly_rollup import (
    CoveringPoll,
    Segment,
    encode_sketch,
    pack_sketch,
    step_of,
)
from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.history.poll_timeline import NEVER_S, Ints
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.storage.history.queries.market_overview import int_columns
from gpuwatch.storage.history.recording.hourly_aggregates import INTERVALS, covers_between
from gpuwatch.storage.setup.stored_values import execute_many
from gpuwatch.storage.setup.tables import hourly, segment

_INTERVALS = INTERVALS.with_only_columns(*list(INTERVALS.selected_columns)[:5])  # no disk: files do not state it
_DELETE_HOUR = delete(hourly).where(
    hourly.c.hour == bindparam("at_hour"),
    hourly.c.segment_id.in_(select(segment.c.id).where(segment.c.provider == bindparam("source"))),
)
_NO_BOUND = -1
_BYTE = 255


class _Intervals(NamedTuple):
    """Prices of offers, and how long each lasted."""

    segment: Ints
    series: Ints
    from_s: Ints
    until_s: Ints
    microusd: Ints

    def select(self, selection: Ints) -> _Intervals:
        """Return some of them."""
        return _Intervals(*(column[selection] for column in self))


class _Shares(NamedTuple):
    """How long prices lasted within hours."""

    segment: Ints
    hour: Ints
    series: Ints
    gpu_microusd: Ints
    seconds: Ints

    def select(self, selection: Ints) -> _Shares:
        """Return some of them."""
        return _Shares(*(column[selection] for column in self))


def replace_aggregates(connection: Connection, segments: Mapping[int, Segment], moments: Ints) -> None:
    """Replace every hourly row of one source to which these moments apply.

    Args:
        segments: all segments of the source, by id.
    """
    if not segments:
        return
    hours = _hours_of(moments)
    shares = _shares(connection, segments, hours)
    (source,) = {segment[0] for segment in segments.values()}
    execute_many(connection, _DELETE_HOUR, [{"source": source, "at_hour": hour} for hour in hours.tolist()])
    execute_many(connection, insert(hourly), list(_rows(shares)))


def _hours_of(moments: Ints) -> Ints:
    last_hours = (moments + COVERAGE_S - 1) // HOUR_S
    candidates = (moments // HOUR_S)[:, None] + np.arange(COVERAGE_S // HOUR_S + 1)
    return np.unique(candidates[candidates <= last_hours[:, None]])


def _shares(connection: Connection, segments: Mapping[int, Segment], hours: Ints) -> _Shares:
    start_s, end_s = int(hours[0]) * HOUR_S, (int(hours[-1]) + 1) * HOUR_S
    covers = covers_between(connection, start_s, end_s, segments)
    rows = connection.execute(_INTERVALS, {"segments": list(segments), "since_s": start_s, "until_s": end_s})
    stored = _Intervals(*int_columns(rows, 5))
    parts = [_Shares(*[np.empty(0, np.int64)] * 5)]
    scopes: dict[tuple[str, str, int], list[int]] = {}
    for number, (provider, gpu, _, spot) in segments.items():
        scopes.setdefault((provider, gpu, spot), []).append(number)
    for scope, numbers in scopes.items():
        intervals = stored.select(np.flatnonzero(np.isin(stored.segment, numbers)))
        parts += [
            _shares_of(intervals.select(selection), hours, poll_times)
            for selection, poll_times in _by_bound(intervals.microusd, covers[scope])
        ]
    joined = _Shares(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    gpus = np.zeros(max(segments) + 1, np.int64)
    gpus[list(segments)] = [segment[2] for segment in segments.values()]
    return joined._replace(
        gpu_microusd=np.maximum(np.rint(joined.gpu_microusd / gpus[joined.segment]).astype(np.int64), 1)
    )


def _by_bound(microusd: Ints, polls: list[CoveringPoll]) -> Iterator[tuple[Ints, Ints]]:
    """Group prices by their coverage: prices between the same bounds are covered by the same polls."""
    bounds = np.array(sorted({poll.to_microusd for poll in polls if poll.to_microusd is not None}), np.int64)
    bound_of_price = np.append(bounds, _NO_BOUND)[np.searchsorted(bounds, microusd)]
    for bound in np.unique(bound_of_price).tolist():
        poll_times = [
            poll.at_s
            for poll in polls
            if poll.to_microusd is None or (bound != _NO_BOUND and poll.to_microusd >= bound)
        ]
        yield np.flatnonzero(bound_of_price == bound), np.array(poll_times, np.int64)


def _shares_of(intervals: _Intervals, hours: Ints, polled_s: Ints) -> _Shares:
    """Return the seconds of each interval within each hour, as far as polls prove them."""
    first = np.searchsorted(hours, intervals.from_s // HOUR_S)
    hour_counts = np.maximum(np.searchsorted(hours, (intervals.until_s - 1) // HOUR_S, "right") - first, 0)
    interval_index = np.repeat(np.arange(len(hour_counts)), hour_counts)
    hour = hours[np.repeat(first - np.cumsum(hour_counts) + hour_counts, hour_counts) + np.arange(hour_counts.sum())]
    interval = intervals.select(interval_index)
    start = np.maximum(interval.from_s, hour * HOUR_S)
    end = np.minimum(interval.until_s, (hour + 1) * HOUR_S)
    covered = _Covered(polled_s)
    proven_until = np.clip(interval.from_s + COVERAGE_S, start, end)  # the poll that first saw it proves this itself
    seconds = covered.between(proven_until, end) + proven_until - start
    nonzero = np.flatnonzero((end > start) & (seconds > 0))
    return _Shares(interval.segment, hour, interval.series, interval.microusd, seconds).select(nonzero)


class _Covered:
    """The times for which polls prove offers."""

    def __init__(self, polled_s: Ints) -> None:
        polled_s = np.unique(polled_s)
        duration_s = np.minimum(np.diff(polled_s, append=NEVER_S), COVERAGE_S)
        self._starts = polled_s
        self._duration_s = np.append(duration_s, 0)
        self._before = np.append(0, np.cumsum(duration_s))

    def between(self, start_s: Ints, end_s: Ints) -> Ints:
        """Return the proven seconds between two times."""
        return self._until(end_s) - self._until(start_s)

    def _until(self, at_s: Ints) -> Ints:
        position = np.searchsorted(self._starts, at_s, "right") - 1
        partial_s = (
            np.minimum(at_s - self._starts[position.clip(0)], self._duration_s[position]) if len(self._starts) else 0
        )
        return np.where(position < 0, 0, self._before[position.clip(0)] + partial_s)


def _rows(shares: _Shares) -> Iterator[dict[str, Any]]:
    """Return rows of `hourly`."""
    shares = shares.select(np.lexsort((shares.gpu_microusd, shares.hour, shares.segment)))
    group_starts = _group_starts(shares.segment, shares.hour)
    if not len(group_starts):
        return
    group_of_share = np.cumsum(_flags(group_starts, len(shares.hour))) - 1
    total = np.cumsum(shares.seconds)
    before = np.append(0, total)[group_starts]
    weight = np.append(before[1:], total[-1]) - before
    quarters = [
        shares.gpu_microusd[np.searchsorted(4 * total, 4 * before + weight * number)].tolist() for number in (1, 2, 3)
    ]
    series = np.unique(np.column_stack((group_of_share, shares.series)), axis=0)[:, 0]
    offers = np.bincount(series, minlength=len(group_starts)).tolist()
    columns = (shares.segment[group_starts], shares.hour[group_starts], shares.gpu_microusd[group_starts])
    sketches = _sketches(group_of_share, shares, len(group_starts))
    names = hourly.c.keys()
    for row in zip(*(values.tolist() for values in columns), *quarters, offers, weight.tolist(), sketches, strict=True):
        yield dict(zip(names, row, strict=True))


def _sketches(group: Ints, shares: _Shares, count: int) -> Iterator[bytes]:
    prices, price_index = np.unique(shares.gpu_microusd, return_inverse=True)
    step = np.array([step_of(price) for price in prices.tolist()], np.int64)[price_index]
    first = _group_starts(group, step)
    starts = np.append(np.searchsorted(group[first], np.arange(count)), len(first))
    yield from _encode_sketches(step[first], np.add.reduceat(shares.seconds, first), starts)


def _encode_sketches(step: Ints, seconds: Ints, starts: Ints) -> Iterator[bytes]:
    """Return a sketch for each range of steps, like `encode_sketch`, but for many at once."""
    minutes = np.maximum(np.rint(seconds / 60).astype(np.int64), 1)
    gap = np.diff(step, prepend=0)
    fits_byte = minutes <= _BYTE
    fits_byte &= (gap >= 0) & (gap <= _BYTE)
    fits_byte[starts[:-1]] = minutes[starts[:-1]] <= _BYTE  # the first step has no gap before it
    fits_byte = np.logical_and.reduceat(fits_byte, starts[:-1]).tolist()
    gaps, weights = (np.clip(one, 0, _BYTE).astype(np.uint8).tobytes() for one in (gap, minutes))
    places, firsts = starts.tolist(), step[starts[:-1]].tolist()
    for is_small, first, low, high in zip(fits_byte, firsts, places[:-1], places[1:], strict=True):
        if is_small:
            yield pack_sketch(first, gaps[low + 1 : high], weights[low:high])
        else:
            yield encode_sketch(dict(zip(step[low:high].tolist(), seconds[low:high].tolist(), strict=True)))


def _group_starts(first: Ints, second: Ints) -> Ints:
    """Return the indexes at which a new pair begins, in sorted columns."""
    changes = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return np.flatnonzero(np.append(True, changes)) if len(first) else np.empty(0, np.int64)


def _flags(places: Ints, length: int) -> Ints:
    flags = np.zeros(length, np.int64)
    flags[places] = 1
    return flags
