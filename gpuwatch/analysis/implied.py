"""Which looks a file of price rows need not name, because its rows say them already (`row_tapes`)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from gpuwatch.analysis.row_tapes import Scope, Source
from gpuwatch.analysis.sightings import Look
from gpuwatch.analysis.tape import Spell, Tape

_Shelf = tuple[str, bool]  # GPU ("": all, of looks), spot
_Spells = Mapping[_Shelf, Sequence[Spell]]
_Looks = Mapping[_Shelf, set[Look]]


def implied(tape: Tape, looks: Mapping[Scope, set[Look]], since_s: int) -> set[Source]:
    """Sources of which each moment with a row is a look at all that the file is about, and no other moment is one.

    Args:
        looks: by scope.
        since_s: what was seen before is in no row.
    """
    spells: dict[Source, dict[_Shelf, list[Spell]]] = {}
    for spell in tape.spells:
        listing = tape.listings[spell.listing]
        if spell.seen_s >= since_s:
            shelf = (listing.identity.gpu, listing.identity.spot)
            spells.setdefault((listing.identity.provider, listing.kind), {}).setdefault(shelf, []).append(spell)
    by_source: dict[Source, dict[_Shelf, set[Look]]] = {}
    for (source, gpu, spot), found in looks.items():
        by_source.setdefault(source, {})[(gpu, spot)] = found
    return {source for source, mine in spells.items() if _are_implied(mine, by_source.get(source, {}), since_s)}


def _are_implied(spells: _Spells, looks: _Looks, since_s: int) -> bool:
    every = [spell for some in spells.values() for spell in some]
    gpus, types = {gpu for gpu, _ in spells}, {spot for _, spot in spells}
    moments = sorted({look.at_s for found in looks.values() for look in found})
    edges = {at_s for spell in every for at_s in (spell.from_s, spell.seen_s) if at_s >= since_s}
    return (
        all(gpu in gpus and spot in types for gpu, spot in looks)  # one at all GPUs speaks of others, too
        and all(look.to_microusd is None for found in looks.values() for look in found)
        and edges <= set(moments)
        and _stood_at(moments, every) == len(moments)
        and all(
            _times(looks.get((gpu, spot), ())) == _asked(moments, spells, spot, since_s)
            for gpu in gpus
            for spot in types
        )
    )


def _times(looks: Iterable[Look]) -> set[int]:
    return {look.at_s for look in looks}


def _asked(moments: Sequence[int], spells: _Spells, spot: bool, since_s: int) -> set[int]:
    """The moments from the first row of a rental type on."""
    first_s = min(spell.from_s for (_, its), mine in spells.items() if its == spot for spell in mine)
    return set(moments[bisect_left(moments, max(since_s, first_s)) :])


def _stood_at(moments: Sequence[int], spells: Iterable[Spell]) -> int:
    """At how many of these moments something was on offer."""
    counted, after = 0, 0  # moments before `after` are counted
    for spell in sorted(spells, key=lambda one: one.from_s):
        start, end = max(after, bisect_left(moments, spell.from_s)), bisect_right(moments, spell.seen_s)
        if end > start:
            counted, after = counted + end - start, end
    return counted
