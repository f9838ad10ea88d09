"""From price rows to a market history: which polls the rows imply, and the intervals between them.

An offer without a row at some time was not on offer then. So each time of a provider counts as a complete poll of
everything the file covers, for a rental type from its first row on; unless the file has explicit polls of the provider.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gpuwatch.domain.analysis.market_history import ListedOffer, MarketHistory, MarketPoll, OfferInterval
from gpuwatch.domain.analysis.offer_intervals import CompletePoll, PollTimeline, price_runs, run_end
from gpuwatch.domain.analysis.price_rows import SAW_NOTHING_MICROUSD, PriceRow, canonical_gpu, listing_of, offer_kind_of
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Identity, OfferKind

PriceSource = tuple[str, OfferKind]  # provider, and the kind of its prices
PollScope = tuple[PriceSource, str, bool]  # GPU ("": all), spot


class SourceContents(msgspec.Struct):
    """What a file contains from one source."""

    gpus: set[str] = msgspec.field(default_factory=set)
    moments: set[int] = msgspec.field(default_factory=set)
    first_s: dict[bool, int] = msgspec.field(default_factory=dict)  # spot → its first row
    has_explicit_polls: bool = False
    rows: int = 0

    def implied_polls_at(self, at_s: int) -> Iterator[bool]:
        """The rental types that this time is a poll of, if the file has no explicit polls."""
        if not self.has_explicit_polls:
            yield from (spot for spot, first_s in sorted(self.first_s.items()) if first_s <= at_s)


class RowSurvey:
    """What the rows cover; complete only after all rows were added."""

    def __init__(self, kinds: Mapping[str, OfferKind]) -> None:
        self.kinds = kinds
        self.sources: dict[PriceSource, SourceContents] = {}

    def add(self, row: PriceRow) -> None:
        """Add a row."""
        source = (row.provider, offer_kind_of(row, self.kinds))
        about = self.sources.get(source)
        if about is None:
            about = self.sources[source] = SourceContents()
        if row.is_poll:
            about.has_explicit_polls = True
            return
        about.rows += 1
        about.moments.add(row.at_s)
        about.gpus.add(canonical_gpu(row.gpu_wire, row.gpu_memory_gib)[0])
        about.first_s[row.spot] = min(row.at_s, about.first_s.get(row.spot, row.at_s))


def poll_of_row(row: PriceRow) -> tuple[str, CompletePoll]:
    """The GPU of an explicit poll ("": all), and the poll."""
    known = catalog().get(row.gpu_wire)
    gpu = row.gpu_wire if known or not row.gpu_wire else canonical_gpu(row.gpu_wire, None)[0]
    return gpu, CompletePoll(row.at_s, row.listed_microusd_hour or None)


def history_of_rows(
    rows: Iterable[PriceRow], source: str, kinds: Mapping[str, OfferKind] | None = None
) -> MarketHistory:
    """Build the history; if an offer has two rows at one time, the cheaper price counts.

    Args:
        kinds: provider → the kind of its prices if the rows do not say; live if not named.
    """
    survey, polled = RowSurvey(kinds or {}), dict[PollScope, set[CompletePoll]]()
    offers: dict[tuple[Identity, OfferKind], dict[int, int]] = {}  # time → price
    newest: dict[tuple[Identity, OfferKind], tuple[int, ListedOffer]] = {}
    for row in rows:
        survey.add(row)
        if row.is_poll:
            if row.listed_microusd_hour == SAW_NOTHING_MICROUSD:
                continue
            gpu, poll = poll_of_row(row)
            polled.setdefault(((row.provider, offer_kind_of(row, survey.kinds)), gpu, row.spot), set()).add(poll)
            continue
        listing = listing_of(row, survey.kinds)
        who = (listing.identity, listing.kind)
        prices = offers.setdefault(who, {})
        prices[row.at_s] = min(row.listed_microusd_hour, prices.get(row.at_s, row.listed_microusd_hour))
        if who not in newest or newest[who][0] <= row.at_s:
            newest[who] = (row.at_s, listing)
    for origin, about in survey.sources.items():
        for at_s in about.moments:
            for spot in about.implied_polls_at(at_s):
                polled.setdefault((origin, "", spot), set()).add(CompletePoll(at_s))
    return MarketHistory(
        listings=tuple(listing for _, listing in newest.values()),
        intervals=_intervals(offers, polled),
        polls=_polls(polled),
        source=source,
    )


def _intervals(
    offers: Mapping[tuple[Identity, OfferKind], Mapping[int, int]],
    polled: Mapping[PollScope, set[CompletePoll]],
) -> list[OfferInterval]:
    made: list[OfferInterval] = []
    known: dict[PollScope, PollTimeline] = {}
    for number, ((identity, kind), prices) in enumerate(offers.items()):
        scope = ((identity.provider, kind), identity.gpu, identity.spot)
        if scope not in known:
            known[scope] = PollTimeline(polled.get(scope, set()) | polled.get((scope[0], "", scope[2]), set()))
        mine = price_runs(sorted(prices.items()), known[scope])
        for at, run in enumerate(mine):
            gone_s = run_end(mine, at, known[scope])
            made.append(OfferInterval(number, run.from_s, run.seen_s, gone_s, run.microusd, None))
    return sorted(made, key=lambda interval: (interval.from_s, interval.listing))


def _polls(polled: Mapping[PollScope, set[CompletePoll]]) -> list[MarketPoll]:
    polls = [
        MarketPoll(poll.at_s, provider, gpu, spot, poll.to_microusd is None)
        for ((provider, _), gpu, spot), found in polled.items()
        for poll in found
    ]
    return sorted(set(polls))
