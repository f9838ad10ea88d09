"""Listed instances that belong to no launch, active or ended: one of them may stem from a lost order."""

from __future__ import annotations

from datetime import datetime

from gpuwatch.domain.launches.labels import launch_id_in
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.life.order_candidates import may_be_its_instance
from gpuwatch.engine.launches.guarding.instance_listing import InstanceListing
from gpuwatch.ports import Instance, InstanceRecords


class UnaccountedInstances:
    """The instances of one provider that belong to no launch, and when a list first showed each."""

    def __init__(self, repository: InstanceRecords, provider: str) -> None:
        self._repository = repository
        self._provider = provider
        self._first_listed: dict[str, datetime] = {}

    def listing_done(self, listing: InstanceListing, now: datetime) -> None:
        """Store when each instance was first listed."""
        self._first_listed = {one: self._first_listed.get(one, now) for one in listing.by_id}

    def candidates(self, launch: Launch, listing: InstanceListing, now: datetime) -> tuple[str, ...]:
        """Return the ids of instances that this launch's order may have created. Raises StoreError."""
        alike = [one.instance_id for one in listing.by_id.values() if self._may_be(launch, one, now)]
        if not alike:
            return ()
        known = self._repository.accounted_instances(self._provider, alike)
        return tuple(one for one in sorted(alike) if one not in known)

    def _may_be(self, launch: Launch, instance: Instance, now: datetime) -> bool:
        """Whether the launch's order may have created it; another launch's label rules that out."""
        if launch_id_in(instance.label) not in {None, launch.launch_id}:
            return False
        return may_be_its_instance(launch, instance, self._first_listed.get(instance.instance_id, now))
