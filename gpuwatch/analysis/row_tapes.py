"""What follows from price rows: when somebody looked at what, and the tape of the market.

A moment at which an offer has no row says that it was not on offer. So each moment of a provider is a look at all that
the file is about, of a rental type from its first row on; unless the file has looks of this provider: then those count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gpuwatch.analysis.price_rows import NOTHING, PriceRow, gpu_of, kind_of, listing_of
from gpuwatch.analysis.sightings import Look, Looks, gone_at, runs
from gpuwatch.analysis.tape import Listing, Poll, Spell, Tape
from gpuwatch.market.gpu_names import catalog
from gpuwatch.market.offer import Identity, OfferKind

Source = tuple[str, OfferKind]  # provider, and what its prices were
Scope = tuple[Source, str, bool]  # GPU ("": all), spot


class About(msgspec.Struct):
    """What a file holds of one source."""

    gpus: set[str] = msgspec.field(default_factory=set)
    moments: set[int] = msgspec.field(default_factory=set)
    first_s: dict[bool, int] = msgspec.field(default_factory=dict)  # spot → its first row
    says_looks: bool = False
    rows: int = 0

    def looks_at(self, at_s: int) -> Iterator[bool]:
        """Of which rental types this moment is a look, where the file does not say so itself."""
        if not self.says_looks:
            yield from (spot for spot, first_s in sorted(self.first_s.items()) if first_s <= at_s)


class Survey:
    """What rows are about; it must have seen all of them before it is asked."""

    def __init__(self, kinds: Mapping[str, OfferKind]) -> None:
        self.kinds = kinds
        self.sources: dict[Source, About] = {}

    def add(self, row: PriceRow) -> None:
        """Count a row in."""
        source = (row.provider, kind_of(row, self.kinds))
        about = self.sources.get(source)
        if about is None:
            about = self.sources[source] = About()
        if row.is_look:
            about.says_looks = True
            return
        about.rows += 1
        about.moments.add(row.at_s)
        about.gpus.add(gpu_of(row.gpu_wire, row.gpu_memory_gib)[0])
        about.first_s[row.spot] = min(row.at_s, about.first_s.get(row.spot, row.at_s))


def look_of(row: PriceRow) -> tuple[str, Look]:
    """The GPU that a look is at ("": all), and the look."""
    known = catalog().get(row.gpu_wire)
    gpu = row.gpu_wire if known or not row.gpu_wire else gpu_of(row.gpu_wire, None)[0]
    return gpu, Look(row.at_s, row.listed_microusd_hour or None)


def tape_of(rows: Iterable[PriceRow], source: str, kinds: Mapping[str, OfferKind] | None = None) -> Tape:
    """The tape that rows make; of one offer twice at one moment, the cheaper price counts.

    Args:
        kinds: provider → what its prices are where the rows do not say it; one that is not named is live.
    """
    survey, looks = Survey(kinds or {}), dict[Scope, set[Look]]()
    offers: dict[tuple[Identity, OfferKind], dict[int, int]] = {}  # moment → price
    newest: dict[tuple[Identity, OfferKind], tuple[int, Listing]] = {}
    for row in rows:
        survey.add(row)
        if row.is_look:
            if row.listed_microusd_hour == NOTHING:
                continue
            gpu, look = look_of(row)
            looks.setdefault(((row.provider, kind_of(row, survey.kinds)), gpu, row.spot), set()).add(look)
            continue
        listing = listing_of(row, survey.kinds)
        who = (listing.identity, listing.kind)
        prices = offers.setdefault(who, {})
        prices[row.at_s] = min(row.listed_microusd_hour, prices.get(row.at_s, row.listed_microusd_hour))
        if who not in newest or newest[who][0] <= row.at_s:
            newest[who] = (row.at_s, listing)
    for origin, about in survey.sources.items():
        for at_s in about.moments:
            for spot in about.looks_at(at_s):
                looks.setdefault((origin, "", spot), set()).add(Look(at_s))
    return Tape(
        listings=tuple(listing for _, listing in newest.values()),
        spells=_spells(offers, looks),
        polls=_polls(looks),
        source=source,
    )


def _spells(
    offers: Mapping[tuple[Identity, OfferKind], Mapping[int, int]], looks: Mapping[Scope, set[Look]]
) -> list[Spell]:
    made: list[Spell] = []
    known: dict[Scope, Looks] = {}
    for number, ((identity, kind), prices) in enumerate(offers.items()):
        scope = ((identity.provider, kind), identity.gpu, identity.spot)
        if scope not in known:
            known[scope] = Looks(looks.get(scope, set()) | looks.get((scope[0], "", scope[2]), set()))
        mine = runs(sorted(prices.items()), known[scope])
        for at, run in enumerate(mine):
            gone_s = gone_at(mine, at, known[scope])
            made.append(Spell(number, run.from_s, run.seen_s, gone_s, run.microusd, None))
    return sorted(made, key=lambda spell: (spell.from_s, spell.listing))


def _polls(looks: Mapping[Scope, set[Look]]) -> list[Poll]:
    polls = [
        Poll(look.at_s, provider, gpu, spot, look.to_microusd is None)
        for ((provider, _), gpu, spot), found in looks.items()
        for look in found
    ]
    return sorted(set(polls))
