"""From price rows to a market history, and back. Pure.

- `history_of_rows`: the polls that the rows imply, and the intervals between them. An offer without a row at some time
  was not on offer then. So each time in a provider's rows counts as a complete poll of everything the file covers, for
  a rental type from its first row on, unless the file has explicit polls of the provider.
- `price_rows_of`: what each poll saw, and the polls, except those that the other rows imply.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gpuwatch.domain.history.market_history import CompletePoll, MarketHistory, MarketPoll, OfferInterval
from gpuwatch.domain.history.poll_timeline import NEVER_S, PollTimeline, price_runs
from gpuwatch.domain.history.price_columns import (
    NO_LISTING,
    OfferIndex,
    PriceColumns,
    PriceSource,
    RowSurvey,
    StatedPolls,
    cheapest_at_once,
    columns_of,
    stated_polls,
)
from gpuwatch.domain.history.price_rows import SAW_NOTHING_MICROUSD, PriceRow, price_row_of
from gpuwatch.domain.market.offer import ListedOffer, OfferKind

PollScope = tuple[PriceSource, str, bool]  # GPU ("": all), spot
_Polled = Mapping[PollScope, StatedPolls]

_CHEAPEST = 1  # micro-dollar: a row needs a price

_QueryKey = tuple[str, bool]  # GPU ("": all, for polls), spot
_Intervals = Mapping[_QueryKey, Sequence[OfferInterval]]
_CompletePolls = Mapping[_QueryKey, set[CompletePoll]]


def history_of_rows(
    rows: Iterable[PriceRow], source: str, kinds: Mapping[str, OfferKind] | None = None
) -> MarketHistory:
    """Build the history; if an offer has two rows at one time, the lower price counts.

    Args:
        kinds: provider → the kind of its prices if the rows do not state it; default: live.
    """
    return history_of_columns(columns_of(rows), source, kinds or {})


def history_of_columns(
    rows: PriceColumns,
    source: str,
    kinds: Mapping[str, OfferKind],
    wanted: Callable[[tuple[ListedOffer, ...]], list[bool]] | None = None,
) -> MarketHistory:
    """Build the history from columns.

    Args:
        wanted: all offers → which of them get intervals; None: all.
    """
    index = OfferIndex(rows.offers, kinds)
    survey = RowSurvey(index)
    survey.add(rows)
    polled = _polled(rows, index, survey)
    listings, numbers = _listings(rows, index)
    listing = numbers[index.listing[rows.offer]]
    seen = listing != NO_LISTING
    if wanted is not None:
        seen &= np.append(np.array(wanted(listings), bool), False)[listing]
    observed = cheapest_at_once(listing[seen], rows.at_s[seen], rows.microusd[seen])
    return MarketHistory(
        listings=listings, intervals=_intervals(listings, observed, polled), polls=_polls(polled), source=source
    )


def _polled(rows: PriceColumns, index: OfferIndex, survey: RowSurvey) -> dict[PollScope, StatedPolls]:
    polled: dict[PollScope, StatedPolls] = {}
    for (source, gpu, spot), polls in stated_polls(rows, index).items():
        polled[(index.sources[source], gpu, spot)] = polls
    for origin, about in survey.sources.items():
        for spot, at_s in about.implied_polls(about.moments):
            polled.setdefault((origin, "", spot), StatedPolls()).add(at_s)
    return polled


def _listings(rows: PriceColumns, index: OfferIndex) -> tuple[tuple[ListedOffer, ...], Any]:
    """The offers with rows, and each index number's position among them; the last position stands for no offer."""
    newest, ordered = index.newest(rows), _by_first_row(rows, index)
    numbers = np.full(len(index.identities) + 1, NO_LISTING, np.int64)
    numbers[ordered] = np.arange(len(ordered))
    return tuple(newest[number][1] for number in ordered), numbers


def _by_first_row(rows: PriceColumns, index: OfferIndex) -> list[int]:
    found, first = np.unique(index.listing[rows.offer], return_index=True)
    order = found[np.argsort(first)]
    return [number for number in order.tolist() if number != NO_LISTING]


def _intervals(listings: tuple[ListedOffer, ...], observed: Any, polled: _Polled) -> list[OfferInterval]:
    offer, at_s, microusd = observed
    scopes: dict[PollScope, list[int]] = {}
    for number, listing in enumerate(listings):
        scopes.setdefault(_scope_of(listing), []).append(number)
    part = np.empty(len(listings), np.int64)
    for place, numbers in enumerate(scopes.values()):
        part[numbers] = place
    made: list[tuple[Any, ...]] = []
    for place, scope in enumerate(scopes):
        mine = part[offer] == place
        if mine.any():
            made.append(price_runs(offer[mine], at_s[mine], microusd[mine], _timeline(polled, scope)))
    if not made:
        return []
    offer, from_s, seen_s, microusd, ended_s = (np.concatenate(column) for column in zip(*made, strict=True))
    order = np.lexsort((offer, from_s))
    columns = (column[order].tolist() for column in (offer, from_s, seen_s, ended_s, microusd))
    return [
        OfferInterval(number, start, seen, None if gone == NEVER_S else gone, price, None)
        for number, start, seen, gone, price in zip(*columns, strict=True)
    ]


def _timeline(polled: _Polled, scope: PollScope) -> PollTimeline:
    """The polls of a GPU, together with the polls of all GPUs."""
    found = StatedPolls()
    for one in (scope, (scope[0], "", scope[2])):
        polls = polled.get(one, StatedPolls())
        found.add(polls.complete_s, polls.bounded)
    return PollTimeline(found.complete_s, found.bounded)


def _polls(polled: _Polled) -> list[MarketPoll]:
    polls: set[MarketPoll] = set()
    for ((provider, _), gpu, spot), found in polled.items():
        polls.update(MarketPoll(at_s, provider, gpu, spot, True) for at_s in found.complete_s.tolist())
        polls.update(MarketPoll(poll.at_s, provider, gpu, spot, False) for poll in found.bounded)
    return sorted(polls)


def price_rows_of(
    market_history: MarketHistory,
    complete_polls: Mapping[PollScope, set[CompletePoll]],
    since_s: int,
    kinds: Mapping[str, OfferKind],
    disk_gb: float,
) -> Iterator[PriceRow]:
    """Rows in time order: one for each poll and each offer it saw, and one for each observation outside of polls.

    Polls that the other rows imply get no row.

    Args:
        complete_polls: by scope; an offer that they do not show was not on offer.
        since_s: earlier observations are left out.
        kinds: provider → the kind of its prices; rows of this kind need not state it.
        disk_gb: the disk included in a row's price.
    """
    walk, implied = _HistoryWalk(market_history), implied_sources(market_history, complete_polls, since_s)
    pending = deque(sorted(((poll, scope) for scope, found in complete_polls.items() for poll in found), key=_when))
    stated = implied | {source for (source, _, _), found in complete_polls.items() if found}
    for at_s in sorted({poll.at_s for poll, _ in pending} | walk.edges()):
        polled: set[PollScope] = set()
        while pending and pending[0][0].at_s == at_s:
            poll, scope = pending.popleft()
            polled.add(scope)
            if at_s >= since_s and scope[0] not in implied:
                yield _poll_row(poll, scope, kinds)
        seen = walk.seen_at(at_s, polled)
        if at_s >= since_s:
            for source in sorted(
                {_source_of(market_history, interval) for interval in seen} - stated
            ):  # otherwise each time would count as a poll
                yield _poll_row(CompletePoll(at_s, SAW_NOTHING_MICROUSD), (source, "", False), kinds)
                stated.add(source)
            made = (
                _row(market_history.listings[interval.listing], interval, at_s, kinds, disk_gb) for interval in seen
            )
            yield from sorted(made, key=_order)


class _HistoryWalk:
    """Iterates once over a history in time order and keeps the intervals that are on offer."""

    def __init__(self, market_history: MarketHistory) -> None:
        self._intervals = market_history.intervals
        self._scopes = [_scope_of(listing) for listing in market_history.listings]
        self._begin = deque(
            sorted(range(len(market_history.intervals)), key=lambda at: market_history.intervals[at].from_s)
        )
        self._end = deque(sorted(self._begin, key=lambda at: market_history.intervals[at].seen_s))
        self._on_sale: dict[PollScope, dict[int, None]] = {}

    def edges(self) -> set[int]:
        """The times when an offer was first or last seen at a price."""
        return {at_s for interval in self._intervals for at_s in (interval.from_s, interval.seen_s)}

    def seen_at(self, at_s: int, polled: set[PollScope]) -> Sequence[OfferInterval]:
        """The offers that polls of these scopes saw, and those observed outside of them; times must ascend."""
        found: dict[int, None] = {}
        while self._begin and self._intervals[self._begin[0]].from_s <= at_s:
            found[self._begin[0]] = None
            self._put(self._begin.popleft())
        for source, gpu, spot in polled:
            scopes = [(source, gpu, spot)] if gpu else [one for one in self._on_sale if one[::2] == (source, spot)]
            for scope in scopes:
                found |= self._on_sale.get(scope, {})
        while self._end and self._intervals[self._end[0]].seen_s <= at_s:
            found[self._end[0]] = None
            self._drop(self._end.popleft())
        return [self._intervals[at] for at in found]

    def _put(self, at: int) -> None:
        self._on_sale.setdefault(self._scopes[self._intervals[at].listing], {})[at] = None

    def _drop(self, at: int) -> None:
        del self._on_sale[self._scopes[self._intervals[at].listing]][at]


def _when(one: tuple[CompletePoll, PollScope]) -> tuple[int, PollScope, int]:
    return one[0].at_s, one[1], one[0].to_microusd or 0


def _order(row: PriceRow) -> tuple[str, str, str, int, str]:
    return row.provider, row.offer_key, row.gpu_wire, row.gpu_count, row.kind or ""


def _source_of(market_history: MarketHistory, interval: OfferInterval) -> PriceSource:
    listing = market_history.listings[interval.listing]
    return listing.provider, listing.kind


def _scope_of(listing: ListedOffer) -> PollScope:
    return (listing.provider, listing.kind), listing.gpu, listing.spot


def _poll_row(poll: CompletePoll, scope: PollScope, kinds: Mapping[str, OfferKind]) -> PriceRow:
    (provider, kind), gpu, spot = scope
    return PriceRow(
        at_s=poll.at_s,
        provider=provider,
        gpu_wire=gpu,
        spot=spot,
        listed_microusd_hour=poll.to_microusd or 0,
        kind=_stated_kind(provider, kind, kinds),
    )


def _row(
    listing: ListedOffer, interval: OfferInterval, at_s: int, kinds: Mapping[str, OfferKind], disk_gb: float
) -> PriceRow:
    price = max(_CHEAPEST, interval.listed_microusd_hour(disk_gb))
    return price_row_of(listing, at_s, price, _stated_kind(listing.provider, listing.kind, kinds))


def _stated_kind(provider: str, kind: OfferKind, kinds: Mapping[str, OfferKind]) -> OfferKind | None:
    return None if kinds.get(provider, OfferKind.LIVE) is kind else kind


# --- polls that the rows imply ----------------------------------------------------------------------------------------


def implied_sources(
    market_history: MarketHistory, complete_polls: Mapping[PollScope, set[CompletePoll]], since_s: int
) -> set[PriceSource]:
    """Sources whose polls the rows imply: each time with a row polled all that the file covers, and no other time did.

    Args:
        complete_polls: by scope.
        since_s: earlier observations have no row.
    """
    intervals: dict[PriceSource, dict[_QueryKey, list[OfferInterval]]] = {}
    for interval in market_history.intervals:
        listing = market_history.listings[interval.listing]
        if interval.seen_s >= since_s:
            key = (listing.gpu, listing.spot)
            intervals.setdefault((listing.provider, listing.kind), {}).setdefault(key, []).append(interval)
    by_source: dict[PriceSource, dict[_QueryKey, set[CompletePoll]]] = {}
    for (source, gpu, spot), found in complete_polls.items():
        by_source.setdefault(source, {})[(gpu, spot)] = found
    return {source for source, mine in intervals.items() if _are_implied(mine, by_source.get(source, {}), since_s)}


def _are_implied(intervals: _Intervals, complete_polls: _CompletePolls, since_s: int) -> bool:
    every = [interval for some in intervals.values() for interval in some]
    gpus, types = {gpu for gpu, _ in intervals}, {spot for _, spot in intervals}
    times = sorted({poll.at_s for found in complete_polls.values() for poll in found})
    edges = {at_s for interval in every for at_s in (interval.from_s, interval.seen_s) if at_s >= since_s}
    return (
        all(gpu in gpus and spot in types for gpu, spot in complete_polls)  # a poll of all GPUs covers single GPUs, too
        and all(poll.to_microusd is None for found in complete_polls.values() for poll in found)
        and edges <= set(times)
        and _times_with_offers(times, every) == len(times)
        and all(
            _times(complete_polls.get((gpu, spot), ())) == _times_since_first_row(times, intervals, spot, since_s)
            for gpu in gpus
            for spot in types
        )
    )


def _times(complete_polls: Iterable[CompletePoll]) -> set[int]:
    return {poll.at_s for poll in complete_polls}


def _times_since_first_row(times: Sequence[int], intervals: _Intervals, spot: bool, since_s: int) -> set[int]:
    """The times from the first row of a rental type on."""
    first_s = min(interval.from_s for (_, its), mine in intervals.items() if its == spot for interval in mine)
    return set(times[bisect_left(times, max(since_s, first_s)) :])


def _times_with_offers(times: Sequence[int], intervals: Iterable[OfferInterval]) -> int:
    """The number of these times at which something was on offer."""
    counted, after = 0, 0  # times before `after` are counted
    for interval in sorted(intervals, key=lambda one: one.from_s):
        start, end = max(after, bisect_left(times, interval.from_s)), bisect_right(times, interval.seen_s)
        if end > start:
            counted, after = counted + end - start, end
    return counted
