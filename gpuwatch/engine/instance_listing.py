"""One complete listing of a provider's instances, compared with the stored launches.

Every labelled instance that belongs to no launch is reported; `missing_instances` judges those that are not listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from gpuwatch.domain.launches.labels import LABEL_PREFIX, launch_id_in
from gpuwatch.domain.launches.launch import Launch
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
