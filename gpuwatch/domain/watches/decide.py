"""Decides whether a watch fires: from one observation, the earlier reports, and the time. Pure.

- `decide`: the decision, with its reason and the memory to keep;
- `spot_until`, `after_refusal`, `after_renting`: the wait of `spot = "first"`;
- `same_until`: how long the same observation leads to the same decision;
- `PollCycle`: the polling cycles of a watch: every provider and rental type once. A miss is one whole cycle without a
  match;
- `StockProofs`: when complete polls last showed no fitting offer, so that the next one is a restock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from gpuwatch.domain.market.money import OfferPrice
from gpuwatch.domain.market.offer import Offer, priced_units
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from gpuwatch.domain.watches.windows import is_open

QUOTE_MAX_AGE = timedelta(minutes=10)  # of every quote that decides about money without being requested again (assumed)
REARM_POLLS = 2  # complete polls in a row without an offer before a fired watch is re-armed
PollQuery = tuple[Any, ...]  # the provider, and anything else that identifies a query
Q = TypeVar("Q", bound=PollQuery)
_SLOW = 10  # times the fastest provider's interval: slower providers do not delay the cycle
PROOF_LASTS = timedelta(hours=1)  # assumed: after a longer gap in polling, the time of the return is unknown


class DecisionReason(StrEnum):
    """The reason of a decision. The alert, the log and `--explain` show the same, by `REASON_TEXTS` (`offer_texts`)."""

    FIRST_MATCH = "first_match"
    RESTOCKED = "restocked"
    CHEAPER = "cheaper"
    REPEAT_DUE = "repeat_due"
    NOTHING_NEW = "nothing_new"
    IN_STOCK = "in_stock"
    HOLDING = "holding"
    WAITS_FOR_SPOT = "waits_for_spot"
    OUTSIDE_WINDOW = "outside_window"
    NO_OFFER = "no_offer"
    NO_DATA = "no_data"


FIRING_REASONS = frozenset(
    {DecisionReason.FIRST_MATCH, DecisionReason.RESTOCKED, DecisionReason.CHEAPER, DecisionReason.REPEAT_DUE}
)
# an offer is at or under the threshold, for long enough, inside a window
TRUE_NOW = FIRING_REASONS | {DecisionReason.NOTHING_NEW}


class Match(msgspec.Struct, frozen=True, gc=False):
    """An offer that a watch accepts, with its price for this watch."""

    offer: Offer
    price: OfferPrice
    job_microusd: int | None = None  # the highest cost of the watch's whole job there, if the watch compares it

    @property
    def price_microusd_gpu_hour(self) -> float:
        """The price for comparing offers of different sizes; money itself stays whole."""
        return self.price.price_microusd_hour / priced_units(self.offer.gpu_count)

    @property
    def figure(self) -> float:
        """The figure by which the matches of one watch are compared: the job's cost, or the GPU price."""
        return self.price_microusd_gpu_hour if self.job_microusd is None else float(self.job_microusd)


class WatchMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a watch between polls, kept in the store."""

    fired_at: datetime | None = None  # when it last fired; None: armed
    fired_microusd_gpu_hour: float | None = None  # the price reported then, or the job's cost (Match.figure)
    under_since: datetime | None = None  # an offer has been under the threshold continuously since then
    misses: int = 0  # complete polls in a row without an offer under threshold × rearm
    spot_wait_since: datetime | None = None  # an offer on demand could make it fire; it waits for a spot offer instead
    spot_idle_since: datetime | None = None  # during that wait, no offer on demand could; None: one can now


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one observation of one watch."""

    watch: str
    reason: DecisionReason
    decided_at: datetime
    matches: tuple[Match, ...] = ()  # cheapest GPU price first
    memory: WatchMemory = WatchMemory()

    @property
    def fires(self) -> bool:
        """Return whether there is something to report."""
        return self.reason in FIRING_REASONS

    @property
    def true_now(self) -> bool:
        """Return whether the decision allows a launch."""
        return self.reason in TRUE_NOW

    @property
    def best(self) -> Match | None:
        """The cheapest match."""
        return self.matches[0] if self.matches else None


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one poll of the market for a watch."""

    matches: tuple[Match, ...]  # cheapest GPU price first
    known: bool  # False: failed, stale or incomplete, so "no match" is not proven
    near: bool  # an otherwise matching offer is at or under threshold × rearm
    observed_at: datetime
    answered_at: datetime | None = None  # when its answer arrived; None: at the time of observation
    older: tuple[Match, ...] = ()  # from the previous answer, if this one covered only a part of them
    was_empty: bool = False  # complete polls showed nothing shortly before; only for watches with `restock`
    completes_cycle: bool = True  # False: only part of the watch's queries were answered again, so it is not a miss yet


def current_quotes(matches: Iterable[Match], now: datetime) -> list[Match]:
    """The matches whose quotes are recent; after a step of the clock, none from the future either."""
    return [match for match in matches if abs(now - match.offer.observed_at) <= QUOTE_MAX_AGE]


def decide(
    watch: Watch,
    observation: Observation,
    memory: WatchMemory,
    now: datetime,
    zone: tzinfo | str = UTC,
    max_age_s: float | None = None,
) -> Decision:
    """Return whether the watch fires. The decision always contains the memory to keep.

    Args:
        zone: time zone of the `active` windows.
        max_age_s: older observations count as no data; None: any age is accepted.
    """
    if _is_stale(observation, now, max_age_s) or not (observation.matches or observation.known):
        return Decision(watch=watch.name, reason=DecisionReason.NO_DATA, decided_at=now, memory=memory)
    before, memory = memory, _not_from_the_future(memory, now)
    if not observation.matches:
        is_miss = observation.completes_cycle and not _precedes(observation, before, now)
        missed = _missed(memory, observation, now) if is_miss else memory
        return Decision(watch=watch.name, reason=DecisionReason.NO_OFFER, decided_at=now, memory=missed)
    memory = msgspec.structs.replace(memory, under_since=memory.under_since or now, misses=0)
    if spot_until(watch, memory, now) is not None:
        spots = tuple([match for match in observation.matches if match.offer.spot])
        shown = msgspec.structs.replace(observation, matches=spots or observation.matches)
    else:
        spots = (shown := observation).matches
    reason = _reason(watch, shown, memory, now, zone)
    acts = reason in (TRUE_NOW if watch.rents_alone else FIRING_REASONS)  # one that rents goes on after it has fired
    if watch.spot is SpotPolicy.FIRST and watch.spot_until is None:
        memory = _timed(watch, observation, memory, now, acts=acts)
    if acts and not spots:
        reason = DecisionReason.WAITS_FOR_SPOT
    if reason in FIRING_REASONS:
        memory = msgspec.structs.replace(memory, fired_at=now, fired_microusd_gpu_hour=shown.matches[0].figure)
        if not watch.rents_alone:
            memory = _not_waiting(memory)
    return Decision(watch=watch.name, reason=reason, decided_at=now, matches=shown.matches, memory=memory)


def spot_until(watch: Watch, memory: WatchMemory, now: datetime) -> datetime | None:
    """Return until when the watch takes spot offers only; None: it takes what its `spot` accepts.

    The wait begins when an offer on demand could first make it fire. It begins anew after the watch has fired, or has
    rented, and when for as long as `spot_for` no offer on demand could.
    """
    if watch.spot is not SpotPolicy.FIRST:
        return None
    until = watch.spot_until
    if until is None:
        until = (_wait_since(watch, memory, now) or now) + timedelta(seconds=watch.spot_for_s)
    return until if now < until else None


def waits_until(watch: Watch, decision: Decision) -> datetime | None:
    """Return until when a decision waits for a spot offer; None: it does not."""
    waits = decision.reason is DecisionReason.WAITS_FOR_SPOT
    return spot_until(watch, decision.memory, decision.decided_at) if waits else None


def after_renting(decision: Decision) -> Decision:
    """Return the decision of a watch with `spot = "first"` that has just rented: its next wait begins anew."""
    return msgspec.structs.replace(decision, memory=_not_waiting(decision.memory))


def after_refusal(decision: Decision, before: WatchMemory) -> Decision:
    """Return the decision of such a watch that may not rent now, whatever is on offer: its wait does not begin.

    `before`: its memory before this decision.
    """
    since = before.spot_wait_since
    idle = None if since is None else before.spot_idle_since or decision.decided_at
    memory = msgspec.structs.replace(decision.memory, spot_wait_since=since, spot_idle_since=idle)
    return msgspec.structs.replace(decision, memory=memory)


def _wait_since(watch: Watch, memory: WatchMemory, now: datetime) -> datetime | None:
    idle = memory.spot_idle_since
    is_over = idle is not None and now - idle >= timedelta(seconds=watch.spot_for_s)
    return None if is_over else memory.spot_wait_since


def _timed(watch: Watch, observation: Observation, memory: WatchMemory, now: datetime, *, acts: bool) -> WatchMemory:
    """Let the wait run, from now or from before, while an offer on demand could make the watch fire."""
    if acts and not all(match.offer.spot for match in observation.matches):
        since = _wait_since(watch, memory, now) or now
        return msgspec.structs.replace(memory, spot_wait_since=since, spot_idle_since=None)
    return _idle(memory, now)


def _idle(memory: WatchMemory, now: datetime) -> WatchMemory:
    if memory.spot_wait_since is None or memory.spot_idle_since is not None:
        return memory
    return msgspec.structs.replace(memory, spot_idle_since=now)


def _not_waiting(memory: WatchMemory) -> WatchMemory:
    return msgspec.structs.replace(memory, spot_wait_since=None, spot_idle_since=None)


def same_until(watch: Watch, observation: Observation, decision: Decision) -> datetime | None:
    """Return the time before which a repeated observation leads to the same decision, with the same memory.

    None: maybe not even the next one does.
    """
    memory, reason = decision.memory, decision.reason
    if reason is DecisionReason.NO_DATA or (
        reason is DecisionReason.NO_OFFER and memory == _missed(memory, observation, decision.decided_at)
    ):
        return datetime.max.replace(tzinfo=UTC)
    if watch.active:
        return None
    if reason is DecisionReason.WAITS_FOR_SPOT:
        return waits_until(watch, decision)
    if watch.spot is SpotPolicy.FIRST:  # what it takes changes with the time alone
        return None
    if reason is DecisionReason.HOLDING and memory.under_since is not None:
        return memory.under_since + timedelta(seconds=watch.hold_for_s)
    if reason is DecisionReason.NOTHING_NEW and memory.fired_at is not None and not watch.restock:
        if watch.repeat_every_s is None:
            return datetime.max.replace(tzinfo=UTC)
        return memory.fired_at + timedelta(seconds=watch.repeat_every_s)
    return None


def _reason(
    watch: Watch, observation: Observation, memory: WatchMemory, now: datetime, zone: tzinfo | str
) -> DecisionReason:
    """Return why a watch with a match fires or not: the first reason that applies."""
    if not is_open(watch.active, now, zone):
        return DecisionReason.OUTSIDE_WINDOW
    if watch.restock:
        return _stock_reason(memory, was_empty=observation.was_empty)
    if memory.under_since is not None and now - memory.under_since < timedelta(seconds=watch.hold_for_s):
        return DecisionReason.HOLDING
    if memory.fired_at is None:
        return DecisionReason.FIRST_MATCH
    if _is_cheaper(observation.matches[0].figure, memory.fired_microusd_gpu_hour, watch.improve_by):
        return DecisionReason.CHEAPER
    if watch.repeat_every_s is not None and now - memory.fired_at >= timedelta(seconds=watch.repeat_every_s):
        return DecisionReason.REPEAT_DUE
    return DecisionReason.NOTHING_NEW


def _stock_reason(memory: WatchMemory, *, was_empty: bool) -> DecisionReason:
    """Report once per return to stock; a watch that rents may keep trying while it lasts."""
    if memory.fired_at is not None:
        return DecisionReason.NOTHING_NEW
    return DecisionReason.RESTOCKED if was_empty else DecisionReason.IN_STOCK


def _missed(memory: WatchMemory, observation: Observation, now: datetime) -> WatchMemory:
    """Record that nothing is under the threshold. After two polls without even a near offer, the watch is re-armed."""
    misses = 0 if observation.near else min(memory.misses + 1, REARM_POLLS)
    memory = _idle(memory, now)
    if misses >= REARM_POLLS:
        memory = msgspec.structs.replace(memory, fired_at=None, fired_microusd_gpu_hour=None)
    return msgspec.structs.replace(memory, under_since=None, misses=misses)


def _precedes(observation: Observation, memory: WatchMemory, now: datetime) -> bool:
    """Whether it is older than the report of another process, whose offer it could not show. Not if a clock jumped."""
    return memory.fired_at is not None and observation.observed_at < memory.fired_at <= now


def _is_cheaper(price: float, fired_at_figure: float | None, improve_by: float) -> bool:
    if fired_at_figure is None:
        return False
    drop = fired_at_figure - price
    return drop > 0 and drop >= fired_at_figure * improve_by - 1e-3  # floating-point error, in micro-dollars


def _is_stale(observation: Observation, now: datetime, max_age_s: float | None) -> bool:
    """Whether it is too old. If the clock was set back, an observation from the future is equally unusable."""
    return max_age_s is not None and abs((now - observation.observed_at).total_seconds()) > max_age_s


def _not_from_the_future(memory: WatchMemory, now: datetime) -> WatchMemory:
    """Limit times to now: a clock that was set back must neither silence a watch for years nor make it fire at once."""
    times = (memory.fired_at, memory.under_since, memory.spot_wait_since, memory.spot_idle_since)
    if all(at is None or at <= now for at in times):
        return memory
    fired_at, under_since, wait_since, idle_since = (at and min(at, now) for at in times)
    return msgspec.structs.replace(
        memory, fired_at=fired_at, under_since=under_since, spot_wait_since=wait_since, spot_idle_since=idle_since
    )


class PollCycle:
    """The queries of one watch that were answered since its last whole cycle. Not thread-safe."""

    def __init__(self) -> None:
        self._answered: set[PollQuery] = set()

    def observe(  # noqa: PLR0913 - everything known at this moment
        self,
        just_polled: Collection[PollQuery],
        found: tuple[Match, ...],
        *,
        near: bool,
        known: Set[PollQuery],
        expected: Set[PollQuery],
        paces: Set[PollQuery],
        observed_at: datetime,
    ) -> Observation:
        """Return all fresh results of a watch as one observation, after some queries were answered.

        Args:
            just_polled: the queries that were just answered.
            found: the matches in the fresh results of all providers, cheapest first.
            near: whether any of them contains an otherwise matching offer at or under threshold × rearm.
            known: queries whose latest answer is fresh and complete.
            expected: all queries of the watch.
            paces: those queries that make up its cycle.
        """
        all_known = expected <= known
        return Observation(
            matches=found,
            known=bool(found) or all_known,
            completes_cycle=self.note(just_polled, paces, has_match=bool(found), all_known=all_known),
            near=near,
            observed_at=observed_at,
        )

    def note(
        self, just_polled: Collection[PollQuery], paces: Set[PollQuery], *, has_match: bool, all_known: bool
    ) -> bool:
        """Note answered queries; return whether they complete a cycle. A match begins a new one, too."""
        self._answered.update(just_polled)
        whole_round = all_known and paces <= self._answered
        if has_match or whole_round:
            self._answered.clear()
        return whole_round


def cycle_members(expected: Set[Q], age_of: Callable[[str], timedelta]) -> frozenset[Q]:
    """Return the queries that make up a watch's cycle: fast providers do not wait for those polled hourly.

    Args:
        age_of: the maximum age of a provider's results.
    """
    if not expected:
        return frozenset()
    slowest = _SLOW * min(age_of(question[0]) for question in expected)
    return frozenset(question for question in expected if age_of(question[0]) <= slowest)


class StockProofs:
    """The proofs of this process: observations from before a restart prove nothing, because polling was interrupted."""

    def __init__(self) -> None:
        self._empty_at: dict[str, datetime] = {}  # watch → time of the last proof

    def added_to(self, observation: Observation, watch: Watch, now: datetime) -> Observation:
        """Add to the observation whether nothing was on offer shortly before."""
        if not watch.restock:
            return observation
        empty_at = self._empty_at.get(watch.name)
        was_empty = empty_at is not None and timedelta(0) <= now - empty_at <= PROOF_LASTS
        return msgspec.structs.replace(observation, was_empty=was_empty)

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget all other watches."""
        self._empty_at = {name: at for name, at in self._empty_at.items() if name in watches}

    def note_all(self, decided: Iterable[tuple[Watch, Decision]]) -> None:
        """Record what these decisions prove, once their consequences are stored."""
        for watch, decision in decided:
            if watch.restock and decision.matches:
                self._empty_at.pop(watch.name, None)
            elif watch.restock and decision.reason is DecisionReason.NO_OFFER and decision.memory.misses >= REARM_POLLS:
                self._empty_at[watch.name] = decision.decided_at
