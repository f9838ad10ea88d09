"""Is it gone? What proves that an instance which the lists do not show no longer exists. Absence must be proven.

- `MissingInstances` follows each launch whose instance is not listed, from one listing to the next, and gives a verdict
  (rules: `domain/launches/instances/absence`). The evidence is counted in memory, so a restart begins again.
- `IndependentEvidence`: besides lists and lookups, whether its offer is for rent again, and whether the balance falls
  as if it was paid for.
- `ReopenedLaunches`: launches that have ended and whose instances are listed again; they are ended again, or followed
  again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.domain.alerts.launch_texts import LISTED_ALONE, OMITTED_BY_LIST
from gpuwatch.domain.launches.instances.absence import (
    ABSENCE_WAIT_S,
    AGREEING_NEEDED,
    QUICK_SPAN_S,
    REPORT_AFTER_S,
    AbsenceEvidence,
    AbsenceVerdict,
    BalanceReading,
    EvidenceKind,
    MissedListing,
    has_canary,
    is_unpaid,
    omits_live_instances,
    read_balance,
)
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.life.launch_events import ClockReading, Effect, InstanceReturned
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.market.offer import Offer
from gpuwatch.engine.launches.followed_launch import FollowedLaunches
from gpuwatch.engine.launches.following.strays import UnaccountedInstances
from gpuwatch.engine.launches.following.transition_executor import LaunchClock, TransitionExecutor
from gpuwatch.engine.launches.guarding.instance_ender import InstanceEnder
from gpuwatch.engine.launches.guarding.instance_lists import Contradictions, InstanceListing, look_up
from gpuwatch.engine.market.watch_search import PAGE_ROWS, search_complete
from gpuwatch.errors import ProviderError
from gpuwatch.ports import Answer, Instance, Launcher, Market, Query

if TYPE_CHECKING:
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

log = logging.getLogger(__name__)

LISTED_WITHIN = timedelta(minutes=2)  # after an order: until then, lists and destroys may not know the instance
EVIDENCE_EVERY_S = 60.0
_PAID_FOR = "the balance falls as if the instance was paid for"
_CEILING = 1.1  # × the listed price: a renewed offer is expected at or under this


class MissingFindings(msgspec.Struct, frozen=True):
    """The verdict, its grounds, and an instance that may be the missing one."""

    verdict: AbsenceVerdict
    words: str = ""
    candidate: str | None = None


UNPROVEN = MissingFindings(AbsenceVerdict.UNPROVEN)


class MissingInstances:
    """Tracks instances of one provider that no list shows.

    Args:
        clock: computes the age of launches.
        ender: repeats destroys of instances that are to end.
        monotonic: seconds; no change of the wall clock shortens a wait.
    """

    def __init__(  # noqa: PLR0913 each is a source of its own
        self,
        launcher: Launcher,
        *,
        clock: LaunchClock,
        ender: InstanceEnder,
        followed: FollowedLaunches,
        independent: IndependentEvidence,
        unaccounted: UnaccountedInstances,
        contradictions: Contradictions,
        monotonic: Callable[[], float],
        wait_s: float = ABSENCE_WAIT_S,
    ) -> None:
        self._launcher = launcher
        self._clock = clock
        self._ender = ender
        self._independent = independent
        self._unaccounted = unaccounted
        self._contradictions = contradictions
        self._monotonic = monotonic
        self._wait_s = wait_s
        self._followed = followed
        self._foreign: set[str] = set()

    def look_up_unlisted(self, launch: Launch, now: datetime) -> Instance | None:
        """Look up an unlisted instance by its id, because a list may omit an active instance.

        Returns:
            The instance; one that has ended only if the launch waits for its start: it never comes.

        Raises:
            ProviderError: the provider did not answer.
        """
        if launch.instance_id is None:
            return None
        self._followed.of(launch).is_lookup_gone = False
        answer = look_up(self._launcher, launch.instance_id)
        found = answer.instance
        if answer.is_gone:
            self._followed.of(launch).is_lookup_gone = True
            return answer.ended if launch.running_at is None and launch.state is not LaunchState.STOPPING else None
        if found is not None and not self._is_too_new(launch, now):
            log.warning("launch %s: instance %s exists, but the list omits it", launch.launch_id, launch.instance_id)
            self._contradictions.note(launch, OMITTED_BY_LIST, QUICK_SPAN_S, now)
        return found

    def listed(self, launch: Launch) -> None:
        """Note that the list shows it."""
        self._contradictions.clear(launch)
        self.found(launch)

    def found(self, launch: Launch) -> None:
        """Note that a list or a lookup shows it."""
        one = self._followed.of(launch)
        one.is_found = True
        one.restart_absence()

    def findings(
        self, launch: Launch, listing: InstanceListing, alive: Sequence[Launch], now: datetime
    ) -> MissingFindings:
        """Return what is proven after one more listing without it. Raises StoreError."""
        if launch.state is LaunchState.HELD:
            return UNPROVEN
        if launch.state is LaunchState.STOPPING and self._is_destroyed(launch, now):
            return UNPROVEN if self._is_too_new(launch, now) else self._after_its_destroy(launch)
        believed = self._believed_alive(launch, alive)
        evidence = self._evidence_of(launch)
        if omits_live_instances(listing.by_id, believed):
            return self._noted(launch, evidence.without_listing(self._monotonic()))
        seen = self._observation(launch, listing, has_canary(listing.by_id, believed, self._foreign), now)
        return self._noted(launch, evidence.with_listing(seen, self._wait_s), seen)

    def no_listing(self, launch: Launch) -> AbsenceVerdict:
        """Return what is proven although the provider gave no list."""
        self._followed.of(launch).lists_after_destroy = 0
        return self._noted(launch, self._evidence_of(launch).without_listing(self._monotonic())).verdict

    def listing_done(self, listing: InstanceListing, now: datetime) -> None:
        """Finish a listing; its foreign instances become the canaries of the next one."""
        self._foreign = listing.foreign()
        self._unaccounted.listing_done(listing, now)

    # --- evidence -----------------------------------------------------------------------------------------------------

    def _believed_alive(self, launch: Launch, alive: Sequence[Launch]) -> set[str]:
        """Return the ids of other instances that should be running, except those that a lookup reported as gone."""
        others = [one for one in alive if one.launch_id != launch.launch_id and one.state is LaunchState.RUNNING]
        return {one.instance_id for one in others if one.instance_id and not self._followed.of(one).is_lookup_gone}

    def _observation(self, launch: Launch, listing: InstanceListing, canary: bool, now: datetime) -> MissedListing:
        kinds = {EvidenceKind.LISTS} if canary else set()
        if self._followed.of(launch).is_lookup_gone:
            kinds.add(EvidenceKind.LOOKUP)
        else:
            self._independent.begin(launch, listing)
        is_due = self._is_time(launch) and self._independent.is_due(launch)
        found = self._independent.collect(launch, listing) if is_due else IndependentFindings()
        is_lost = launch.instance_id is None
        return MissedListing(
            tick_s=self._monotonic(),
            kinds=frozenset(kinds | found.kinds),
            seen_before=not is_lost and (launch.running_at is not None or self._followed.of(launch).is_found),
            queried_all=is_due,
            possible_kinds=len(kinds | self._independent.possible(launch)),
            doubts=found.doubts,
            candidates=self._unaccounted.candidates(launch, listing, now) if is_lost else (),
        )

    def _is_time(self, launch: Launch) -> bool:
        return self._monotonic() - self._evidence_of(launch).since_s >= self._wait_s

    def _noted(self, launch: Launch, evidence: AbsenceEvidence, seen: MissedListing | None = None) -> MissingFindings:
        self._followed.of(launch).evidence = evidence
        verdict = evidence.verdict(self._monotonic(), launch.instance_id is not None, self._wait_s)
        if seen is None:
            return MissingFindings(verdict)
        grounds = seen.doubts if seen.is_doubtful else tuple(sorted(kind.value for kind in seen.kinds))
        return MissingFindings(verdict, "; ".join(grounds), seen.candidates[0] if seen.candidates else None)

    def _evidence_of(self, launch: Launch) -> AbsenceEvidence:
        return self._followed.of(launch).evidence or AbsenceEvidence(since_s=self._monotonic())

    # --- instances that are to end ------------------------------------------------------------------------------------

    def _after_its_destroy(self, launch: Launch) -> MissingFindings:
        """Return the findings after an accepted destroy, which replaces canary and wait."""
        one = self._followed.of(launch)
        one.lists_after_destroy += 1
        is_gone = one.lists_after_destroy >= AGREEING_NEEDED
        return MissingFindings(AbsenceVerdict.ABSENT if is_gone else AbsenceVerdict.UNPROVEN)

    def _is_too_new(self, launch: Launch, now: datetime) -> bool:
        """Whether its absence proves nothing yet: it was just ordered, and no list has shown it."""
        if launch.running_at is not None or self._followed.of(launch).is_found:
            return False
        return self._clock.since_order(launch, now) < LISTED_WITHIN

    def _is_destroyed(self, launch: Launch, now: datetime) -> bool:
        """Whether a destroy was accepted in this process; if none was, send one: repeating it does no harm."""
        if not self._ender.is_acknowledged(launch) and launch.instance_id is not None:
            self._ender.destroy(launch, launch.instance_id, now)
        return self._ender.is_acknowledged(launch)


class IndependentFindings(msgspec.Struct, frozen=True):
    """Findings: kinds of evidence for an absence, and doubts about it."""

    kinds: frozenset[EvidenceKind] = frozenset()
    doubts: tuple[str, ...] = ()


class IndependentEvidence:
    """Collects evidence at most once a minute for each launch; call `begin` first, to compare balances.

    Args:
        market: None: no market to search (a command beside a daemon).
        monotonic: seconds.
    """

    def __init__(
        self,
        launcher: Launcher,
        market: Market | None,
        followed: FollowedLaunches,
        monotonic: Callable[[], float],
    ) -> None:
        self._launcher = launcher
        self._market = market
        self._monotonic = monotonic
        self._followed = followed

    def is_due(self, launch: Launch) -> bool:
        """Whether evidence about this launch may be collected again."""
        return self._is_due(self._followed.of(launch).collected_s)

    def begin(self, launch: Launch, listing: InstanceListing) -> None:
        """Read the balance as a baseline, unless there is one."""
        one = self._followed.of(launch)
        if one.first_balance is None and self._is_due(one.balance_read_s):
            one.balance_read_s = self._monotonic()
            one.first_balance = self._balance(listing)

    def possible(self, launch: Launch) -> set[EvidenceKind]:
        """Return the kinds of evidence that are available at all."""
        kinds = {EvidenceKind.OFFER} if self._market is not None and not launch.spot else set()
        return kinds | (set() if self._followed.of(launch).first_balance is None else {EvidenceKind.BALANCE})

    def collect(self, launch: Launch, listing: InstanceListing) -> IndependentFindings:
        """Collect all evidence. A query that fails is no evidence."""
        self._followed.of(launch).collected_s = self._monotonic()
        kinds, doubts = set(), []
        with suppress(ProviderError):
            if self._is_for_rent(launch):
                kinds.add(EvidenceKind.OFFER)
        unpaid = self._is_unpaid(launch, listing)
        if unpaid:
            kinds.add(EvidenceKind.BALANCE)
        elif unpaid is not None:
            doubts.append(_PAID_FOR)
        return IndependentFindings(frozenset(kinds), tuple(doubts))

    def _is_due(self, last_s: float | None) -> bool:
        return last_s is None or self._monotonic() - last_s >= EVIDENCE_EVERY_S

    def _is_for_rent(self, launch: Launch) -> bool:
        """Whether exactly this offer is for rent: other GPUs of that machine prove nothing.

        Fungible stock is always for rent, and an interruptible offer is, too, while somebody else has it.
        """
        if self._market is None or launch.spot:
            return False
        query = Query(
            gpus=(launch.gpu,),
            count_min=launch.gpu_count,
            count_max=launch.gpu_count,
            disk_gb=launch.promised.disk_gb,
            max_listed_usd_hour=launch.listed_microusd_hour * _CEILING / MICRO,
            limit=PAGE_ROWS,
        )
        _, offer = search_complete(self._market.search, query, lambda answer: _offer_of(launch, answer))
        return offer is not None and offer.rentable and not offer.terms.fungible

    def _is_unpaid(self, launch: Launch, listing: InstanceListing) -> bool | None:
        first = self._followed.of(launch).first_balance
        last = None if first is None else self._balance(listing)
        if first is None or last is None:
            return None
        if first.listed != last.listed or last.balance_microusd > first.balance_microusd:
            # instances changed or credit was added: compare from here on
            self._followed.of(launch).first_balance = last
            return None
        return is_unpaid(first, last, launch.listed_microusd_hour)

    def _balance(self, listing: InstanceListing) -> BalanceReading | None:
        try:
            balance_usd = self._launcher.credit_usd()
        except ProviderError as error:
            log.info("the balance is unknown: %s", error, extra={"provider": self._launcher.name})
            return None
        if balance_usd is None:
            return None
        return read_balance(self._monotonic(), balance_usd, listing.by_id.values())


def _offer_of(launch: Launch, answer: Answer) -> Offer | None:
    return next(
        (offer for offer in answer.offers if (offer.offer_id, offer.spot) == (launch.offer_id, launch.spot)),
        None,
    )


class ReopenedLaunches:
    """Reopens launches at one provider.

    Args:
        carry_out: carries out the effects of a transition.
    """

    def __init__(
        self,
        repository: SqlLaunchRepository,
        launcher: Launcher,
        executor: TransitionExecutor,
        contradictions: Contradictions,
        carry_out: Callable[[Launch, Effect, datetime], None],
    ) -> None:
        self._repository = repository
        self._launcher = launcher
        self._executor = executor
        self._contradictions = contradictions
        self._carry_out = carry_out

    def reopen(self, launch: Launch, instance: Instance, now: datetime) -> None:
        """Reopen a launch whose instance is listed, unless a lookup by id reports the instance as gone.

        Raises:
            LaunchConflict: another process changed the launch.
            ProviderError: the lookup failed.
            StoreError: storing failed, and nothing was done.
        """
        if not self._is_alive(instance.instance_id):
            self._contradictions.note(launch, LISTED_ALONE, REPORT_AFTER_S, now)
            return
        self._contradictions.clear(launch)
        log.error("launch %s: it has ended, but instance %s is listed", launch.launch_id, instance.instance_id)
        event = InstanceReturned(instance.instance_id, self._end_was_wanted(launch))
        launch, effects = self._executor.apply(launch, event, ClockReading(now, now))
        for effect in effects:
            self._carry_out(launch, effect, now)

    def _is_alive(self, instance_id: str) -> bool:
        """Whether a lookup confirms the list, if the provider supports one: lists lag."""
        try:
            return not look_up(self._launcher, instance_id).is_gone
        except ProviderError as error:
            log.warning("instance %s: listed again, and its id could not be checked: %s", instance_id, error)
            raise

    def _end_was_wanted(self, launch: Launch) -> bool:
        events = self._repository.events(launch.launch_id)
        return bool(events) and events[-1].from_state is LaunchState.STOPPING
