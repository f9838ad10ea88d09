"""Instances that the lists do not show: what the lists and other answers of the provider prove about each.

Absence must be proven (`absence_proof`). The evidence is counted in memory, so a restart begins again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.launches.instances.absence import (
    ABSENCE_WAIT_S,
    AGREEING_NEEDED,
    QUICK_SPAN_S,
    AbsenceEvidence,
    AbsenceVerdict,
    EvidenceKind,
    MissedListing,
    has_canary,
    omits_live_instances,
)
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.engine.launches.following.independent_evidence import IndependentEvidence, IndependentFindings
from gpuwatch.engine.launches.following.launch_clock import LaunchClock
from gpuwatch.engine.launches.following.unaccounted_instances import UnaccountedInstances
from gpuwatch.engine.launches.guarding.instance_ender import InstanceEnder
from gpuwatch.engine.launches.guarding.instance_listing import InstanceListing
from gpuwatch.engine.launches.guarding.instance_lookup import look_up
from gpuwatch.engine.market.contradictions import Contradictions
from gpuwatch.ports import Instance, Launcher

log = logging.getLogger(__name__)

LISTED_WITHIN = timedelta(minutes=2)  # after an order: until then, lists and destroys may not know the instance


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
        self._evidence: dict[str, AbsenceEvidence] = {}
        self._after_destroy: dict[str, int] = {}  # consecutive listings without it, after its destroy
        self._found: set[str] = set()  # launches that a list or a lookup has shown
        self._not_found: set[str] = set()  # launches whose id the provider last reported as gone
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
        self._not_found.discard(launch.launch_id)
        answer = look_up(self._launcher, launch.instance_id)
        found = answer.instance
        if answer.is_gone:
            self._not_found.add(launch.launch_id)
            return answer.ended if launch.running_at is None and launch.state is not LaunchState.STOPPING else None
        if found is not None and not self._is_too_new(launch, now):
            log.warning("launch %s: instance %s exists, but the list omits it", launch.launch_id, launch.instance_id)
            self._contradictions.note(launch, "The list omits it, but a lookup by id finds it.", QUICK_SPAN_S, now)
        return found

    def listed(self, launch: Launch) -> None:
        """Note that the list shows it."""
        self._contradictions.clear(launch)
        self.found(launch)

    def found(self, launch: Launch) -> None:
        """Note that a list or a lookup shows it."""
        self._found.add(launch.launch_id)
        self._start_again(launch)

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
        self._after_destroy.pop(launch.launch_id, None)
        return self._noted(launch, self._evidence_of(launch).without_listing(self._monotonic())).verdict

    def listing_done(self, listing: InstanceListing, now: datetime) -> None:
        """Finish a listing; its foreign instances become the canaries of the next one."""
        self._foreign = listing.foreign()
        self._unaccounted.listing_done(listing, now)

    def forget(self, launch: Launch) -> None:
        """Forget a launch that is over."""
        self._start_again(launch)
        self._contradictions.clear(launch)
        self._found.discard(launch.launch_id)

    # --- evidence -----------------------------------------------------------------------------------------------------

    def _believed_alive(self, launch: Launch, alive: Sequence[Launch]) -> set[str]:
        """Return the ids of other instances that should be running, except those that a lookup reported as gone."""
        others = [one for one in alive if one.launch_id != launch.launch_id and one.state is LaunchState.RUNNING]
        return {one.instance_id for one in others if one.instance_id and one.launch_id not in self._not_found}

    def _observation(self, launch: Launch, listing: InstanceListing, canary: bool, now: datetime) -> MissedListing:
        kinds = {EvidenceKind.LISTS} if canary else set()
        if launch.launch_id in self._not_found:
            kinds.add(EvidenceKind.LOOKUP)
        else:
            self._independent.begin(launch, listing)
        is_due = self._is_time(launch) and self._independent.is_due(launch)
        found = self._independent.collect(launch, listing) if is_due else IndependentFindings()
        is_lost = launch.instance_id is None
        return MissedListing(
            tick_s=self._monotonic(),
            kinds=frozenset(kinds | found.kinds),
            seen_before=not is_lost and (launch.running_at is not None or launch.launch_id in self._found),
            queried_all=is_due,
            possible_kinds=len(kinds | self._independent.possible(launch)),
            doubts=found.doubts,
            candidates=self._unaccounted.candidates(launch, listing, now) if is_lost else (),
        )

    def _is_time(self, launch: Launch) -> bool:
        return self._monotonic() - self._evidence_of(launch).since_s >= self._wait_s

    def _noted(self, launch: Launch, evidence: AbsenceEvidence, seen: MissedListing | None = None) -> MissingFindings:
        self._evidence[launch.launch_id] = evidence
        verdict = evidence.verdict(self._monotonic(), launch.instance_id is not None, self._wait_s)
        if seen is None:
            return MissingFindings(verdict)
        grounds = seen.doubts if seen.is_doubtful else tuple(sorted(kind.value for kind in seen.kinds))
        return MissingFindings(verdict, "; ".join(grounds), seen.candidates[0] if seen.candidates else None)

    def _evidence_of(self, launch: Launch) -> AbsenceEvidence:
        return self._evidence.get(launch.launch_id) or AbsenceEvidence(since_s=self._monotonic())

    def _start_again(self, launch: Launch) -> None:
        self._evidence.pop(launch.launch_id, None)
        self._after_destroy.pop(launch.launch_id, None)
        self._independent.forget(launch)
        self._not_found.discard(launch.launch_id)

    # --- instances that are to end ------------------------------------------------------------------------------------

    def _after_its_destroy(self, launch: Launch) -> MissingFindings:
        """Return the findings after an accepted destroy, which replaces canary and wait."""
        times = self._after_destroy[launch.launch_id] = self._after_destroy.get(launch.launch_id, 0) + 1
        return MissingFindings(AbsenceVerdict.ABSENT if times >= AGREEING_NEEDED else AbsenceVerdict.UNPROVEN)

    def _is_too_new(self, launch: Launch, now: datetime) -> bool:
        """Whether its absence proves nothing yet: it was just ordered, and no list has shown it."""
        if launch.running_at is not None or launch.launch_id in self._found:
            return False
        return self._clock.since_order(launch, now) < LISTED_WITHIN

    def _is_destroyed(self, launch: Launch, now: datetime) -> bool:
        """Whether a destroy was accepted in this process; if none was, send one: repeating it does no harm."""
        if not self._ender.is_acknowledged(launch) and launch.instance_id is not None:
            self._ender.destroy(launch, launch.instance_id, now)
        return self._ender.is_acknowledged(launch)
