"""Launches from the command line: look at them, end one, settle one that is held. Works beside a running daemon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from gpuwatch.engine.follow import Follower
from gpuwatch.engine.launch_alerts import Herald
from gpuwatch.errors import UsageError
from gpuwatch.storage.ledger import Ledger
from gpuwatch.watches.launches import End, Launch, LaunchMoved, LaunchState, launch_id_in
from gpuwatch.wiring import adapters, database, http_client, new_id, real_now

if TYPE_CHECKING:
    from gpuwatch.ports import Launcher
    from gpuwatch.settings import Settings

STOP_WITHIN_S = 120.0
_LOOK_EVERY_S = 1.0


@contextmanager
def ledger(settings: Settings) -> Iterator[Ledger]:
    """The launches, opened for one command."""
    with database(settings) as store:
        yield Ledger(store)


def all_launches(settings: Settings) -> list[Launch]:
    """Every launch, newest first. Raises StoreError."""
    with ledger(settings) as books:
        return books.all()


def stop(settings: Settings, launch_ids: Sequence[str], told: Callable[[str], None]) -> bool:
    """End launches and wait until each is confirmed; True if all were, within two minutes.

    Raises:
        UsageError: there is no such launch, or its provider has no key.
    """
    with ledger(settings) as books, http_client(settings) as http:
        wanted = [_known(books, launch_id) for launch_id in launch_ids]
        moved = [_to_stopping(books, launch) for launch in wanted if not launch.is_over]
        built = adapters(settings, http, {launch.provider for launch in moved})
        followers = {name: _follower(settings, books, a.launcher) for name, a in built.items() if a.launcher}
        return _until_over(books, followers, [launch.launch_id for launch in moved], told)


def resolve_absent(settings: Settings, launch_id: str) -> Launch:
    """The owner looked: nothing was made. Raises UsageError if it is not held or unknown."""
    with ledger(settings) as books:
        launch = _held(books, launch_id)
        now, reason = real_now(), End.RESOLVED_ABSENT.text()
        return books.move(launch, LaunchState.FAILED, reason, now, ended_at=now, end_reason=reason)


def resolve_adopted(settings: Settings, launch_id: str, instance_id: str) -> Launch:
    """The owner looked: this instance is it. Raises UsageError if the provider does not list it."""
    with ledger(settings) as books, http_client(settings) as http:
        launch = _held(books, launch_id)
        adapter = adapters(settings, http, [launch.provider])[launch.provider]
        listed = adapter.launcher.list_instances() if adapter.launcher else ()
        found = [instance for instance in listed if instance.instance_id == instance_id]
        if not found:
            raise UsageError(f"{launch.provider} lists no instance {instance_id}")
        labelled = launch_id_in(found[0].label)
        if labelled is not None and labelled != launch_id:
            raise UsageError(f"instance {instance_id} belongs to launch {labelled}")
        cause = "adopted by the owner"
        return books.move(launch, LaunchState.STARTING, cause, real_now(), instance_id=instance_id)


def _known(books: Ledger, launch_id: str) -> Launch:
    launch = books.get(launch_id)
    if launch is None:
        raise UsageError(f"there is no launch {launch_id!r}; see: gpuwatch launches")
    return launch


def _held(books: Ledger, launch_id: str) -> Launch:
    launch = _known(books, launch_id)
    if launch.state not in {LaunchState.HELD, LaunchState.UNKNOWN}:
        raise UsageError(f"launch {launch_id} is {launch.state.value}; only a held or unknown one can be resolved")
    return launch


def _to_stopping(books: Ledger, launch: Launch) -> Launch:
    """Say that it is to end; a daemon may move it at the same time, then its newest row is taken."""
    for _ in range(5):
        if launch.is_over or launch.state is LaunchState.STOPPING:
            return launch
        if launch.state is LaunchState.REQUESTED:
            raise UsageError(f"launch {launch.launch_id} is being asked for at this moment; try again in a few seconds")
        try:
            reason = End.STOPPED.text()
            return books.move(launch, LaunchState.STOPPING, reason, real_now(), end_reason=reason)
        except LaunchMoved:
            launch = _known(books, launch.launch_id)
    raise UsageError(f"launch {launch.launch_id} changes all the time; try again")


def _follower(settings: Settings, books: Ledger, launcher: Launcher) -> Follower:
    told = tuple(
        name
        for name, configured in (
            ("telegram", settings.channels.telegram),
            ("email", settings.channels.email),
            ("apprise", settings.channels.apprise),
        )
        if configured
    )
    return Follower(
        books,
        launcher,
        Herald(lambda _watch: told, new_id),
        watches={watch.name: watch for watch in settings.watches},
        in_flight=frozenset,
        monotonic=time.monotonic,
    )


def _until_over(
    books: Ledger, followers: dict[str, Follower], launch_ids: Sequence[str], told: Callable[[str], None]
) -> bool:
    """Follow these launches alone until the provider's list confirms their end."""
    ends_at, waiting = time.monotonic() + STOP_WITHIN_S, dict.fromkeys(launch_ids, "")
    while waiting and time.monotonic() < ends_at:
        for launch_id in list(waiting):
            launch = _known(books, launch_id)
            state = launch.state.value
            if state != waiting[launch_id]:
                told(f"launch {launch_id}: {state}")
                waiting[launch_id] = state
            if launch.is_over:
                del waiting[launch_id]
            elif launch.provider not in followers:
                raise UsageError(f"there is no key for {launch.provider}: end instance {launch.instance_id} there")
        if waiting:
            _beat(followers, set(waiting), real_now())
            time.sleep(_LOOK_EVERY_S)
    return not waiting


def _beat(followers: dict[str, Follower], only: set[str], now: datetime) -> None:
    for follower in followers.values():
        follower.beat(now, only)
