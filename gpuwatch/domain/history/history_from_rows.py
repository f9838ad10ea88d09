"""Build a market history from price rows: the polls that the rows imply, and the intervals between them.

An offer without a row at some time was not on offer then. So each time in a provider's rows counts as a complete poll
of everything the file covers, for a rental type from its first row on, unless the file has explicit polls of the
provider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from gpuwatch.domain.history.market_history import ListedOffer, MarketHistory, MarketPoll, OfferInterval
from gpuwatch.domain.history.poll_timeline import NEVER_S, PollTimeline, price_runs, run_ends
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
from gpuwatch.domain.history.price_rows import PriceRow
from gpuwatch.domain.market.offer import OfferKind

PollScope = tuple[PriceSource, str, bool]  # GPU ("": all), spot
_Polled = Mapping[PollScope, StatedPolls]


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
        who = listing.identity
        scopes.setdefault(((who.provider, listing.kind), who.gpu, who.spot), []).append(number)
    part = np.empty(len(listings), np.int64)
    for place, numbers in enumerate(scopes.values()):
        part[numbers] = place
    made: list[tuple[Any, ...]] = []
    for place, scope in enumerate(scopes):
        mine = part[offer] == place
        if mine.any():
            timeline = _timeline(polled, scope)
            runs = price_runs(offer[mine], at_s[mine], microusd[mine], timeline)
            made.append((*runs, run_ends(runs, timeline)))
    if not made:
        return []
    offer, from_s, seen_s, microusd, delisted_s = (np.concatenate(column) for column in zip(*made, strict=True))
    order = np.lexsort((offer, from_s))
    columns = (column[order].tolist() for column in (offer, from_s, seen_s, delisted_s, microusd))
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
