"""A tape as price rows: what each look saw of each offer, and the looks themselves; `row_tapes` is the way back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from gpuwatch.domain.analysis.history_from_rows import PollScope, PriceSource
from gpuwatch.domain.analysis.implied import implied
from gpuwatch.domain.analysis.market_history import ListedOffer, MarketHistory, OfferInterval
from gpuwatch.domain.analysis.offer_intervals import CompletePoll
from gpuwatch.domain.analysis.price_rows import (
    SAW_NOTHING_MICROUSD,
    PriceRow,
    canonical_gpu,
    offer_key_of,
)
from gpuwatch.domain.market.offer import OfferKind

_CHEAPEST = 1  # micro-dollar: a row without a price is none


def price_rows_of(
    market_history: MarketHistory,
    looks: Mapping[PollScope, set[CompletePoll]],
    since_s: int,
    kinds: Mapping[str, OfferKind],
    disk_gb: float,
) -> Iterator[PriceRow]:
    """By time: a row for each look, and one for each offer that it saw; also where an offer was seen beside a look.

    Looks that the other rows say already have no row of their own (`implied`).

    Args:
        looks: by scope; what they do not show was not on offer.
        since_s: what was seen before is left out.
        kinds: provider → the kind of price that a row need not name.
        disk_gb: the disk that is in the price of a row.
    """
    walk, unreported_failures = _HistoryWalk(market_history), implied(market_history, looks, since_s)
    at_looks = deque(sorted(((look, scope) for scope, found in looks.items() for look in found), key=_when))
    told = unreported_failures | {source for (source, _, _), found in looks.items() if found}
    for at_s in sorted({look.at_s for look, _ in at_looks} | walk.edges()):
        speaking: set[PollScope] = set()
        while at_looks and at_looks[0][0].at_s == at_s:
            look, scope = at_looks.popleft()
            speaking.add(scope)
            if at_s >= since_s and scope[0] not in unreported_failures:
                yield _look_row(look, scope, kinds)
        seen = walk.seen_at(at_s, speaking)
        if at_s >= since_s:
            for source in sorted(
                {_source_of(market_history, interval) for interval in seen} - told
            ):  # or each moment were a look
                yield _look_row(CompletePoll(at_s, SAW_NOTHING_MICROUSD), (source, "", False), kinds)
                told.add(source)
            made = (
                _row(market_history.listings[interval.listing], interval, at_s, kinds, disk_gb) for interval in seen
            )
            yield from sorted(made, key=_order)


class _HistoryWalk:
    """Goes over a tape once, from moment to moment, with the spells that stand."""

    def __init__(self, market_history: MarketHistory) -> None:
        self._spells = market_history.intervals
        self._scopes = [_scope_of(listing) for listing in market_history.listings]
        self._begin = deque(
            sorted(range(len(market_history.intervals)), key=lambda at: market_history.intervals[at].from_s)
        )
        self._end = deque(sorted(self._begin, key=lambda at: market_history.intervals[at].seen_s))
        self._standing: dict[PollScope, dict[int, None]] = {}

    def edges(self) -> set[int]:
        """When an offer was seen first or last at a price."""
        return {at_s for interval in self._spells for at_s in (interval.from_s, interval.seen_s)}

    def seen_at(self, at_s: int, speaking: set[PollScope]) -> Sequence[OfferInterval]:
        """What looks at these scopes saw, and what was seen at this moment beside them; moments must ascend."""
        found: dict[int, None] = {}
        while self._begin and self._spells[self._begin[0]].from_s <= at_s:
            found[self._begin[0]] = None
            self._put(self._begin.popleft())
        for source, gpu, spot in speaking:
            scopes = [(source, gpu, spot)] if gpu else [one for one in self._standing if one[::2] == (source, spot)]
            for scope in scopes:
                found |= self._standing.get(scope, {})
        while self._end and self._spells[self._end[0]].seen_s <= at_s:
            found[self._end[0]] = None
            self._drop(self._end.popleft())
        return [self._spells[at] for at in found]

    def _put(self, at: int) -> None:
        self._standing.setdefault(self._scopes[self._spells[at].listing], {})[at] = None

    def _drop(self, at: int) -> None:
        del self._standing[self._scopes[self._spells[at].listing]][at]


def _when(one: tuple[CompletePoll, PollScope]) -> tuple[int, PollScope, int]:
    return one[0].at_s, one[1], one[0].to_microusd or 0


def _order(row: PriceRow) -> tuple[str, str, str, int, str]:
    return row.provider, row.offer_key, row.gpu_wire, row.gpu_count, row.kind or ""


def _source_of(market_history: MarketHistory, interval: OfferInterval) -> PriceSource:
    listing = market_history.listings[interval.listing]
    return listing.identity.provider, listing.kind


def _scope_of(listing: ListedOffer) -> PollScope:
    who = listing.identity
    return (who.provider, listing.kind), who.gpu, who.spot


def _look_row(look: CompletePoll, scope: PollScope, kinds: Mapping[str, OfferKind]) -> PriceRow:
    (provider, kind), gpu, spot = scope
    bound = look.to_microusd or 0
    return PriceRow(look.at_s, provider, None, "", None, gpu, 0, None, spot, bound, _told(provider, kind, kinds))


def _row(
    listing: ListedOffer, interval: OfferInterval, at_s: int, kinds: Mapping[str, OfferKind], disk_gb: float
) -> PriceRow:
    who = listing.identity
    memory = listing.gpu_memory_gib if canonical_gpu(who.gpu, listing.gpu_memory_gib)[0] == who.gpu else None
    return PriceRow(
        at_s,
        who.provider,
        None,
        offer_key_of(who),
        listing.region or listing.country,
        who.gpu,
        who.gpu_count,
        memory,
        who.spot,
        max(_CHEAPEST, interval.listed_microusd_hour(disk_gb)),
        _told(who.provider, listing.kind, kinds),
    )


def _told(provider: str, kind: OfferKind, kinds: Mapping[str, OfferKind]) -> OfferKind | None:
    return None if kinds.get(provider, OfferKind.LIVE) is kind else kind
