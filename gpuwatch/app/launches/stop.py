"""Stop launches, and follow launches until the provider confirms a change. A daemon may run at the same time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.launches.launches import (
    known_launch,
    launcher_of,
    list_instances_of,
    open_launches,
    unknown_instances,
)
from gpuwatch.app.owner_audit import audit_event
from gpuwatch.bootstrap import build_hooks, http_client, monotonic, new_id, open_store, real_monotonic, real_now
from gpuwatch.bootstrap.keeper_building import obligation_file
from gpuwatch.bootstrap.provider_access import can_rent, provider_account, with_previous_keys
from gpuwatch.bootstrap.settings_loading import manual_end_hints
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchConflict
from gpuwatch.domain.launches.life.launch_record import state_of
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.following.launch_reconciler import LaunchReconciler
from gpuwatch.engine.launches.following.transition_executor import request_end
from gpuwatch.engine.setup.failpoint import pace
from gpuwatch.errors import GpuwatchError, ProviderStateUnknown, StoreInUse, StoreNotReady, UsageError
from gpuwatch.settings import Settings
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import sqlite_path
from gpuwatch.storage.setup.migrate import upgrade_unused

if TYPE_CHECKING:
    from gpuwatch.engine.launches.following.launch_hooks import LaunchHooks
    from gpuwatch.engine.launches.following.provider_account import ProviderAccount
    from gpuwatch.ports import Instance, Launcher

log = logging.getLogger(__name__)


STOP_TIMEOUT_S = 120.0
LISTS_FOR_UNKNOWN = 3  # complete instance lists without the launch's label before the command stops waiting for it
_POLL_EVERY_S = 1.0
Report = Callable[[str], None]


class StopAllPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The instances that `gpuwatch launches stop --all` would end, and those it would leave alone."""

    launches: tuple[Launch, ...]  # recorded and active: certainly ours
    unknown: tuple[tuple[str, Instance], ...]  # (provider, instance): has gpuwatch's label, but no active launch
    unlisted: tuple[str, ...]  # providers whose instances could not be listed


def plan_stop_all(settings: Settings) -> StopAllPlan:
    """The owner's active launches, oldest first, and labelled instances without an active launch. Raises StoreError."""
    _upgrade_store(settings)
    with open_launches(settings) as repository, http_client(settings) as http:
        every, alive = repository.alive(), repository.own_alive()
        unknown: list[tuple[str, Instance]] = []
        unlisted = []
        for name in dict.fromkeys([*settings.providers, *(launch.provider for launch in alive)]):
            options = settings.providers.get(name)
            if options is None or not can_rent(options):
                continue
            instances = list_instances_of(settings, http, name)
            if instances is None:
                unlisted.append(name)
            else:
                foreign = repository.known_foreign_instances(name)
                unclaimed = unknown_instances(instances, every, name)
                unknown += [(name, instance) for instance in unclaimed if instance.instance_id not in foreign]
        return StopAllPlan(launches=tuple(alive), unknown=tuple(unknown), unlisted=tuple(unlisted))


def stop(settings: Settings, launch_ids: Sequence[str], report: Report, *, actor: str) -> bool:
    """End launches and wait for the confirmation, for two minutes plus the time of the hooks.

    A daemon may run at the same time: the rows decide, and ending an instance twice is harmless. Whichever is first
    runs `before_stop`.

    Args:
        report: receives one line per change.

    Returns:
        Whether every end is confirmed.

    Raises:
        UsageError: no such launch, or no key for its provider. The launch is still marked to be ended, and the
            others are ended before this is raised.
        StoreNotReady: the schema is older, and a daemon may be using it; nothing was ended.
    """
    _upgrade_store(settings)
    with open_launches(settings) as repository:
        for launch in [known_launch(repository, launch_id) for launch_id in launch_ids]:
            _mark_stopping(repository, launch, actor)
    return follow(settings, launch_ids, is_ended, report)


def is_ended(launch: Launch) -> bool:
    """Whether it has ended, for `follow`."""
    return launch.is_over


def follow(
    settings: Settings,
    launch_ids: Sequence[str],
    is_done: Callable[[Launch], bool],
    report: Report,
    within_s: float = STOP_TIMEOUT_S,
) -> bool:
    """Reconcile these launches until each is as it is wanted; return whether all are, in time plus that of hooks.

    Raises:
        UsageError: there is no key for a provider; the others are followed before this is raised.
        StoreError: the launches cannot be read.
    """
    with (
        open_store(settings) as store,
        http_client(settings) as http,
        closing(build_hooks(settings, store, http, threading.Event())) as hooks,
    ):
        repository = SqlLaunchRepository(store, obligation_file(settings))
        launches = [known_launch(repository, launch_id) for launch_id in launch_ids]
        accounts = [
            (launcher, provider_account(each, store, launcher, accepts_older=each is settings))
            for name in dict.fromkeys(launch.provider for launch in launches if not is_done(launch))
            for each in (settings, with_previous_keys(settings))
            if (launcher := launcher_of(each, http, name)) is not None
        ]
        keys = [
            _Key(launcher.name, account, _reconciler(settings, repository, launcher, hooks, account))
            for launcher, account in accounts
        ]
        return LaunchFollower(repository, keys, is_done, report).wait(launch_ids, within_s + hooks.longest_s)


def request_stop(settings: Settings, launch_id: str, *, actor: str) -> tuple[Launch, bool]:
    """Mark a launch to be ended, and end it in a separate thread; a daemon does so, too.

    Returns:
        The launch, and whether this call changed it: a launch that is ending or over stays as it is.

    Raises:
        UsageError: no such launch, or a command carries it out.
        StoreError: nothing was marked.
    """
    with open_launches(settings) as repository:
        before = known_launch(repository, launch_id)
        if before.is_by_command and not before.is_over:
            raise UsageError(own_tool_text(before))
        after = _mark_stopping(repository, before, actor)
    if not after.is_over:
        arguments = (settings, launch_id, is_ended)
        threading.Thread(target=follow_quietly, args=arguments, name=f"stop {launch_id}", daemon=True).start()
    return after, after.version != before.version


def follow_quietly(settings: Settings, launch_id: str, is_done: Callable[[Launch], bool]) -> None:
    """Follow one on a thread of its own; never raises."""
    try:
        follow(settings, [launch_id], is_done, lambda line: log.info("%s", line))
    except GpuwatchError as error:
        log.warning("%s", error)
    except Exception:
        log.exception("cannot follow launch %s; gpuwatch run keeps trying", launch_id)


def _upgrade_store(settings: Settings) -> None:
    """Upgrade an older store if no daemon uses it, so that ending an instance needs no second command.

    Raises:
        StoreNotReady: a daemon of an older version may be using it; the lines state what to do, and what to end by
            hand.
    """
    try:
        with open_store(settings):
            return
    except StoreNotReady as older:
        lines = [f"nothing was ended: {older}", *manual_end_hints(settings.database_url)]
    if sqlite_path(settings.database_url) is not None:  # on PostgreSQL, other users of the database are unknown
        with suppress(StoreInUse), open_store(settings, upgrade_unused):
            return
    raise StoreNotReady("\n".join(lines))


class _Key:
    """One key of a provider: its account, and the components that follow launches with it."""

    def __init__(self, provider: str, account: ProviderAccount, reconciler: LaunchReconciler) -> None:
        self.provider = provider
        self.account = account
        self.reconciler = reconciler
        self.lists = 0  # complete instance lists


class LaunchFollower:
    """Reconciles the given launches until they are as wanted; it does not touch others.

    Args:
        keys: of the providers, including previous ones; they cannot end what belongs to another account.
        is_done: whether a launch is as wanted.
        report: receives one line per change.
    """

    def __init__(
        self, repository: SqlLaunchRepository, keys: Sequence[_Key], is_done: Callable[[Launch], bool], report: Report
    ) -> None:
        self._repository = repository
        self._keys = keys
        self._is_done = is_done
        self._report = report
        self._states: dict[str, str] = {}
        self._not_found: list[str] = []
        self._by_hand: list[str] = []

    def wait(self, launch_ids: Sequence[str], within_s: float) -> bool:
        """Whether every one was as wanted in time.

        Raises:
            UsageError: the providers of some launches have no key; the other launches have ended.
            StoreError: the launches cannot be read.
        """
        ends_at, waiting = real_monotonic() + within_s, list(launch_ids)
        while real_monotonic() < ends_at and (
            waiting := [launch for launch in waiting if not self._is_settled(launch)]
        ):
            for key in self._keys:
                key.lists += key.reconciler.reconcile(real_now(), set(waiting))
            time.sleep(_POLL_EVERY_S / pace())
        if self._by_hand:
            raise UsageError("\n".join(self._by_hand))
        return not waiting and not self._not_found

    def _is_settled(self, launch_id: str) -> bool:
        """Whether the launch is as wanted, or further waiting is pointless."""
        launch = self._repository.get(launch_id)
        if launch is None:
            return True
        self._report_state(launch)
        if self._is_done(launch):
            return True
        keys = [key for key in self._keys if key.provider == launch.provider]
        if launch.is_by_command:
            self._by_hand.append(own_tool_text(launch))
            return True
        if not keys:
            self._by_hand.append(_end_by_hand(launch, f"{launch.provider} is not configured, or has no key"))
            return True
        if all(key.account.is_elsewhere(launch) for key in keys):
            reason = f"the configured key of {launch.provider} belongs to another account (gpuwatch providers accounts)"
            self._by_hand.append(_end_by_hand(launch, reason))
            return True
        if launch.instance_id is None and all(key.lists >= LISTS_FOR_UNKNOWN for key in keys):
            self._not_found.append(launch_id)
            self._report(_not_found(launch))
            return True
        return False

    def _report_state(self, launch: Launch) -> None:
        state = launch.state.value if launch.kept is None else state_of(launch)
        if self._states.get(launch.launch_id) != state:
            self._report(f"launch {launch.launch_id}: {state}")
        self._states[launch.launch_id] = state


def _reconciler(
    settings: Settings,
    repository: SqlLaunchRepository,
    launcher: Launcher,
    hooks: LaunchHooks,
    account: ProviderAccount,
) -> LaunchReconciler:
    return LaunchReconciler(
        repository,
        launcher,
        LaunchAlerts(new_id),
        watches={watch.name: watch for watch in settings.watches},
        in_flight=frozenset,
        monotonic=monotonic,
        may_destroy=hooks.may_destroy,
        owner=account,
    )


def _mark_stopping(repository: SqlLaunchRepository, launch: Launch, actor: str) -> Launch:
    """Record that the launch must end. If a daemon changes it concurrently, the newest row counts."""
    if launch.is_by_command:
        return launch
    audit = audit_event(actor, f"launch {launch.launch_id} stopped", subject=launch.launch_id, watch=launch.watch)
    try:
        return request_end(repository, launch, EndReason.STOPPED, real_now(), audit=audit)
    except LaunchConflict as error:
        raise ProviderStateUnknown(f"launch {launch.launch_id} keeps changing; try again") from error


def own_tool_text(launch: Launch) -> str:
    """What to do about a launch that a command carries out: gpuwatch cannot end what it rented."""
    launch_id = launch.launch_id
    return (
        f"launch {launch_id}: gpuwatch cannot end what its command rented; end it with its own tool,"
        f" then run: gpuwatch launches resolve {launch_id} --absent"
    )


def _end_by_hand(launch: Launch, reason: str) -> str:
    instance = f"instance {launch.instance_id}" if launch.instance_id else "the instance"
    return f"{reason}; end {instance} with the label {launch.label} there manually"


def _not_found(launch: Launch) -> str:
    """The provider's answer was lost, and no list shows the instance. It is ended if it appears later."""
    return (
        f"launch {launch.launch_id}: {launch.provider} lists no instance with the label {launch.label}; if one appears,"
        f" gpuwatch ends it. Then run: gpuwatch launches resolve {launch.launch_id} --absent, or --adopt INSTANCE"
    )
