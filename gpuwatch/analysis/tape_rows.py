"""A tape as price rows: what each look saw of each offer, and the looks themselves; `row_tapes` is the way back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from gpuwatch.analysis.implied import implied
from gpuwatch.analysis.price_rows import NOTHING, PriceRow, gpu_of, key_of
from gpuwatch.analysis.row_tapes import Scope, Source
from gpuwatch.analysis.sightings import Look
from gpuwatch.analysis.tape import Listing, Spell, Tape
from gpuwatch.market.offer import OfferKind

_CHEAPEST = 1  # micro-dollar: a row without a price is none


def rows_of(
    tape: Tape, looks: Mapping[Scope, set[Look]], since_s: int, kinds: Mapping[str, OfferKind], disk_gb: float
) -> Iterator[PriceRow]:
    """By time: a row for each look, and one for each offer that it saw; also where an offer was seen beside a look.

    Looks that the other rows say already have no row of their own (`implied`).

    Args:
        looks: by scope; what they do not show was not on offer.
        since_s: what was seen before is left out.
        kinds: provider → the kind of price that a row need not name.
        disk_gb: the disk that is in the price of a row.
    """
    walk, unsaid = _Walk(tape), implied(tape, looks, since_s)
    at_looks = deque(sorted(((look, scope) for scope, found in looks.items() for look in found), key=_when))
    told = unsaid | {source for (source, _, _), found in looks.items() if found}
    for at_s in sorted({look.at_s for look, _ in at_looks} | walk.edges()):
        speaking: set[Scope] = set()
        while at_looks and at_looks[0][0].at_s == at_s:
            look, scope = at_looks.popleft()
            speaking.add(scope)
            if at_s >= since_s and scope[0] not in unsaid:
                yield _look_row(look, scope, kinds)
        seen = walk.seen_at(at_s, speaking)
        if at_s >= since_s:
            for source in sorted({_source_of(tape, spell) for spell in seen} - told):  # or each moment were a look
                yield _look_row(Look(at_s, NOTHING), (source, "", False), kinds)
                told.add(source)
            made = (_row(tape.listings[spell.listing], spell, at_s, kinds, disk_gb) for spell in seen)
            yield from sorted(made, key=_order)


class _Walk:
    """Goes over a tape once, from moment to moment, with the spells that stand."""

    def __init__(self, tape: Tape) -> None:
        self._spells = tape.spells
        self._scopes = [_scope_of(listing) for listing in tape.listings]
        self._begin = deque(sorted(range(len(tape.spells)), key=lambda at: tape.spells[at].from_s))
        self._end = deque(sorted(self._begin, key=lambda at: tape.spells[at].seen_s))
        self._standing: dict[Scope, dict[int, None]] = {}

    def edges(self) -> set[int]:
        """When an offer was seen first or last at a price."""
        return {at_s for spell in self._spells for at_s in (spell.from_s, spell.seen_s)}

    def seen_at(self, at_s: int, speaking: set[Scope]) -> Sequence[Spell]:
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


def _when(one: tuple[Look, Scope]) -> tuple[int, Scope, int]:
    return one[0].at_s, one[1], one[0].to_microusd or 0


def _order(row: PriceRow) -> tuple[str, str, str, int, str]:
    return row.provider, row.offer_key, row.gpu_wire, row.gpu_count, row.kind or ""


def _source_of(tape: Tape, spell: Spell) -> Source:
    listing = tape.listings[spell.listing]
    return listing.identity.provider, listing.kind


def _scope_of(listing: Listing) -> Scope:
    who = listing.identity
    return (who.provider, listing.kind), who.gpu, who.spot


def _look_row(look: Look, scope: Scope, kinds: Mapping[str, OfferKind]) -> PriceRow:
    (provider, kind), gpu, spot = scope
    bound = look.to_microusd or 0
    return PriceRow(look.at_s, provider, None, "", None, gpu, 0, None, spot, bound, _told(provider, kind, kinds))


def _row(listing: Listing, spell: Spell, at_s: int, kinds: Mapping[str, OfferKind], disk_gb: float) -> PriceRow:
    who = listing.identity
    memory = listing.gpu_memory_gib if gpu_of(who.gpu, listing.gpu_memory_gib)[0] == who.gpu else None
    return PriceRow(
        at_s,
        who.provider,
        None,
        key_of(who),
        listing.region or listing.country,
        who.gpu,
        who.gpu_count,
        memory,
        who.spot,
        max(_CHEAPEST, spell.listed_microusd_hour(disk_gb)),
        _told(who.provider, listing.kind, kinds),
    )


def _told(provider: str, kind: OfferKind, kinds: Mapping[str, OfferKind]) -> OfferKind | None:
    return None if kinds.get(provider, OfferKind.LIVE) is kind else kind
