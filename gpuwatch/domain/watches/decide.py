"""Does a watch fire? One look at one watch: a pure function of what is seen, what was told, and the time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

import msgspec

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.pricing import OfferPrice
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.domain.watches.windows import is_open


class DecisionReason(StrEnum):
    """Why a decision is what it is; the alert, the log and `--explain` all show it."""

    FIRST_MATCH = "first_match"
    CHEAPER = "cheaper"
    REPEAT_DUE = "repeat_due"
    NOTHING_NEW = "nothing_new"
    HOLDING = "holding"
    OUTSIDE_WINDOW = "outside_window"
    NO_OFFER = "no_offer"
    NO_DATA = "no_data"


FIRING_REASONS = frozenset({DecisionReason.FIRST_MATCH, DecisionReason.CHEAPER, DecisionReason.REPEAT_DUE})
TRUE_NOW = FIRING_REASONS | {
    DecisionReason.NOTHING_NEW
}  # an offer is at or under the threshold, held long enough, inside a window


class Match(msgspec.Struct, frozen=True, gc=False):
    """An offer that a watch accepts, with what it costs this watch."""

    offer: Offer
    price: OfferPrice
    job_microusd: int | None = None  # what the watch's whole job costs there at worst, if it goes by that

    @property
    def price_microusd_gpu_hour(self) -> float:
        """For comparing offers of different sizes; money itself stays whole."""
        return self.price.price_microusd_hour / self.offer.gpu_count

    @property
    def figure(self) -> float:
        """What the matches of one watch are compared by: the job's cost, or the GPU price."""
        return self.price_microusd_gpu_hour if self.job_microusd is None else float(self.job_microusd)


class WatchMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a watch remembers between looks; kept in the store."""

    fired_at: datetime | None = None  # the newest telling; None: armed
    fired_microusd_gpu_hour: float | None = None  # the price that was told then, or what its job cost (Match.figure)
    under_since: datetime | None = None  # an offer is under the threshold without a break since then
    misses: int = 0  # complete looks in a row without an offer under threshold × rearm


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one watch."""

    watch: str
    reason: DecisionReason
    decided_at: datetime
    matches: tuple[Match, ...] = ()  # cheapest GPU price first
    memory: WatchMemory = WatchMemory()

    @property
    def fires(self) -> bool:
        """Is there something to tell?"""
        return self.reason in FIRING_REASONS

    @property
    def true_now(self) -> bool:
        """May a launch be made on it?"""
        return self.reason in TRUE_NOW

    @property
    def best(self) -> Match | None:
        """The cheapest match."""
        return self.matches[0] if self.matches else None


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the market showed a watch."""

    matches: tuple[Match, ...]  # cheapest GPU price first
    known: bool  # False: failed, stale or incomplete, so that "no match" proves nothing
    near: bool  # an otherwise fitting offer is at or under threshold × rearm
    observed_at: datetime
    completes_cycle: bool = True  # False: only a part of what is asked for the watch was looked at anew; no miss yet


REARM_POLLS = 2  # complete looks in a row without an offer, before a watch that fired is armed again


def decide(
    watch: Watch,
    observation: Observation,
    memory: WatchMemory,
    now: datetime,
    zone: tzinfo | str = UTC,
    max_age_s: float | None = None,
) -> Decision:
    """Does the watch fire? The decision carries the memory to keep, whatever the reason.

    Args:
        zone: of the wall clock that `active` windows are read from.
        max_age_s: a look older than this is no data; None: any age will do.
    """
    if _is_stale(observation, now, max_age_s) or not (observation.matches or observation.known):
        return Decision(watch=watch.name, reason=DecisionReason.NO_DATA, decided_at=now, memory=memory)
    memory = _not_from_the_future(memory, now)
    if not observation.matches:
        missed = _missed(memory, observation) if observation.completes_cycle else memory
        return Decision(watch=watch.name, reason=DecisionReason.NO_OFFER, decided_at=now, memory=missed)
    memory = msgspec.structs.replace(memory, under_since=memory.under_since or now, misses=0)
    reason = _reason(watch, observation.matches[0], memory, now, zone)
    if reason in FIRING_REASONS:
        memory = msgspec.structs.replace(memory, fired_at=now, fired_microusd_gpu_hour=observation.matches[0].figure)
    return Decision(watch=watch.name, reason=reason, decided_at=now, matches=observation.matches, memory=memory)


def _reason(watch: Watch, best: Match, memory: WatchMemory, now: datetime, zone: tzinfo | str) -> DecisionReason:
    """Why a watch with a match fires or stays quiet: the first that holds."""
    if not is_open(watch.active, now, zone):
        return DecisionReason.OUTSIDE_WINDOW
    if memory.under_since is not None and now - memory.under_since < timedelta(seconds=watch.hold_for_s):
        return DecisionReason.HOLDING
    if memory.fired_at is None:
        return DecisionReason.FIRST_MATCH
    if _is_cheaper(best.figure, memory.fired_microusd_gpu_hour, watch.improve_by):
        return DecisionReason.CHEAPER
    if watch.repeat_every_s is not None and now - memory.fired_at >= timedelta(seconds=watch.repeat_every_s):
        return DecisionReason.REPEAT_DUE
    return DecisionReason.NOTHING_NEW


def _missed(memory: WatchMemory, observation: Observation) -> WatchMemory:
    """Nothing under the threshold. After two looks without even a near offer, the watch is armed again."""
    misses = 0 if observation.near else min(memory.misses + 1, REARM_POLLS)
    if misses >= REARM_POLLS:
        return WatchMemory(misses=misses)
    return msgspec.structs.replace(memory, under_since=None, misses=misses)


def _is_cheaper(price: float, fired_at_figure: float | None, improve_by: float) -> bool:
    if fired_at_figure is None:
        return False
    drop = fired_at_figure - price
    return (
        drop > 0 and drop >= fired_at_figure * improve_by - 1e-3
    )  # a thousandth of a micro-dollar: what floats may lose


def _is_stale(observation: Observation, now: datetime, max_age_s: float | None) -> bool:
    """Too old; a look from the future says that the clock was put back, and is no better."""
    return max_age_s is not None and abs((now - observation.observed_at).total_seconds()) > max_age_s


def _not_from_the_future(memory: WatchMemory, now: datetime) -> WatchMemory:
    """A clock that was put back must neither silence a watch for years nor let it fire at once."""
    fired_at = min(memory.fired_at, now) if memory.fired_at else None
    under_since = min(memory.under_since, now) if memory.under_since else None
    if fired_at == memory.fired_at and under_since == memory.under_since:
        return memory
    return msgspec.structs.replace(memory, fired_at=fired_at, under_since=under_since)
