"""Labelled instances that belong to no living launch: reported daily, and nothing is rented beside them.

Ours is what a launch of this database names. Anything else with gpuwatch's label (another installation, launches after
the backup that was restored, a second instance of one launch) may be what the next rent would double.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta

import msgspec

from gpuwatch.domain.launches.labels import label_ids, launch_id_in
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.reopening import WATCH_ENDED, may_reopen
from gpuwatch.engine.instance_listing import InstanceListing
from gpuwatch.engine.launch_alerts import LaunchAlerts
from gpuwatch.ports import Instance, LaunchRepository


class Returned(msgspec.Struct, frozen=True):
    """A launch that is over, and its instance."""

    launch: Launch
    instance: Instance


class UnknownInstances:
    """What is listed at one provider with gpuwatch's label, and not known.

    Args:
        watch_ended: for so long after its end a launch is reopened when its instance is listed.
    """

    def __init__(
        self,
        repository: LaunchRepository,
        launch_alerts: LaunchAlerts,
        provider: str,
        watch_ended: timedelta = WATCH_ENDED,
    ) -> None:
        self._repository = repository
        self._launch_alerts = launch_alerts
        self._provider = provider
        self._watch_ended = watch_ended
        self._reported: set[tuple[str, date]] = set()
        self._ids: Sequence[str] = ()

    def reason(self) -> str | None:
        """Why nothing may be rented at this provider, in one line; None: nothing is in the way."""
        if not self._ids:
            return None
        known = ", ".join(self._ids[:3])
        return (
            f"{self._provider} lists instances with a gpuwatch label that this database does not know ({known}); "
            "gpuwatch adopt INSTANCE, or gpuwatch adopt INSTANCE --not-mine"
        )

    def listed(self, listing: InstanceListing, may_judge: Callable[[Launch], bool], now: datetime) -> list[Returned]:
        """Report what is unknown; return the launches that are over, and whose instances are listed.

        Args:
            may_judge: whether this list is of the launch's account.

        Raises:
            StoreError: something could not be reported; the next listing tries again.
        """
        unknown: list[tuple[Instance, str]] = []
        returned: list[Returned] = []
        for instance in self._unsettled(listing):
            launch_id = launch_id_in(instance.label)
            launch = None if launch_id is None else self._repository.get(launch_id)
            if launch is not None and may_judge(launch) and may_reopen(launch, instance, now, self._watch_ended):
                returned.append(Returned(launch, instance))
            elif (why := _why_unknown(launch, instance)) is not None:
                unknown.append((instance, why))
        self._ids = [instance.instance_id for instance, _ in unknown]
        for instance, why in unknown:
            self._report(instance, why, now)
        return returned

    def _unsettled(self, listing: InstanceListing) -> list[Instance]:
        """Those of no living launch, and that the owner did not disown, alone or with their installation."""
        labelled = list(listing.labelled())
        if not labelled:
            return []
        ours = {launch.instance_id for launch in self._repository.alive(self._provider)}
        left = [one for one in labelled if one.instance_id not in ours]
        if not left:
            return []
        disowned = self._repository.known_foreign_instances(self._provider)
        elsewhere = self._repository.foreign_installations()
        return [one for one in left if one.instance_id not in disowned and _installation(one) not in elsewhere]

    def _report(self, instance: Instance, why: str, now: datetime) -> None:
        today = (instance.instance_id, now.date())
        if today not in self._reported:
            self._repository.enqueue(self._launch_alerts.orphan(self._provider, instance, why, now))
            self._reported.add(today)


def _installation(instance: Instance) -> str | None:
    ids = label_ids(instance.label)
    return None if ids is None else ids.install_id


def _why_unknown(launch: Launch | None, instance: Instance) -> str | None:
    if launch is None:
        return "No launch in this database has that label: another gpuwatch created it, or the database was lost."
    if launch.is_over:
        return f"Launch {launch.launch_id} is over: {launch.end_reason}."
    if launch.instance_id is not None and launch.instance_id != instance.instance_id:
        return f"Launch {launch.launch_id} has another instance, {launch.instance_id}: this one is a second."
    return None
