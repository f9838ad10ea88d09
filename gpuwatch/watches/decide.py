"""Does a watch fire? One look at one watch: a pure function of what is seen, what was told, and the time."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from gpuwatch.market.offer import Offer
from gpuwatch.market.pricing import Price


class Reason(StrEnum):
    """Why a decision is what it is; the alert, the log and `--explain` all show it."""

    FIRST_MATCH = "first_match"
    CHEAPER = "cheaper"
    REPEAT_DUE = "repeat_due"
    NOTHING_NEW = "nothing_new"
    HOLDING = "holding"
    OUTSIDE_WINDOW = "outside_window"
    NO_OFFER = "no_offer"
    NO_DATA = "no_data"


FIRES = frozenset({Reason.FIRST_MATCH, Reason.CHEAPER, Reason.REPEAT_DUE})
TRUE_NOW = FIRES | {Reason.NOTHING_NEW}  # an offer is at or under the threshold, held long enough, inside a window


class Match(msgspec.Struct, frozen=True, gc=False):
    """An offer that a watch accepts, with what it costs this watch."""

    offer: Offer
    price: Price

    @property
    def price_microusd_gpu_hour(self) -> float:
        """For comparing offers of different sizes; money itself stays whole."""
        return self.price.price_microusd_hour / self.offer.gpu_count


class WatchMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a watch remembers between looks; kept in the store."""

    fired_at: datetime | None = None  # the newest telling; None: armed
    fired_microusd_gpu_hour: float | None = None  # the price that was told then
    under_since: datetime | None = None  # an offer is under the threshold without a break since then
    misses: int = 0  # complete looks in a row without an offer under threshold × rearm


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one watch."""

    watch: str
    reason: Reason
    decided_at: datetime
    matches: tuple[Match, ...] = ()  # cheapest GPU price first
    memory: WatchMemory = WatchMemory()

    @property
    def fires(self) -> bool:
        """Is there something to tell?"""
        return self.reason in FIRES

    @property
    def true_now(self) -> bool:
        """May a launch be made on it?"""
        return self.reason in TRUE_NOW

    @property
    def best(self) -> Match | None:
        """The cheapest match."""
        return self.matches[0] if self.matches else None
