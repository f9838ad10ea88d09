"""Launches from the command line: look at them, end one, settle one that is held. Works beside a running daemon."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.stop import StopWaiter
from gpuwatch.bootstrap import (
    build_adapters,
    http_client,
    monotonic,
    new_id,
    open_store,
    open_store_read_only,
    real_now,
)
from gpuwatch.bootstrap.hooks import build_hooks
from gpuwatch.bootstrap.provider_access import can_rent, has_credentials
from gpuwatch.domain.launches.adoption import has_stopped_running
from gpuwatch.domain.launches.launch import (
    LABEL_PREFIX,
    EndReason,
    Launch,
    LaunchConflict,
    LaunchEvent,
    LaunchState,
    PriceSpan,
    launch_id_in,
)
from gpuwatch.domain.market.json_values import rfc3339
from gpuwatch.domain.market.money import usd_number
from gpuwatch.engine.launch_alerts import LaunchAlerts
from gpuwatch.engine.launch_reconciler import LaunchReconciler
from gpuwatch.errors import GpuwatchError, ProviderError, UsageError
from gpuwatch.ports import Instance
from gpuwatch.storage.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from gpuwatch.engine.launch_hooks import LaunchHooks
    from gpuwatch.ports import Launcher
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database

log = logging.getLogger(__name__)

STOP_WITHIN_S = 120.0


class ProviderStateUnknown(GpuwatchError):
    """The provider does not say what is; nothing was changed."""


class StopAllPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpuwatch stop --all` would end, and what it leaves alone."""

    launches: tuple[Launch, ...]  # in the table and not over: provably ours
    unknown: tuple[tuple[str, Instance], ...]  # (provider, instance) with gpuwatch's label that is in no such launch
    unlisted: tuple[str, ...]  # providers that gave no list: what is there is not known


@contextmanager
def open_launches(settings: Settings) -> Iterator[SqlLaunchRepository]:
    """The launches, opened for a command that writes."""
    with open_store(settings) as store:
        yield SqlLaunchRepository(store)


def all_launches(settings: Settings) -> list[Launch]:
    """Every launch, newest first. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return SqlLaunchRepository(store).all()


def launch_events(settings: Settings, launch_id: str) -> list[LaunchEvent]:
    """The steps of one launch, oldest first. Raises UsageError (there is none), StoreError."""
    with open_store_read_only(settings) as store:
        repository = SqlLaunchRepository(store)
        return repository.events(_known(repository, launch_id).launch_id)


def plan_stop_all(settings: Settings) -> StopAllPlan:
    """Every launch that is alive, oldest first, and the labelled instances that are none of them. Raises StoreError."""
    with open_launches(settings) as repository, http_client(settings) as http:
        alive = repository.alive()
        unknown: list[tuple[str, Instance]] = []
        unlisted = []
        for name in dict.fromkeys([*settings.providers, *(launch.provider for launch in alive)]):
            known = settings.providers.get(name)
            if known is None or not can_rent(known):
                continue
            instances = list_instances_of(settings, http, name)
            if instances is None:
                unlisted.append(name)
            else:
                noted = repository.known_foreign_instances(name)
                unknown += [
                    (name, one) for one in unknown_instances(instances, alive, name) if one.instance_id not in noted
                ]
        return StopAllPlan(launches=tuple(alive), unknown=tuple(unknown), unlisted=tuple(unlisted))


def unknown_instances(instances: Sequence[Instance], alive: Sequence[Launch], provider: str) -> list[Instance]:
    """Those with gpuwatch's label that are in no launch that is alive."""
    mine = [launch for launch in alive if launch.provider == provider]
    ids = {launch.instance_id for launch in mine}
    looked_for = {launch.label for launch in mine if launch.instance_id is None}
    labelled = [one for one in instances if (one.label or "").startswith(LABEL_PREFIX)]
    return [one for one in labelled if one.instance_id not in ids and one.label not in looked_for]


def stop(settings: Settings, launch_ids: Sequence[str], told: Callable[[str], None]) -> bool:
    """End launches and wait until each is confirmed; True if all were, within two minutes beside what hooks take.

    A daemon may run beside: the rows decide, and to destroy twice is no harm. Whoever comes first runs
    `before_stop`.

    Raises:
        UsageError: there is no such launch, or no key for its provider. It is marked to be ended all the same, and
            the others are ended before this is raised.
    """
    with open_store(settings) as store, http_client(settings) as http, _hooks(settings, store, http) as hooks:
        repository = SqlLaunchRepository(store)
        wanted = [_known(repository, launch_id) for launch_id in launch_ids]
        moved = [_to_stopping(repository, launch) for launch in wanted]
        alive = [launch for launch in moved if not launch.is_over]
        followers = {
            name: _follower(settings, repository, launcher, hooks)
            for name in dict.fromkeys(launch.provider for launch in alive)
            if (launcher := _launcher(settings, http, name)) is not None
        }
        within_s = STOP_WITHIN_S + hooks.longest_s
        ending = StopWaiter(repository, followers, told)
        return ending.wait([launch.launch_id for launch in moved], within_s)


@contextmanager
def _hooks(settings: Settings, store: Database, http: HttpClient) -> Iterator[LaunchHooks]:
    """The owner's hooks, for as long as the command runs."""
    told = channel_names(settings)
    hooks = build_hooks(settings, store, http, lambda _watch: told, threading.Event())
    try:
        yield hooks
    finally:
        hooks.close()


def resolve_absent(settings: Settings, launch_id: str) -> Launch:
    """The owner looked: nothing was made.

    Raises:
        UsageError: it is not held or unknown, or the provider lists an instance with its label.
    """
    with open_launches(settings) as repository, http_client(settings) as http:
        launch = _held(repository, launch_id)
        found = [
            i.instance_id
            for i in list_instances_of(settings, http, launch.provider) or ()
            if launch_id_in(i.label) == launch_id
        ]
        if found:
            raise UsageError(f"instance {found[0]} has the label {launch.label}; use --adopt {found[0]}")
        now, reason = real_now(), EndReason.RESOLVED_ABSENT.text()
        return repository.move(launch, LaunchState.FAILED, reason, now, ended_at=now, end_reason=reason)


def resolve_adopted(settings: Settings, launch_id: str, instance_id: str) -> Launch:
    """The owner looked: this instance is it.

    Raises:
        UsageError: it is not held or unknown, or that instance is not listed, or another launch's.
        CannotTell: the provider gave no list.
    """
    with open_launches(settings) as repository, http_client(settings) as http:
        launch = _held(repository, launch_id)
        instances = list_instances_of(settings, http, launch.provider)
        if instances is None:
            raise ProviderStateUnknown(f"{launch.provider} does not list its instances now; try again")
        found = [instance for instance in instances if instance.instance_id == instance_id]
        if not found:
            raise UsageError(f"{launch.provider} lists no instance {instance_id}")
        labelled = launch_id_in(found[0].label)
        if labelled is not None and labelled != launch_id:
            raise UsageError(f"instance {instance_id} belongs to launch {labelled}")
        owner = [other for other in repository.alive(launch.provider) if other.instance_id == instance_id]
        if owner and owner[0].launch_id != launch_id:
            raise UsageError(f"instance {instance_id} belongs to launch {owner[0].launch_id}")
        cause, now = "adopted by the owner", real_now()
        # as for `gpuwatch adopt`, its time counts from now on: while it was held, all of it may have passed
        changes: dict[str, Any] = {"instance_id": instance_id, "intended_at": now, "requested_at": now}
        if launch.state is LaunchState.STOPPING:
            return repository.move(launch, LaunchState.STOPPING, cause, now, instance_id=instance_id)
        if not has_stopped_running(found[0]):
            return repository.move(launch, LaunchState.STARTING, cause, now, **changes)
        disk = launch.disk_microusd_hour
        spans = (PriceSpan(now, disk, round(disk * launch.price_microusd_hour / (launch.listed_microusd_hour or 1))),)
        return repository.move(launch, LaunchState.RUNNING, cause, now, running_at=now, spans=spans, **changes)


def _known(repository: SqlLaunchRepository, launch_id: str) -> Launch:
    launch = repository.get(launch_id)
    if launch is None:
        raise UsageError(f"there is no launch {launch_id!r}; see: gpuwatch launches")
    return launch


def _held(repository: SqlLaunchRepository, launch_id: str) -> Launch:
    """One whose instance is not known: to be resolved, also while it is to be ended."""
    launch = _known(repository, launch_id)
    open_end = launch.state is LaunchState.STOPPING and launch.instance_id is None
    if launch.state not in {LaunchState.HELD, LaunchState.UNKNOWN} and not open_end:
        raise UsageError(f"launch {launch_id} is {launch.state.value}; only a held or unknown one can be resolved")
    return launch


def _to_stopping(repository: SqlLaunchRepository, launch: Launch) -> Launch:
    """Say that it is to end; a daemon may move it at the same time, then its newest row is taken."""
    for _ in range(5):
        if launch.is_over or launch.state is LaunchState.STOPPING:
            return launch
        try:
            reason = EndReason.STOPPED.text()
            return repository.move(launch, LaunchState.STOPPING, reason, real_now(), end_reason=reason)
        except LaunchConflict:
            launch = _known(repository, launch.launch_id)
    raise ProviderStateUnknown(f"launch {launch.launch_id} changes all the time; try again")


def _launcher(settings: Settings, http: HttpClient, provider: str) -> Launcher | None:
    """The renting side of a provider; None: it is not in the settings any more, or has no key."""
    known = settings.providers.get(provider)
    if known is None or not has_credentials(known):
        return None
    return build_adapters(settings, http, [provider])[provider].launcher


def list_instances_of(settings: Settings, http: HttpClient, provider: str) -> Sequence[Instance] | None:
    """Its instances; None: that cannot be known."""
    launcher = _launcher(settings, http, provider)
    try:
        return None if launcher is None else launcher.list_instances()
    except ProviderError as error:
        log.warning("%s", error)
        return None


def channel_names(settings: Settings) -> tuple[str, ...]:
    """Every configured channel."""
    return settings.channels.names


def _follower(
    settings: Settings, repository: SqlLaunchRepository, launcher: Launcher, hooks: LaunchHooks
) -> LaunchReconciler:
    told = channel_names(settings)
    return LaunchReconciler(
        repository,
        launcher,
        LaunchAlerts(lambda _watch: told, new_id),
        watches={watch.name: watch for watch in settings.watches},
        in_flight=frozenset,
        monotonic=monotonic,
        may_destroy=hooks.may_destroy,
    )


def event_json(event: LaunchEvent) -> dict[str, Any]:

    return {
        "at": rfc3339(event.at),
        "from_state": None if event.from_state is None else event.from_state.value,
        "to_state": event.to_state.value,
        "cause": event.cause,
        "provider_words": event.provider_words,
        "listed_usd_hour": usd_number(event.listed_microusd_hour),
        "price_usd_hour": usd_number(event.price_microusd_hour),
    }
