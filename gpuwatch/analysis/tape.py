"""The market over time as it was seen: what was on offer at which price, from when to when, and when anybody looked.

A tape is what the questions about the past are asked of, wherever it comes from: the store (`storage.tapes`) or a file
of price rows (`price_rows`). Times are whole seconds since 1970 (UTC), money whole micro-dollars.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpuwatch.market.offer import Identity, OfferKind, Verification
from gpuwatch.market.pricing import HOURS_A_MONTH, MICRO


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """One identity, with the newest facts that are known of it. None: nobody says."""

    identity: Identity
    gpu_family: str
    offer_id: str
    gpu_memory_gib: float | None = None  # of one GPU
    kind: OfferKind = OfferKind.LIVE  # what its price was when it was seen
    region: str | None = None
    country: str | None = None
    reliability: float | None = None  # 0 to 1
    verification: Verification | None = None


class Spell(NamedTuple):
    """One price of one listing."""

    listing: int  # its number in `Tape.listings`
    from_s: int  # the look that saw it first at this price
    seen_s: int  # the last look that is known to have seen it so
    gone_s: int | None  # the first look that did not; None: nobody has looked since, or it still was at the end
    machine_microusd_hour: int  # listed, whole offer, without the part that is priced as disk
    disk_microusd_gb_month: int | None

    def listed_microusd_hour(self, disk_gb: float) -> int:
        """The listed price of the whole offer with a disk of this size."""
        return self.machine_microusd_hour + round((self.disk_microusd_gb_month or 0) * disk_gb / HOURS_A_MONTH)


class Poll(NamedTuple):
    """Somebody asked."""

    at_s: int
    provider: str
    gpu: str  # "": all
    spot: bool
    answered: bool  # False: no answer, or one that shows only a part: that proves no absence
    lane: str = "sweep"  # "hunt": the daemon asked for what is cheap, and decided on it; only a sweep proves absence
    failed: bool = False  # no answer at all

    @property
    def is_whole(self) -> bool:
        """Does it prove absence? A hunt asks for what is cheap, and what it does not show may be there."""
        return self.answered and self.lane == "sweep"


class Tape(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the market."""

    listings: tuple[Listing, ...]
    spells: Sequence[Spell]  # by `from_s`
    polls: Sequence[Poll]  # by `at_s`
    source: str  # for a person: "the store", a file's name

    @property
    def starts_s(self) -> int | None:
        """The first look; None: nobody looked."""
        return self.polls[0].at_s if self.polls else None

    @property
    def ends_s(self) -> int | None:
        """The last look."""
        return self.polls[-1].at_s if self.polls else None

    def before(self, at_s: int) -> Tape:
        """What was known before a moment: later looks did not happen yet."""
        spells = [_cut(spell, at_s) for spell in self.spells if spell.from_s < at_s]
        return msgspec.structs.replace(self, spells=spells, polls=_until(self.polls, at_s))


def _cut(spell: Spell, at_s: int) -> Spell:
    if spell.gone_s is not None and spell.gone_s < at_s:
        return spell
    return spell._replace(seen_s=min(spell.seen_s, at_s - 1), gone_s=None)


def _until(polls: Sequence[Poll], at_s: int) -> Sequence[Poll]:
    return polls[: bisect_left(polls, at_s, key=lambda poll: poll.at_s)]


def usd_gpu_hour(microusd_hour: float, gpu_count: int) -> float:
    """Dollars per GPU-hour, for showing."""
    return microusd_hour / gpu_count / MICRO
