"""Hourly aggregates of imported prices, for all hours of a part of a file at once; same results as `hourly_rollup`.

A daemon aggregates one hour from its cache at a time; an import aggregates months.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from gpuwatch.domain.analysis.poll_timeline import NEVER_S, Ints
from gpuwatch.storage.executor import Executor, Row
from gpuwatch.storage.hourly_aggregates import INTERVALS_OF_SOURCE, WRITE_HOURLY, covers_between
from gpuwatch.storage.hourly_rollup import COVER_LASTS_S, HOUR_S, CoveringPoll, Segment
from gpuwatch.storage.quantile_sketch import encode_sketch, pack_sketch, step_of

_NO_BOUND = -1
_BYTE = 255


class _Stays(NamedTuple):
    """Prices of offers, and how long each lasted."""

    segment: Ints
    series: Ints
    from_s: Ints
    until_s: Ints
    microusd: Ints

    def at(self, which: Ints) -> _Stays:
        """Return some of them."""
        return _Stays(*(column[which] for column in self))


class _Shares(NamedTuple):
    """How long prices lasted within hours."""

    segment: Ints
    hour: Ints
    series: Ints
    gpu_microusd: Ints
    seconds: Ints

    def at(self, which: Ints) -> _Shares:
        """Return some of them."""
        return _Shares(*(column[which] for column in self))


def aggregate_again(executor: Executor, segments: Mapping[int, Segment], moments: Ints) -> None:
    """Replace every hourly row of one source to which these moments apply.

    Args:
        segments: all segments of the source, by id.
    """
    if not segments:
        return
    hours = _hours_of(moments)
    shares = _shares(executor, segments, hours)
    drop = f"DELETE FROM hourly WHERE hour = ? AND segment_id IN ({', '.join(map(str, segments))})"  # noqa: S608
    executor.run_many(drop, [(hour,) for hour in hours.tolist()])
    executor.run_many(WRITE_HOURLY, list(_rows(shares)))


def _hours_of(moments: Ints) -> Ints:
    last = (moments + COVER_LASTS_S - 1) // HOUR_S
    later = (moments // HOUR_S)[:, None] + np.arange(COVER_LASTS_S // HOUR_S + 1)
    return np.unique(later[later <= last[:, None]])


def _shares(executor: Executor, segments: Mapping[int, Segment], hours: Ints) -> _Shares:
    start_s, end_s = int(hours[0]) * HOUR_S, (int(hours[-1]) + 1) * HOUR_S
    covers = covers_between(executor, start_s, None, segments)
    (source,) = {segment[0] for segment in segments.values()}
    rows = executor.rows(INTERVALS_OF_SOURCE, (end_s, start_s - COVER_LASTS_S, source))
    columns = np.array([row[:5] for row in rows], np.int64).reshape(-1, 5).T  # no disk: files do not state it
    series, segment, from_s, to_s, microusd = columns
    found = [_Shares(*[np.empty(0, np.int64)] * 5)]
    scopes: dict[tuple[str, str, int], list[int]] = {}
    for number, (provider, gpu, _, spot) in segments.items():
        scopes.setdefault((provider, gpu, spot), []).append(number)
    for scope, numbers in scopes.items():
        mine = np.flatnonzero(np.isin(segment, numbers))
        polls = covers[scope]
        until_s = _ends(series[mine], from_s[mine], to_s[mine], np.array([poll.at_s for poll in polls], np.int64))
        stays = _Stays(segment[mine], series[mine], from_s[mine], until_s, microusd[mine])
        until = [poll for poll in polls if poll.at_s < end_s]
        found += [_shares_of(stays.at(which), hours, seen) for which, seen in _by_bound(stays.microusd, until)]
    joined = _Shares(*(np.concatenate(column) for column in zip(*found, strict=True)))
    gpus = np.zeros(max(segments) + 1, np.int64)
    gpus[list(segments)] = [segment[2] for segment in segments.values()]
    return joined._replace(
        gpu_microusd=np.maximum(np.rint(joined.gpu_microusd / gpus[joined.segment]).astype(np.int64), 1)
    )


def _ends(series: Ints, from_s: Ints, to_s: Ints, polled_s: Ints) -> Ints:
    """Return when each interval ended: at the next poll, or at the next price of its offer."""
    ends = np.append(polled_s, NEVER_S)[np.searchsorted(polled_s, to_s, "right")]
    goes_on = np.flatnonzero(series[1:] == series[:-1])
    ends[goes_on] = np.minimum(ends[goes_on], from_s[goes_on + 1])
    return np.where(ends == NEVER_S, to_s + COVER_LASTS_S, ends)


def _by_bound(microusd: Ints, polls: list[CoveringPoll]) -> Iterator[tuple[Ints, Ints]]:
    """Group prices by their coverage: prices between the same bounds are covered by the same polls."""
    bounds = np.array(sorted({poll.to_microusd for poll in polls if poll.to_microusd is not None}), np.int64)
    reach = np.append(bounds, _NO_BOUND)[np.searchsorted(bounds, microusd)]
    for bound in np.unique(reach).tolist():
        seen = [
            poll.at_s
            for poll in polls
            if poll.to_microusd is None or (bound != _NO_BOUND and poll.to_microusd >= bound)
        ]
        yield np.flatnonzero(reach == bound), np.array(seen, np.int64)


def _shares_of(stays: _Stays, hours: Ints, polled_s: Ints) -> _Shares:
    """Return the seconds of each interval within each hour, as far as polls prove them."""
    first = np.searchsorted(hours, stays.from_s // HOUR_S)
    many = np.maximum(np.searchsorted(hours, (stays.until_s - 1) // HOUR_S, "right") - first, 0)
    stay = np.repeat(np.arange(len(many)), many)
    hour = hours[np.repeat(first - np.cumsum(many) + many, many) + np.arange(many.sum())]
    each = stays.at(stay)
    start = np.maximum(each.from_s, hour * HOUR_S)
    end = np.minimum(each.until_s, (hour + 1) * HOUR_S)
    covered = _Covered(polled_s)
    own = np.clip(each.from_s + COVER_LASTS_S, start, end)  # the poll that first saw it proves this itself
    seconds = covered.between(own, end) + own - start
    some = np.flatnonzero((end > start) & (seconds > 0))
    return _Shares(each.segment, hour, each.series, each.microusd, seconds).at(some)


class _Covered:
    """The times for which polls prove offers."""

    def __init__(self, polled_s: Ints) -> None:
        polled_s = np.unique(polled_s)
        lasts = np.minimum(np.diff(polled_s, append=NEVER_S), COVER_LASTS_S)
        self._starts = polled_s
        self._lasts = np.append(lasts, 0)
        self._before = np.append(0, np.cumsum(lasts))

    def between(self, start_s: Ints, end_s: Ints) -> Ints:
        """Return the proven seconds between two times."""
        return self._until(end_s) - self._until(start_s)

    def _until(self, at_s: Ints) -> Ints:
        at = np.searchsorted(self._starts, at_s, "right") - 1
        begun = np.minimum(at_s - self._starts[at.clip(0)], self._lasts[at]) if len(self._starts) else 0
        return np.where(at < 0, 0, self._before[at.clip(0)] + begun)


def _rows(shares: _Shares) -> Iterator[Row]:
    """Return rows of `hourly`."""
    shares = shares.at(np.lexsort((shares.gpu_microusd, shares.hour, shares.segment)))
    group = _begins(shares.segment, shares.hour)
    if not len(group):
        return
    of_group = np.cumsum(_flags(group, len(shares.hour))) - 1
    total = np.cumsum(shares.seconds)
    before = np.append(0, total)[group]
    weight = np.append(before[1:], total[-1]) - before
    quarters = [
        shares.gpu_microusd[np.searchsorted(4 * total, 4 * before + weight * number)].tolist() for number in (1, 2, 3)
    ]
    series = np.unique(np.column_stack((of_group, shares.series)), axis=0)[:, 0]
    offers = np.bincount(series, minlength=len(group)).tolist()
    columns = (shares.segment[group], shares.hour[group], shares.gpu_microusd[group])
    sketches = _sketches(of_group, shares, len(group))
    yield from zip(*(one.tolist() for one in columns), *quarters, offers, weight.tolist(), sketches, strict=True)


def _sketches(group: Ints, shares: _Shares, count: int) -> Iterator[bytes]:
    prices, which = np.unique(shares.gpu_microusd, return_inverse=True)
    step = np.array([step_of(price) for price in prices.tolist()], np.int64)[which]
    first = _begins(group, step)
    starts = np.append(np.searchsorted(group[first], np.arange(count)), len(first))
    yield from _encoded(step[first], np.add.reduceat(shares.seconds, first), starts)


def _encoded(step: Ints, seconds: Ints, starts: Ints) -> Iterator[bytes]:
    """Return a sketch for each range of steps, like `encode_sketch`, but for many at once."""
    minutes = np.maximum(np.rint(seconds / 60).astype(np.int64), 1)
    gap = np.diff(step, prepend=0)
    small = minutes <= _BYTE
    small &= (gap >= 0) & (gap <= _BYTE)
    small[starts[:-1]] = minutes[starts[:-1]] <= _BYTE  # the first step has no gap before it
    small = np.logical_and.reduceat(small, starts[:-1]).tolist()
    gaps, weights = (np.clip(one, 0, _BYTE).astype(np.uint8).tobytes() for one in (gap, minutes))
    places, firsts = starts.tolist(), step[starts[:-1]].tolist()
    for is_small, first, low, high in zip(small, firsts, places[:-1], places[1:], strict=True):
        if is_small:
            yield pack_sketch(first, gaps[low + 1 : high], weights[low:high])
        else:
            yield encode_sketch(dict(zip(step[low:high].tolist(), seconds[low:high].tolist(), strict=True)))


def _begins(one: Ints, other: Ints) -> Ints:
    """Return the indexes at which a new pair begins, in sorted columns."""
    changes = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    return np.flatnonzero(np.append(True, changes)) if len(one) else np.empty(0, np.int64)


def _flags(places: Ints, length: int) -> Ints:
    flags = np.zeros(length, np.int64)
    flags[places] = 1
    return flags
