"""The market over time as it was seen: what was on offer at which price, from when to when, and when anybody looked.

A tape is what the questions about the past are asked of, wherever it comes from: the store (`storage.tapes`) or a file
of price rows (`price_rows`). Times are whole seconds since 1970 (UTC), money whole micro-dollars.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpuwatch.domain.market.offer import Identity, OfferKind, Verification
from gpuwatch.domain.market.pricing import HOURS_A_MONTH, MICRO


class ListedOffer(msgspec.Struct, frozen=True, kw_only=True):
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


class OfferInterval(NamedTuple):
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


class MarketPoll(NamedTuple):
    """Somebody asked."""

    at_s: int
    provider: str
    gpu: str  # "": all
    spot: bool
    answered: bool  # False: no answer, or one that shows only a part: that proves no absence
    lane: str = "sweep"  # "hunt": the daemon asked for what is cheap, and decided on it; only a sweep proves absence
    failed: bool = False  # no answer at all

    @property
    def proves_absence(self) -> bool:
        """Does it prove absence? A hunt asks for what is cheap, and what it does not show may be there."""
        return self.answered and self.lane == "sweep"


class MarketHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the market."""

    listings: tuple[ListedOffer, ...]
    intervals: Sequence[OfferInterval]  # by `from_s`
    polls: Sequence[MarketPoll]  # by `at_s`
    source: str  # for a person: "the store", a file's name

    @property
    def starts_s(self) -> int | None:
        """The first look; None: nobody looked."""
        return self.polls[0].at_s if self.polls else None

    @property
    def ends_s(self) -> int | None:
        """The last look."""
        return self.polls[-1].at_s if self.polls else None

    def before(self, at_s: int) -> MarketHistory:
        """What was known before a moment: later looks did not happen yet."""
        intervals = [_cut(interval, at_s) for interval in self.intervals if interval.from_s < at_s]
        return msgspec.structs.replace(self, intervals=intervals, polls=_until(self.polls, at_s))


def _cut(interval: OfferInterval, at_s: int) -> OfferInterval:
    if interval.gone_s is not None and interval.gone_s < at_s:
        return interval
    return interval._replace(seen_s=min(interval.seen_s, at_s - 1), gone_s=None)


def _until(polls: Sequence[MarketPoll], at_s: int) -> Sequence[MarketPoll]:
    return polls[: bisect_left(polls, at_s, key=lambda poll: poll.at_s)]


def usd_gpu_hour(microusd_hour: float, gpu_count: int) -> float:
    """Dollars per GPU-hour, for showing."""
    return microusd_hour / gpu_count / MICRO
