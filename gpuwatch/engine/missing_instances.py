"""Instances that the lists do not show: what the lists and the provider's answers prove about each.

Absence must be proven (`absence_proof`): what the listings show about each missing instance is counted here, in memory,
so that a restart starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from gpuwatch.domain.launches.absence_proof import (
    ABSENCE_WAIT_S,
    AbsenceEvidence,
    AbsenceVerdict,
    absence_verdict,
    count_failed_listing,
    count_missing,
    has_canary,
)
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.engine.instance_ender import InstanceEnder
from gpuwatch.engine.instance_listing import InstanceListing
from gpuwatch.engine.launch_clock import LaunchClock
from gpuwatch.ports import Instance, InstanceLookup, Launcher

log = logging.getLogger(__name__)

LISTED_WITHIN = timedelta(minutes=2)  # for this long after an order, lists and destroys may not know the instance


class AbsenceTracker:
    """What the listings so far show about missing instances.

    Args:
        monotonic: seconds; no change of the wall clock shortens the wait.
    """

    def __init__(self, monotonic: Callable[[], float], wait_s: float = ABSENCE_WAIT_S) -> None:
        self._monotonic = monotonic
        self._wait_s = wait_s
        self._evidence: dict[str, AbsenceEvidence] = {}
        self._foreign: set[str] = set()

    def listed_again(self, launch: Launch) -> None:
        """It is listed: the count starts again."""
        self._evidence.pop(launch.launch_id, None)

    def missing(self, launch: Launch, listing: InstanceListing, alive: Sequence[Launch]) -> AbsenceVerdict:
        """Count one more listing without it."""
        ours = {a.instance_id for a in alive if a.launch_id != launch.launch_id and a.state is LaunchState.RUNNING}
        canary = has_canary(listing.by_id, {i for i in ours if i is not None}, self._foreign)
        return self._note(launch, count_missing(self._evidence_of(launch), canary, self._monotonic(), self._wait_s))

    def missing_after_destroy(self, launch: Launch) -> AbsenceVerdict:
        """The same after the provider accepted our order to destroy it, which replaces canary and wait."""
        evidence = self._evidence_of(launch)
        return self._note(launch, AbsenceEvidence(evidence.since_s, evidence.missed + 1, evidence.without_canary))

    def no_listing(self, launches: Sequence[Launch]) -> dict[str, AbsenceVerdict]:
        """The provider gave no list: the row of agreeing listings starts again."""
        return {
            launch.launch_id: self._note(launch, count_failed_listing(self._evidence_of(launch))) for launch in launches
        }

    def listing_done(self, listing: InstanceListing) -> None:
        """A listing was processed; foreign instances in it are the canaries of the next."""
        self._foreign = listing.foreign()

    def _evidence_of(self, launch: Launch) -> AbsenceEvidence:
        return self._evidence.get(launch.launch_id, AbsenceEvidence(self._monotonic()))

    def _note(self, launch: Launch, evidence: AbsenceEvidence) -> AbsenceVerdict:
        self._evidence[launch.launch_id] = evidence
        return absence_verdict(evidence, self._monotonic(), self._wait_s)


class MissingInstances:
    """What is known about instances of one provider that no list shows.

    Args:
        clock: how old the launches are.
        ender: sends destroys again, to what is to end.
    """

    def __init__(self, launcher: Launcher, tracker: AbsenceTracker, clock: LaunchClock, ender: InstanceEnder) -> None:
        self._launcher = launcher
        self._tracker = tracker
        self._clock = clock
        self._ender = ender
        self._shown: set[str] = set()  # launches that a list has shown

    def looked_up(self, launch: Launch) -> Instance | None:
        """A list may omit what is alive: before a missing instance counts as missing, it is asked for by its id.

        Raises:
            ProviderError: nobody answers for it.
        """
        if launch.instance_id is None or not isinstance(self._launcher, InstanceLookup):
            return None
        found = self._launcher.get(launch.instance_id)
        if found is not None:
            log.warning("launch %s: instance %s is alive, the list omits it", launch.launch_id, launch.instance_id)
        return found

    def shown(self, launch: Launch) -> None:
        """A list shows it, or its id finds it."""
        self._shown.add(launch.launch_id)
        self._tracker.listed_again(launch)

    def verdict(
        self, launch: Launch, listing: InstanceListing, alive: Sequence[Launch], now: datetime
    ) -> AbsenceVerdict:
        """What is proven after one more listing without it."""
        if launch.state is LaunchState.HELD:
            return AbsenceVerdict.LOOKING
        if launch.state is LaunchState.STOPPING and self._is_destroyed(launch, now):
            too_new = self._is_too_new(launch, now)
            return AbsenceVerdict.LOOKING if too_new else self._tracker.missing_after_destroy(launch)
        return self._tracker.missing(launch, listing, alive)

    def no_listing(self, launches: Sequence[Launch]) -> dict[str, AbsenceVerdict]:
        """What is proven by launch id, although the provider gave no list."""
        return self._tracker.no_listing(launches)

    def listing_done(self, listing: InstanceListing) -> None:
        """Every launch was compared with this listing."""
        self._tracker.listing_done(listing)

    def forget(self, launch: Launch) -> None:
        """It is over."""
        self._tracker.listed_again(launch)
        self._shown.discard(launch.launch_id)

    def _is_too_new(self, launch: Launch, now: datetime) -> bool:
        """Whether a missing instance proves nothing yet: it was just ordered, and no list has shown it."""
        if launch.running_at is not None or launch.launch_id in self._shown:
            return False
        return self._clock.since_order(launch, now) < LISTED_WITHIN

    def _is_destroyed(self, launch: Launch, now: datetime) -> bool:
        """Acknowledged in this process; else sent once more: destroying what is gone is no error."""
        if not self._ender.is_acknowledged(launch) and launch.instance_id is not None:
            self._ender.destroy(launch, launch.instance_id, now)
        return self._ender.is_acknowledged(launch)
