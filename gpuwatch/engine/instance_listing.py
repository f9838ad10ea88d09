"""One complete listing of a provider's instances, compared with the stored launches.

Absence must be proven (`absence_proof`): what the listings show about each missing instance is counted here, in memory,
so that a restart starts again. And every labelled instance that belongs to no launch is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import msgspec

from gpuwatch.domain.launches.absence_proof import (
    ABSENCE_WAIT_S,
    AbsenceEvidence,
    AbsenceVerdict,
    absence_verdict,
    count_failed_listing,
    count_missing,
    has_canary,
)
from gpuwatch.domain.launches.launch import LABEL_PREFIX, Launch, LaunchState, launch_id_in
from gpuwatch.engine.launch_alerts import LaunchAlerts
from gpuwatch.engine.returned_instances import was_ended
from gpuwatch.ports import Instance, LaunchRepository


class InstanceListing:
    """One complete listing, by id and by label."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self.by_id = {instance.instance_id: instance for instance in instances}
        self._by_label: dict[str, Instance] = {}
        for instance in sorted(instances, key=lambda instance: instance.instance_id):
            launch_id = launch_id_in(instance.label)
            if launch_id is not None:
                self._by_label.setdefault(launch_id, instance)

    def of(self, launch: Launch) -> Instance | None:
        """Return its instance: by id, which an owner cannot edit; by label only while the id is unknown."""
        if launch.instance_id is not None:
            return self.by_id.get(launch.instance_id)
        return self._by_label.get(launch.launch_id)

    def labelled(self) -> Iterator[Instance]:
        """Yield every instance whose label claims that gpuwatch created it, rightly or not."""
        return (instance for instance in self.by_id.values() if (instance.label or "").startswith(LABEL_PREFIX))

    def foreign(self) -> set[str]:
        """Return the ids of instances that gpuwatch did not create."""
        ours = {instance.instance_id for instance in self.labelled()}
        return set(self.by_id) - ours


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


class Unaccounted(msgspec.Struct, frozen=True):
    """Labelled instances that belong to no living launch.

    Attributes:
        foreign_ids: of those with a well-formed label that no launch of this database ever had: it may be a new one.
        returned: launches whose instances gpuwatch ended, and that are listed again.
    """

    foreign_ids: Sequence[str] = ()
    returned: Sequence[Launch] = ()


def report_orphans(
    repository: LaunchRepository, launch_alerts: LaunchAlerts, provider: str, listing: InstanceListing, now: datetime
) -> Unaccounted:
    """Report every labelled instance that belongs to no living launch to the owner, once.

    Raises:
        StoreError: it could not be reported; the next listing tries again.
    """
    foreign: list[str] = []
    returned: list[Launch] = []
    settled = repository.known_foreign_instances(provider) | {
        launch.instance_id for launch in repository.alive(provider)
    }
    for instance in listing.labelled():
        launch_id = launch_id_in(instance.label)
        launch = None if launch_id is None else repository.get(launch_id)
        why = _why_orphan(launch, instance)
        if why is None or instance.instance_id in settled:
            continue
        if launch is not None and was_ended(launch, instance.instance_id):
            returned.append(launch)
            continue
        repository.enqueue(launch_alerts.orphan(provider, instance, why, now))
        if launch is None and launch_id is not None:
            foreign.append(instance.instance_id)
    return Unaccounted(foreign, returned)


def _why_orphan(launch: Launch | None, instance: Instance) -> str | None:
    if launch is None:
        return "No launch in this database has that label: another gpuwatch created it, or the database was lost."
    if launch.is_over:
        return f"Launch {launch.launch_id} is over: {launch.end_reason}."
    if launch.instance_id is not None and launch.instance_id != instance.instance_id:
        return f"Launch {launch.launch_id} has another instance, {launch.instance_id}: this one is a second."
    return None
