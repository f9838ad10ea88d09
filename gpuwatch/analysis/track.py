"""The track of a tape: each span's prices by the time they were on offer, as far as somebody looked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpuwatch.analysis.series import HOUR_S, LOOK_LASTS_S, series_of
from gpuwatch.analysis.summary import Every, Share, Track, TrackPoint, cut_to, hours_of_spans, starts_of
from gpuwatch.analysis.tape import Listing, Poll, Spell, Tape

GpuPrice = Callable[[int, Spell], float]
_Ints = NDArray[np.int64]
_Windows = NDArray[np.int64]  # two columns: from, until; apart from each other and in order
_QUARTERS = (0.25, 0.5, 0.75)


class _Stays(NamedTuple):
    """Offers within hours, one an entry, sorted by hour."""

    hour: _Ints
    listing: _Ints
    listed: _Ints  # micro-dollars per GPU-hour
    priced: _Ints  # with commission
    seconds: _Ints


def track_of(tape: Tape, listed: GpuPrice, priced: GpuPrice, every: Every, zone: tzinfo, until_s: int) -> Track:
    """The spans from the first hour that somebody looked in to the last.

    Args:
        listed, priced: what a GPU-hour of a spell costs without and with commission, in micro-dollars.
        until_s: nothing is known from here on.
    """
    series = cut_to(series_of(tape, priced), 0, -(-until_s // HOUR_S))
    if not series.lows:
        return Track(points=[], series=series)
    stays = _stays(tape, listed, priced, until_s)
    looked = {series.first_hour + at for at, is_known in enumerate(series.looked) if is_known}
    spans = hours_of_spans(series.first_hour, series.first_hour + len(series.lows), every, zone)
    return Track(points=[_point(hours, stays, looked) for hours in spans], series=series)


def time_under(
    tape: Tape, x_microusd: float, priced: GpuPrice, until_s: int, looks: Sequence[Poll] | None = None
) -> Share:
    """To the second: how long something was on offer at or under a price.

    Args:
        looks: those that vouch for what they showed; None: the tape's sweeps that were answered whole.
    """
    windows = _windows(tape, until_s, looks)
    under = []
    for spell in tape.spells:
        if round(priced(spell.listing, spell)) <= x_microusd:
            mine = windows.get(_scope(tape.listings[spell.listing]))
            if mine is not None:
                under.append(_clipped(mine, spell.from_s, _until(spell, until_s)))
    return Share(
        under_s=_length(_union(under)),
        known_s=_length(_union(list(windows.values()))),
        method="time with an offer at or under it, of the time that looks vouch for (at most 3 h each)",
    )


def whole_looks(tape: Tape) -> list[Poll]:
    """The looks that prove absence."""
    return [poll for poll in tape.polls if poll.is_whole]


def _point(hours: list[int], stays: _Stays, looked: set[int]) -> TrackPoint:
    known = sum(hour in looked for hour in hours)
    starts_at = starts_of(hours)
    first, after = np.searchsorted(stays.hour, (hours[0], hours[-1] + 1))
    mine = _Stays(*(column[first:after] for column in stays))
    if not len(mine.hour):
        return TrackPoint(starts_at=starts_at, hours=len(hours), looked=known > 0, known_hours=known)
    q1, median, q3 = _quartiles(mine.listed, mine.seconds)
    q1_priced, median_priced, q3_priced = _quartiles(mine.priced, mine.seconds)
    different = np.unique(np.stack((mine.hour, mine.listing)), axis=1)
    return TrackPoint(
        starts_at=starts_at,
        hours=len(hours),
        looked=True,
        known_hours=known,
        offers=int(np.unique(different[0], return_counts=True)[1].max()),
        min_microusd=int(mine.listed.min()),
        min_with_commission_microusd=int(mine.priced.min()),
        q1_microusd=q1,
        median_microusd=median,
        q3_microusd=q3,
        q1_with_commission_microusd=q1_priced,
        median_with_commission_microusd=median_priced,
        q3_with_commission_microusd=q3_priced,
    )


def _quartiles(prices: _Ints, seconds: _Ints) -> list[int]:
    order = np.argsort(prices, kind="stable")
    gone_by = np.cumsum(seconds[order])
    at = np.searchsorted(gone_by, np.asarray(_QUARTERS) * gone_by[-1], side="left")
    return [int(price) for price in prices[order][at]]


def _stays(tape: Tape, listed: GpuPrice, priced: GpuPrice, until_s: int) -> _Stays:
    """Each spell cut into hours."""
    windows = _windows(tape, until_s)
    by_scope: dict[tuple[str, str, bool], list[Spell]] = {}
    for spell in tape.spells:
        by_scope.setdefault(_scope(tape.listings[spell.listing]), []).append(spell)
    parts = [
        _cut(spells, windows[scope], (listed, priced), until_s)
        for scope, spells in by_scope.items()
        if scope in windows
    ]
    if not parts:
        return _Stays(*(np.empty(0, np.int64) for _ in _Stays._fields))
    joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return _Stays(*(column[order] for column in joined))


def _cut(spells: list[Spell], windows: _Windows, prices: tuple[GpuPrice, GpuPrice], until_s: int) -> _Stays:
    hours = np.unique(np.concatenate([np.arange(a // HOUR_S, (b - 1) // HOUR_S + 1) for a, b in windows]))
    from_s = np.array([spell.from_s for spell in spells])
    to_s = np.array([_until(spell, until_s) for spell in spells])
    listed, priced = (np.array([round(price(one.listing, one)) for one in spells]) for price in prices)
    first = np.searchsorted(hours, from_s // HOUR_S)
    counts = np.maximum(np.searchsorted(hours, (to_s - 1) // HOUR_S, side="right") - first, 0)
    who = np.repeat(np.arange(len(spells)), counts)
    hour = hours[np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)]
    start, end = np.maximum(hour * HOUR_S, from_s[who]), np.minimum((hour + 1) * HOUR_S, to_s[who])
    seconds = np.where(end > start, _vouched(windows, end) - _vouched(windows, start), 0).astype(np.int64)
    kept = seconds > 0
    listing = np.array([spell.listing for spell in spells])
    return _Stays(*(column[kept] for column in (hour, listing[who], listed[who], priced[who], seconds)))


def _vouched(windows: _Windows, at_s: _Ints) -> NDArray[np.float64]:
    """How much of the time before each moment looks vouch for."""
    edges = windows.ravel()
    gone_by = np.cumsum(np.diff(edges, prepend=edges[0]) * (np.arange(len(edges)) % 2))
    return np.interp(at_s, edges, gone_by)


def _windows(tape: Tape, until_s: int, looks: Sequence[Poll] | None = None) -> Mapping[tuple[str, str, bool], _Windows]:
    """Scope of a listing → when looks vouch for what they showed."""
    at: dict[tuple[str, str, bool], list[int]] = {}
    for poll in whole_looks(tape) if looks is None else looks:
        at.setdefault((poll.provider, poll.gpu, poll.spot), []).append(poll.at_s)
    found = {}
    for provider, gpu, spot in {_scope(listing) for listing in tape.listings}:
        times = at.get((provider, gpu, spot), []) + at.get((provider, "", spot), [])
        if times:
            starts = np.array(sorted(times))
            found[provider, gpu, spot] = _union(
                [np.stack((starts, np.minimum(starts + LOOK_LASTS_S, until_s)), axis=1)]
            )
    return {scope: windows for scope, windows in found.items() if len(windows)}


def _scope(listing: Listing) -> tuple[str, str, bool]:
    return listing.identity.provider, listing.identity.gpu, listing.identity.spot


def _until(spell: Spell, until_s: int) -> int:
    return until_s if spell.gone_s is None else min(spell.gone_s, until_s)


def _clipped(windows: _Windows, from_s: int, until_s: int) -> _Windows:
    cut = np.clip(windows, from_s, max(from_s, until_s))
    return cut[cut[:, 1] > cut[:, 0]]


def _union(parts: list[_Windows]) -> _Windows:
    """All of them, joined where they touch."""
    spans = np.concatenate(parts) if parts else np.empty((0, 2), np.int64)
    spans = spans[spans[:, 1] > spans[:, 0]]
    if not len(spans):
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    starts = np.concatenate(([True], spans[1:, 0] > reach[:-1]))
    ends = np.concatenate((starts[1:], [True]))
    return np.stack((spans[starts, 0], reach[ends]), axis=1)


def _length(windows: _Windows) -> int:
    return int((windows[:, 1] - windows[:, 0]).sum())
