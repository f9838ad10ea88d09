"""Price rows as columns: each distinct offer of a file once, and for each row the offer's number, a time and a price.

A file of a million rows holds some thousand offers, so work done once per offer costs almost nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from gpuwatch.domain.history.market_history import CompletePoll
from gpuwatch.domain.history.poll_timeline import Flags, Ints
from gpuwatch.domain.history.price_rows import SAW_NOTHING_MICROUSD, PriceRow, canonical_gpu, listing_of, offer_kind_of
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Identity, ListedOffer, OfferKind

PriceSource = tuple[str, OfferKind]  # provider, and the kind of its prices

NO_LISTING = -1
_NO_INTS = np.empty(0, np.int64)


class PriceColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a file, in its order.

    Attributes:
        offers: the distinct offers and polls, in the order of their first rows; without time and price.
        offer: for each row, the index of its offer in `offers`.
    """

    offers: Sequence[PriceRow]
    offer: Ints
    at_s: Ints
    microusd: Ints

    def where(self, which: Flags | Ints) -> PriceColumns:
        """Some of the rows."""
        return replace(self, offer=self.offer[which], at_s=self.at_s[which], microusd=self.microusd[which])

    def rows(self) -> Iterator[PriceRow]:
        """The rows one by one."""
        for offer, at_s, microusd in zip(*map(np.ndarray.tolist, (self.offer, self.at_s, self.microusd)), strict=True):
            yield replace(self.offers[offer], at_s=at_s, listed_microusd_hour=microusd)


def columns_of(rows: Iterable[PriceRow]) -> PriceColumns:
    """Columns of some rows."""
    numbers: dict[PriceRow, int] = {}
    found = [
        (numbers.setdefault(replace(row, at_s=0, listed_microusd_hour=0), len(numbers)), row.at_s,
         row.listed_microusd_hour)
        for row in rows
    ]  # fmt: skip
    offer, at_s, microusd = np.array(found, np.int64).reshape(-1, 3).T
    return PriceColumns(offers=list(numbers), offer=offer, at_s=at_s, microusd=microusd)


class OfferIndex:
    """The properties of the offers of a file, by offer number.

    Attributes:
        sources: provider and kind of price, in the order of their first rows.
        source: for each offer, its index in `sources`.
        listing: for each offer, the number of its identity; `NO_LISTING`: it is a poll.
        gpus: for each offer, the canonical name of its GPU ("": a poll of all GPUs).
    """

    def __init__(
        self, offers: Sequence[PriceRow], kinds: Mapping[str, OfferKind], kind: OfferKind | None = None
    ) -> None:
        """Build the index.

        Args:
            kinds: provider → the kind of its prices if the rows do not state it; default: live.
            kind: the kind of all prices; it overrides the rows.
        """
        sources: dict[PriceSource, int] = {}
        numbers: dict[tuple[Identity, OfferKind], int] = {}
        self.facts: list[ListedOffer | None] = []
        self.gpus: list[str] = []
        source, listing = [], []
        for offer in offers:
            row = offer if kind is None else replace(offer, kind=kind)
            source.append(sources.setdefault((row.provider, offer_kind_of(row, kinds)), len(sources)))
            facts = None if row.is_poll else listing_of(row, kinds)
            self.facts.append(facts)
            self.gpus.append(_polled_gpu(row) if facts is None else facts.gpu)
            who = None if facts is None else (facts.identity, facts.kind)
            listing.append(NO_LISTING if who is None else numbers.setdefault(who, len(numbers)))
        self.sources = list(sources)
        self.identities = list(numbers)
        self.source = np.array(source, np.int64)
        self.listing = np.array(listing, np.int64)
        self.spot = np.array([offer.spot for offer in offers], bool)

    def facts_of(self, offer: int) -> ListedOffer:
        """The facts in the rows of an offer."""
        facts = self.facts[offer]
        assert facts is not None, "a poll has no facts"
        return facts

    def newest(self, rows: PriceColumns) -> dict[int, tuple[int, ListedOffer]]:
        """For each listing in these rows, the time and the facts of its newest row; of several, the last one."""
        listing = self.listing[rows.offer]
        order = np.argsort(keyed(listing, rows.at_s), kind="stable")
        last = order[np.append(np.diff(listing[order]) != 0, True)] if len(order) else _NO_INTS
        last = last[listing[last] != NO_LISTING]
        values = zip(*(part[last].tolist() for part in (listing, rows.at_s, rows.offer)), strict=True)
        return {number: (at_s, self.facts_of(offer)) for number, at_s, offer in values}


def _polled_gpu(row: PriceRow) -> str:
    known = catalog().get(row.gpu_wire)
    return row.gpu_wire if known or not row.gpu_wire else canonical_gpu(row.gpu_wire, None)[0]


class SourceContents(msgspec.Struct):
    """The contents of a file for one source."""

    gpus: set[str] = msgspec.field(default_factory=set)
    moments: Ints = msgspec.field(default_factory=lambda: _NO_INTS)
    first_s: dict[bool, int] = msgspec.field(default_factory=dict)  # spot → time of its first row
    has_explicit_polls: bool = False
    rows: int = 0

    def implied_polls(self, moments: Ints) -> Iterator[tuple[bool, Ints]]:
        """For each rental type, those of the given times that are polls of it, if the file has no explicit polls."""
        if not self.has_explicit_polls:
            for spot, first_s in sorted(self.first_s.items()):
                yield spot, moments[moments >= first_s]


class RowSurvey:
    """What the rows cover; complete only after all rows are added."""

    def __init__(self, index: OfferIndex) -> None:
        self.index = index
        self.sources: dict[PriceSource, SourceContents] = {}
        self.first_s: int | None = None
        self.last_s: int | None = None

    def add(self, rows: PriceColumns) -> None:
        """Add rows."""
        if not len(rows.at_s):
            return
        first_s, last_s = int(rows.at_s.min()), int(rows.at_s.max())
        self.first_s = first_s if self.first_s is None else min(self.first_s, first_s)
        self.last_s = last_s if self.last_s is None else max(self.last_s, last_s)
        source = self.index.source[rows.offer]
        for number in np.unique(source).tolist():
            about = self.sources.setdefault(self.index.sources[number], SourceContents())
            self._add_source(about, rows.where(source == number))

    def _add_source(self, about: SourceContents, rows: PriceColumns) -> None:
        offered = self.index.listing[rows.offer] != NO_LISTING
        about.has_explicit_polls |= not offered.all()
        rows = rows.where(offered)
        about.rows += len(rows.at_s)
        about.moments = np.union1d(about.moments, rows.at_s)
        about.gpus.update(self.index.gpus[offer] for offer in np.unique(rows.offer).tolist())
        for spot in (False, True):
            mine = rows.at_s[self.index.spot[rows.offer] == spot]
            if len(mine):
                about.first_s[spot] = min(int(mine.min()), about.first_s.get(spot, int(mine.min())))


class StatedPolls(msgspec.Struct):
    """The polls of one scope that a file states or implies."""

    complete_s: Ints = msgspec.field(default_factory=lambda: _NO_INTS)
    bounded: set[CompletePoll] = msgspec.field(default_factory=set)

    def add(self, complete_s: Ints, bounded: Iterable[CompletePoll] = ()) -> None:
        """Add polls."""
        self.complete_s = np.union1d(self.complete_s, complete_s)
        self.bounded.update(bounded)

    def all(self) -> set[CompletePoll]:
        """The polls one by one."""
        return {CompletePoll(at_s) for at_s in self.complete_s.tolist()} | self.bounded


def stated_polls(rows: PriceColumns, index: OfferIndex) -> dict[tuple[int, str, bool], StatedPolls]:
    """The polls that rows state, by source, GPU ("": all) and rental type."""
    found: dict[tuple[int, str, bool], StatedPolls] = {}
    polls = rows.where(index.listing[rows.offer] == NO_LISTING)
    polls = polls.where(polls.microusd != SAW_NOTHING_MICROUSD)
    for offer in np.unique(polls.offer).tolist():
        mine = polls.where(polls.offer == offer)
        bounded = mine.where(mine.microusd > 0)
        scope = (int(index.source[offer]), index.gpus[offer], bool(index.spot[offer]))
        pairs: Any = zip(bounded.at_s.tolist(), bounded.microusd.tolist(), strict=True)
        found.setdefault(scope, StatedPolls()).add(
            mine.at_s[mine.microusd == 0], (CompletePoll(*pair) for pair in pairs)
        )
    return found


def cheapest_at_once(offer: Ints, at_s: Ints, microusd: Ints) -> tuple[Ints, Ints, Ints]:
    """Observations ordered by offer and time; of several at one time, the cheapest."""
    order = np.argsort(keyed(offer, at_s), kind="stable")  # usually almost sorted already
    again = (offer[order[1:]] == offer[order[:-1]]) & (at_s[order[1:]] == at_s[order[:-1]])
    if again.any():
        order = np.lexsort((microusd, at_s, offer))
    order = order[np.append(True, ~again)] if len(order) else order
    return offer[order], at_s[order], microusd[order]


def keyed(offer: Ints, at_s: Ints) -> Ints:
    """One sortable number for an offer and a time (before 2106)."""
    return (offer << 32) + at_s
