"""Whose is an instance that no active launch has? What may be ours blocks renting until that is settled.

- `LostLaunches`: launches that the keeper's file names and the database lost: it was restored from a backup, or a
  standby was promoted that lacked the last commits. The file names the instance and its account.
- `UnaccountedInstances`: listed instances that belong to no launch, active or ended; a lost order may have made one.
- `UnknownInstances`: listed instances with gpuwatch's label (of another installation, of launches after a restored
  backup, or a second one of a launch): the next rent might duplicate one. Reported daily.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.domain.launches.instance import Instance, InstanceState, label_ids, launch_id_in
from gpuwatch.domain.launches.instances.absence import ABSENCE_WAIT_S, AGREEING_NEEDED, QUICK_SPAN_S, has_canary
from gpuwatch.domain.launches.instances.obligation import Obligation
from gpuwatch.domain.launches.launch import WATCH_ENDED, Launch, LaunchState
from gpuwatch.domain.launches.life.strays import (
    UnknownInstance,
    may_be_its_instance,
    may_reopen,
    unknown_refusal,
    why_unknown,
)
from gpuwatch.domain.market.money import price_text, usd
from gpuwatch.engine.alerts.alert_reporter import AlertReporter
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.following.provider_account import ProviderAccount
from gpuwatch.engine.launches.guarding.instance_lists import InstanceListing, look_up
from gpuwatch.errors import ProviderError, StoreError
from gpuwatch.ports import Launcher

if TYPE_CHECKING:
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

log = logging.getLogger(__name__)

UNLISTED_S = 3600.0  # how long complete lists must omit an instance that cannot be looked up by id


class LostOrder(msgspec.Struct):
    """An order without a known instance id. Its label finds the instance, but a list may show that late."""

    obligation: Obligation
    since_s: float
    lists: int = 0  # complete ones without its label


class LostLaunches:
    """The lost launches that a process finds at its start, and whenever the database goes back to an older state.

    Args:
        obligations: returns this installation's open obligations at this provider. Raises StoreError.
        close: closes an obligation, because its order created nothing. Raises StoreError.
        generation: grows when the database went back.
        monotonic: seconds.
    """

    def __init__(
        self,
        repository: SqlLaunchRepository,
        provider: str,
        obligations: Callable[[], Sequence[Obligation]],
        *,
        close: Callable[[Obligation], None] = lambda obligation: None,
        generation: Callable[[], int] = lambda: 0,
        monotonic: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._repository = repository
        self._provider = provider
        self._obligations = obligations
        self._close = close
        self._generation = generation
        self._monotonic = monotonic
        self._recalled: int | None = None  # the generation whose rows were compared with the file
        self._lost: dict[str, Obligation] = {}  # by instance id
        self._orders: dict[str, LostOrder] = {}  # by launch id
        self._ended: set[str] = set()

    def recall(self, now: datetime) -> None:
        """Store them as unknown instances, once for each generation of the database. Raises StoreError."""
        generation = self._generation()
        if self._recalled == generation and not self._lost and not self._orders:
            return
        try:
            open_now = self._obligations()
        except StoreError as error:
            log.warning("cannot determine which launches the database lost: %s", error)
            return
        by_id = {one.instance_id: one for one in open_now if one.instance_id is not None}
        self._ended |= self._lost.keys() - by_id.keys()
        if self._recalled != generation:
            missing = [one for one in open_now if self._repository.get(one.launch_id) is None]
            self._lost = self._unsettled({one.instance_id: one for one in missing if one.instance_id is not None})
            self._orders = {
                one.launch_id: LostOrder(one, self._monotonic()) for one in missing if one.instance_id is None
            }
            self._store(now)
            self._recalled = generation
        else:
            self._lost = {one: lost for one, lost in self._lost.items() if one in by_id}
            ids = {one.launch_id for one in open_now}
            self._orders = {one: order for one, order in self._orders.items() if one in ids}

    def listed(self, labelled: Collection[str]) -> None:
        """Note a complete list with the labels of these launches: an order that it shows is an unknown instance.

        Raises StoreError.
        """
        for launch_id, order in list(self._orders.items()):
            if launch_id in labelled:
                del self._orders[launch_id]
                continue
            order.lists += 1
            if order.lists >= AGREEING_NEEDED and self._monotonic() - order.since_s >= ABSENCE_WAIT_S:
                log.warning("launch %s, which the database lost: no instance has its label", launch_id)
                self._close(order.obligation)
                del self._orders[launch_id]

    def reason(self) -> str | None:
        """Return why nothing can be rented because of lost launches without a known instance, or None."""
        if self._generation() and self._recalled != self._generation():
            return "the database went back to an older state, and the keeper's file could not be read since"
        for launch_id, order in self._orders.items():
            watch = order.obligation.watch
            return (
                f"launch {launch_id} of {watch!r} was ordered, but the database lost it; gpuwatch looks for its label"
            )
        return None

    def is_ended(self, instance_id: str) -> bool:
        """Whether the keeper, with a key of the instance's account, found that it is gone."""
        return instance_id in self._ended

    def to_report(self, held: Set[str]) -> Iterator[tuple[Instance, str]]:
        """Yield those that still block renting, with the reason."""
        for instance_id, lost in self._lost.items():
            if instance_id in held:
                instance = Instance(
                    instance_id=instance_id,
                    label=lost.label,
                    state=InstanceState.UNKNOWN,
                    status="not listed",
                    gpu=lost.gpu,
                    gpu_count=lost.gpu_count,
                )
                yield (
                    instance,
                    f"The keeper's file names launch {lost.launch_id} of {lost.watch!r}, rented for "
                    f"${price_text(usd(lost.price_microusd_hour))} per hour, but this database lacks it: "
                    "an older database was restored, or a standby without the last commits was promoted.",
                )

    def _unsettled(self, lost: dict[str, Obligation]) -> dict[str, Obligation]:
        if not lost:
            return {}
        settled = set(self._repository.known_foreign_instances(self._provider))
        settled |= {one.instance_id for one in self._repository.alive(self._provider) if one.instance_id is not None}
        return {i: one for i, one in lost.items() if i not in settled}

    def _store(self, now: datetime) -> None:
        stored = (
            {instance.instance_id for instance in self._repository.unknown_instances(self._provider)}
            if self._lost
            else ()
        )
        for instance_id, lost in self._lost.items():
            if instance_id not in stored:
                self._repository.add_unknown_instance(
                    UnknownInstance(
                        provider=self._provider,
                        instance_id=instance_id,
                        account_id=lost.account,
                        label=lost.label,
                        first_listed_at=now,
                    )
                )


class UnaccountedInstances:
    """The instances of one provider that belong to no launch, and when a list first showed each."""

    def __init__(self, repository: SqlLaunchRepository, provider: str) -> None:
        self._repository = repository
        self._provider = provider
        self._first_listed: dict[str, datetime] = {}

    def listing_done(self, listing: InstanceListing, now: datetime) -> None:
        """Store when each instance was first listed."""
        self._first_listed = {one: self._first_listed.get(one, now) for one in listing.by_id}

    def candidates(self, launch: Launch, listing: InstanceListing, now: datetime) -> tuple[str, ...]:
        """Return the ids of instances that this launch's order may have created: none with another launch's label."""
        maybe = {key: one for key, one in listing.by_id.items() if launch_id_in(one.label) in {None, launch.launch_id}}
        alike = [
            key for key, one in maybe.items() if may_be_its_instance(launch, one, self._first_listed.get(key, now))
        ]
        if not alike:
            return ()
        known = self._repository.accounted_instances(self._provider, alike)
        return tuple(one for one in sorted(alike) if one not in known)


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
        repository: SqlLaunchRepository,
        launcher: Launcher,
        reporter: AlertReporter,
        launch_alerts: LaunchAlerts,
        owner: ProviderAccount,
        monotonic: Callable[[], float],
        lost: LostLaunches,
        watch_ended: timedelta = WATCH_ENDED,
    ) -> None:
        self._lost = lost
        self._repository = repository
        self._launcher = launcher
        self._reporter = reporter
        self._launch_alerts = launch_alerts
        self._owner = owner
        self._monotonic = monotonic
        self._provider = launcher.name
        self._watch_ended = watch_ended
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
            elif (why := why_unknown(launch, instance, self._provider)) is not None:
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
            self._reporter.report(self._launch_alerts.orphan(self._provider, instance, why, now))
        return returned

    def _returned_by_id(
        self, listing: InstanceListing, labelled: Sequence[Instance], alive: Sequence[Launch], now: datetime
    ) -> list[ReturnedInstance]:
        """Return ended launches by instance id: their owner may have edited the label."""
        known = {instance.instance_id for instance in labelled} | {launch.instance_id for launch in alive}
        others = set(listing.by_id) - known
        if not others:
            return []
        ended = self._repository.ended_with_instances(self._provider, others)
        had = {launch.instance_id: launch for launch in ended}
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


def _installation(label: str | None) -> str | None:
    ids = label_ids(label)
    return None if ids is None else ids.install_id
