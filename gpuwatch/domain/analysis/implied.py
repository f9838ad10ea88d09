"""Which looks a file of price rows need not name, because its rows say them already (`row_tapes`)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from gpuwatch.domain.analysis.history_from_rows import PollScope, PriceSource
from gpuwatch.domain.analysis.market_history import MarketHistory, OfferInterval
from gpuwatch.domain.analysis.offer_intervals import CompletePoll

_Shelf = tuple[str, bool]  # GPU ("": all, of looks), spot
_Spells = Mapping[_Shelf, Sequence[OfferInterval]]
_Looks = Mapping[_Shelf, set[CompletePoll]]


def implied(
    market_history: MarketHistory, looks: Mapping[PollScope, set[CompletePoll]], since_s: int
) -> set[PriceSource]:
    """Sources of which each moment with a row is a look at all that the file is about, and no other moment is one.

    Args:
        looks: by scope.
        since_s: what was seen before is in no row.
    """
    intervals: dict[PriceSource, dict[_Shelf, list[OfferInterval]]] = {}
    for interval in market_history.intervals:
        listing = market_history.listings[interval.listing]
        if interval.seen_s >= since_s:
            shelf = (listing.identity.gpu, listing.identity.spot)
            intervals.setdefault((listing.identity.provider, listing.kind), {}).setdefault(shelf, []).append(interval)
    by_source: dict[PriceSource, dict[_Shelf, set[CompletePoll]]] = {}
    for (source, gpu, spot), found in looks.items():
        by_source.setdefault(source, {})[(gpu, spot)] = found
    return {source for source, mine in intervals.items() if _are_implied(mine, by_source.get(source, {}), since_s)}


def _are_implied(intervals: _Spells, looks: _Looks, since_s: int) -> bool:
    every = [interval for some in intervals.values() for interval in some]
    gpus, types = {gpu for gpu, _ in intervals}, {spot for _, spot in intervals}
    moments = sorted({look.at_s for found in looks.values() for look in found})
    edges = {at_s for interval in every for at_s in (interval.from_s, interval.seen_s) if at_s >= since_s}
    return (
        all(gpu in gpus and spot in types for gpu, spot in looks)  # one at all GPUs speaks of others, too
        and all(look.to_microusd is None for found in looks.values() for look in found)
        and edges <= set(moments)
        and _stood_at(moments, every) == len(moments)
        and all(
            _times(looks.get((gpu, spot), ())) == _asked(moments, intervals, spot, since_s)
            for gpu in gpus
            for spot in types
        )
    )


def _times(looks: Iterable[CompletePoll]) -> set[int]:
    return {look.at_s for look in looks}


def _asked(moments: Sequence[int], intervals: _Spells, spot: bool, since_s: int) -> set[int]:
    """The moments from the first row of a rental type on."""
    first_s = min(interval.from_s for (_, its), mine in intervals.items() if its == spot for interval in mine)
    return set(moments[bisect_left(moments, max(since_s, first_s)) :])


def _stood_at(moments: Sequence[int], intervals: Iterable[OfferInterval]) -> int:
    """At how many of these moments something was on offer."""
    counted, after = 0, 0  # moments before `after` are counted
    for interval in sorted(intervals, key=lambda one: one.from_s):
        start, end = max(after, bisect_left(moments, interval.from_s)), bisect_right(moments, interval.seen_s)
        if end > start:
            counted, after = counted + end - start, end
    return counted
