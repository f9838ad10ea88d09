"""Labelled instances that belong to no active launch: reported daily, and they block renting.

Instances are ours if a launch of this database has them. Any other instance with gpuwatch's label (of another
installation, of launches after a restored backup, or a second one of a launch) may be the one that the next rent would
duplicate. The same is true of instances that only the keeper's file still has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta

import msgspec

from gpuwatch.domain.launches.instances.absence import AGREEING_NEEDED, QUICK_SPAN_S, has_canary
from gpuwatch.domain.launches.labels import label_ids, launch_id_in
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.life.reopening import WATCH_ENDED, may_reopen
from gpuwatch.domain.launches.life.unknown_instance import UnknownInstance, unknown_refusal
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.following.lost_launches import LostLaunches
from gpuwatch.engine.launches.following.provider_account import LaunchOwner
from gpuwatch.engine.launches.guarding.instance_listing import InstanceListing
from gpuwatch.engine.launches.guarding.instance_lookup import look_up
from gpuwatch.errors import ProviderError
from gpuwatch.ports import Instance, Launcher, LaunchRepository

log = logging.getLogger(__name__)

UNLISTED_S = 3600.0  # how long complete lists must omit an instance that cannot be looked up by id


class ReturnedInstance(msgspec.Struct, frozen=True):
    """An ended launch and its instance."""

    launch: Launch
    instance: Instance


class _Missing(msgspec.Struct):
    """Consecutive complete lists without an instance, each with the lookup result "gone" if lookups are supported."""

    since_s: float
    times: int = 0


class UnknownInstances:
    """Unknown instances that were listed at one provider with gpuwatch's label.

    Each is stored, and blocks renting until it is adopted, disowned, or proven gone: a list that omits it, a restart or
    another account's key proves nothing.

    Args:
        owner: the account of the lists.
        monotonic: seconds.
        lost: launches that the keeper's file names and the database lost.
        watch_ended: how long after its end a launch is reopened if its instance is listed.
    """

    def __init__(  # noqa: PLR0913, PLR0917 each is a separate port
        self,
        repository: LaunchRepository,
        launcher: Launcher,
        launch_alerts: LaunchAlerts,
        owner: LaunchOwner,
        monotonic: Callable[[], float],
        lost: LostLaunches,
        watch_ended: timedelta = WATCH_ENDED,
    ) -> None:
        self._lost = lost
        self._repository = repository
        self._launcher = launcher
        self._launch_alerts = launch_alerts
        self._owner = owner
        self._monotonic = monotonic
        self._provider = launcher.name
        self._watch_ended = watch_ended
        self._reported: set[tuple[str, date]] = set()
        self._missing: dict[str, _Missing] = {}
        self._listed_before: set[str] = set()
        self._ids: Sequence[str] = ()

    def reason(self) -> str | None:
        """Return why nothing can be rented at this provider, in one line, or None."""
        return unknown_refusal(self._provider, self._ids).text if self._ids else self._lost.reason()

    def listed(self, listing: InstanceListing, now: datetime) -> list[ReturnedInstance]:
        """Report unknown instances; return ended launches whose instances are listed.

        Raises:
            StoreError: storing or reporting failed; the next listing tries again.
        """
        unknown: list[tuple[Instance, str]] = []
        returned: list[ReturnedInstance] = []
        self._lost.recall(now)
        stored = self._repository.unknown_instances(self._provider)
        alive = self._repository.alive(self._provider)
        labelled = list(listing.labelled())
        self._lost.listed({launch_id_in(one.label) or "" for one in labelled})
        for instance in self._unsettled(labelled, alive):
            launch_id = launch_id_in(instance.label)
            launch = None if launch_id is None else self._repository.get(launch_id)
            if launch is not None and self._may_reopen(launch, instance, now):
                returned.append(ReturnedInstance(launch, instance))
            elif (why := _why_unknown(launch, instance, self._provider)) is not None:
                unknown.append((instance, why))
        returned += self._returned_by_id(listing, labelled, alive, now)
        # first, before anything that may fail: nothing is rented beside them
        self._ids = sorted({one.instance_id for one, _ in unknown} | {one.instance_id for one in stored})
        self._store([instance for instance, _ in unknown], stored, now)
        shown = {one.instance_id for one in labelled}
        left = [one for one in stored if one.instance_id not in shown]
        held = {one.instance_id for one in self._unproven(left, listing, alive)}
        settled = [one for one in stored if one.instance_id not in held | {each.instance_id for each, _ in unknown}]
        for one in settled:
            self._repository.remove_unknown_instance(one)
        self._ids = sorted({*self._ids} - {one.instance_id for one in settled})
        for instance, why in (*unknown, *self._lost.to_report(held)):
            self._report(instance, why, now)
        return returned

    def _returned_by_id(
        self, listing: InstanceListing, labelled: Sequence[Instance], alive: Sequence[Launch], now: datetime
    ) -> list[ReturnedInstance]:
        """Return ended launches by instance id: their owner may have edited the label."""
        known = {instance.instance_id for instance in labelled} | {launch.instance_id for launch in alive}
        others = set(listing.by_id) - known
        if not others:
            return []
        had = {
            instance.instance_id: instance for instance in self._repository.ended_with_instances(self._provider, others)
        }
        disowned = self._repository.known_foreign_instances(self._provider) if had else frozenset()
        found = [
            ReturnedInstance(launch, listing.by_id[i])
            for i, launch in had.items()
            if i is not None and i not in disowned
        ]
        return [one for one in found if self._may_reopen(one.launch, one.instance, now)]

    def _may_reopen(self, launch: Launch, instance: Instance, now: datetime) -> bool:
        is_here = launch.provider == self._provider  # a launch that continued elsewhere was refused here
        return is_here and bool(self._owner.own([launch])) and may_reopen(launch, instance, now, self._watch_ended)

    def _unsettled(self, labelled: Sequence[Instance], alive: Sequence[Launch]) -> list[Instance]:
        """Return labelled instances without an active launch that the owner has not disowned."""
        ours = {launch.instance_id for launch in alive}
        left = [instance for instance in labelled if instance.instance_id not in ours]
        if not left:
            return []
        disowned = self._repository.known_foreign_instances(self._provider)
        elsewhere = self._repository.foreign_installations()
        return [
            instance
            for instance in left
            if instance.instance_id not in disowned and _installation(instance.label) not in elsewhere
        ]

    def _store(self, unknown: Sequence[Instance], stored: Sequence[UnknownInstance], now: datetime) -> None:
        known = {one.instance_id for one in stored}
        for instance in unknown:
            self._missing.pop(instance.instance_id, None)
            if instance.instance_id not in known:
                self._repository.add_unknown_instance(
                    UnknownInstance(
                        provider=self._provider,
                        instance_id=instance.instance_id,
                        account_id=self._owner.account_id,
                        label=instance.label or "",
                        first_listed_at=now,
                    )
                )

    def _unproven(
        self, left: Sequence[UnknownInstance], listing: InstanceListing, alive: Sequence[Launch]
    ) -> list[UnknownInstance]:
        """Return stored instances, not listed with a label, that still block renting. Raises StoreError."""
        before, self._listed_before = self._listed_before, set(listing.by_id)
        if not left:
            return []
        ours = {launch.instance_id for launch in alive}
        disowned = self._repository.known_foreign_instances(self._provider)
        elsewhere = self._repository.foreign_installations()
        running = {one.instance_id for one in self._owner.own(alive) if one.state is LaunchState.RUNNING}
        is_trusted = has_canary(listing.by_id, {one for one in running if one is not None}, before)
        return [
            instance
            for instance in left
            if instance.instance_id not in ours
            and instance.instance_id not in disowned
            and _installation(instance.label) not in elsewhere
            and not self._is_gone(instance, listing, is_trusted)
        ]

    def _is_gone(self, unknown: UnknownInstance, listing: InstanceListing, is_trusted: bool) -> bool:
        """Whether its end is proven; an instance with a removed label still exists."""
        if self._lost.is_ended(unknown.instance_id):
            return True
        if unknown.instance_id in listing.by_id or not self._owner.is_same(unknown.account_id):
            self._missing.pop(unknown.instance_id, None)
            return False
        seen = self._missing.setdefault(unknown.instance_id, _Missing(self._monotonic()))
        lasting_s = UNLISTED_S
        try:
            answer = look_up(self._launcher, unknown.instance_id)
        except ProviderError as error:
            log.warning("instance %s: its id could not be checked: %s", unknown.instance_id, error)
            return False
        if answer.is_gone:
            is_trusted, lasting_s = True, QUICK_SPAN_S
        elif answer.is_known:
            self._missing.pop(unknown.instance_id)
            return False
        seen.times += is_trusted
        return seen.times >= AGREEING_NEEDED and self._monotonic() - seen.since_s >= lasting_s

    def _report(self, instance: Instance, why: str, now: datetime) -> None:
        today = (instance.instance_id, now.date())
        if today not in self._reported:
            self._repository.enqueue(self._launch_alerts.orphan(self._provider, instance, why, now))
            self._reported = {one for one in self._reported if one[1] == today[1]} | {today}


def _installation(label: str | None) -> str | None:
    ids = label_ids(label)
    return None if ids is None else ids.install_id


def _why_unknown(launch: Launch | None, instance: Instance, provider: str) -> str | None:
    if launch is None:
        return (
            "No launch in this database has that label: another gpuwatch created it, or the database was lost or "
            "replaced by an older copy."
        )
    if launch.provider != provider:
        return f"{provider} refused the order of launch {launch.launch_id}, which continued at {launch.provider}."
    if launch.is_over:
        return f"Launch {launch.launch_id} has ended: {launch.end_reason}."
    if launch.instance_id is not None and launch.instance_id != instance.instance_id:
        return f"Launch {launch.launch_id} already has instance {launch.instance_id}; this is a second one."
    return None
