"""The lowest price of each hour: what the questions about waiting and about hours of the week are asked of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from gpuwatch.analysis.tape import Spell, Tape

HOUR_S = 3600
LOOK_LASTS_S = 3 * HOUR_S  # what a look showed is taken for so until the next one, but no longer than this


class PriceSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One value an hour, commission included, in micro-dollars per GPU-hour.

    `lows[i]` is the lowest price of hour `first_hour + i` (hours since 1970, UTC). None: nothing was on offer if
    `looked[i]`, else nobody looked, which is a gap and never "no offers".
    """

    first_hour: int
    lows: Sequence[int | None]
    looked: Sequence[bool]
    source: str

    @property
    def known(self) -> int:
        """In how many hours did somebody look?"""
        return sum(self.looked)

    def starts_at(self, index: int) -> datetime:
        """When an hour begins."""
        return datetime.fromtimestamp((self.first_hour + index) * HOUR_S, UTC)


def series_of(tape: Tape, gpu_price: Callable[[int, Spell], float]) -> PriceSeries:
    """The series of a tape.

    Args:
        gpu_price: what a GPU-hour of a spell of this listing costs, commission included, in micro-dollars.
    """
    if tape.starts_s is None or tape.ends_s is None:
        return PriceSeries(first_hour=0, lows=(), looked=(), source=tape.source)
    first, last = tape.starts_s // HOUR_S, (tape.ends_s + LOOK_LASTS_S - 1) // HOUR_S
    looked = _looked(tape, first, last)
    last = max((at for at, is_known in enumerate(looked) if is_known), default=0)
    lows: list[int | None] = [None] * (last + 1)
    for spell in tape.spells:
        price = max(1, round(gpu_price(spell.listing, spell)))  # many GPUs for a micro-dollar: prices are divided by
        for hour in range(max(first, spell.from_s // HOUR_S), _last_hour(spell) + 1):
            at = hour - first
            known = lows[at] if at <= last and looked[at] else -1
            if known is None or price < known:
                lows[at] = price
    return PriceSeries(first_hour=first, lows=lows, looked=looked[: last + 1], source=tape.source)


def _last_hour(spell: Spell) -> int:
    """The last hour that it was on offer in: to the look that missed it, or as long as the last look lasts."""
    lasts_s = spell.seen_s + LOOK_LASTS_S
    return ((lasts_s if spell.gone_s is None else min(spell.gone_s, lasts_s)) - 1) // HOUR_S


def _looked(tape: Tape, first: int, last: int) -> list[bool]:
    looked = [False] * (last - first + 1)
    for poll in tape.polls:
        if poll.is_whole:
            for hour in range(poll.at_s // HOUR_S, (poll.at_s + LOOK_LASTS_S - 1) // HOUR_S + 1):
                looked[hour - first] = True
    return looked
