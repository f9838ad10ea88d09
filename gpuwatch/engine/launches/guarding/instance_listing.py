"""One complete listing of a provider's instances, by id and by label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuwatch.domain.launches.labels import LABEL_PREFIX, launch_id_in
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.ports import Instance, InstanceState


class InstanceListing:
    """One complete listing, by id and by label."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        instances = [instance for instance in instances if instance.state is not InstanceState.ENDED]
        self.by_id = {instance.instance_id: instance for instance in instances}
        self._by_label: dict[str, Instance] = {}
        for instance in sorted(instances, key=lambda instance: instance.instance_id):
            launch_id = launch_id_in(instance.label)
            if launch_id is not None:
                self._by_label.setdefault(launch_id, instance)

    def of(self, launch: Launch) -> Instance | None:
        """Return its instance: by id, which an owner cannot edit; by label only if the id is unknown."""
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
