"""Stop launches with their disks kept, and start them again. A daemon may run at the same time.

A request only writes what is wanted; whoever reconciles, the daemon or the waiting command, does it. To end a launch
whose disk is kept is `stop`, to keep it longer is `extend`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt

from gpuwatch.app.launches.contract_end import contract_end
from gpuwatch.app.launches.launches import known_launch, open_launches
from gpuwatch.app.launches.running_machines import cannot_keep_disk
from gpuwatch.app.launches.stop import STOP_TIMEOUT_S, Report, follow, follow_quietly
from gpuwatch.app.owner_audit import audit_event
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.instances.obligation import latest_end
from gpuwatch.domain.launches.launch import Launch, LaunchConflict, LaunchRefusal, LaunchState
from gpuwatch.domain.launches.life.kept_disks import started_again
from gpuwatch.domain.launches.life.launch_events import ClockReading, KeepRequested
from gpuwatch.domain.launches.life.launch_record import governing_watch
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.launches.following.transition_executor import TransitionExecutor
from gpuwatch.engine.setup.failpoint import pace
from gpuwatch.errors import ProviderStateUnknown, UsageError
from gpuwatch.settings import Settings
from gpuwatch.storage.launches.launch_admission import start_refusal

if TYPE_CHECKING:
    from gpuwatch.ports import OutboxAlert
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

KEEP_S = 3 * 86_400.0  # of a launch whose watch is not known
_CONFLICTS_MAX = 5
_BY_OWNER = "stopped by the owner"


def keep_disk(settings: Settings, launch_id: str, keep_s: float | None, report: Report, *, actor: str) -> bool:
    """Stop a launch with its disk kept, and wait until a list shows that.

    Args:
        keep_s: how long the disk is kept; None: `keep_disk_for` of its watch.

    Returns:
        Whether only its disk is left.

    Raises:
        UsageError: it cannot be stopped so.
        StoreError: nothing was requested.
    """
    launch, _ = _request_keep(settings, launch_id, keep_s, actor)
    follow(settings, [launch_id], lambda one: one.is_over or one.is_kept or not one.is_halted, report, STOP_TIMEOUT_S)
    return _current(settings, launch.launch_id).is_kept


def start(settings: Settings, launch_id: str, runtime_s: float | None, report: Report, *, actor: str) -> bool:
    """Start a launch again whose disk is kept, and wait for it a while; it may wait longer for its GPUs.

    Args:
        runtime_s: how long it may run; None: `max_runtime` of its watch.

    Returns:
        Whether it runs.

    Raises:
        UsageError: it cannot be started, or a limit does not allow it.
        StoreError: nothing was requested.
    """
    _request_start(settings, launch_id, runtime_s, actor)
    follow(settings, [launch_id], _is_started, report, STOP_TIMEOUT_S / pace())
    return _current(settings, launch_id).kept is None


def request_keep(settings: Settings, launch_id: str, keep_s: float | None = None, *, actor: str) -> tuple[Launch, bool]:
    """As `keep_disk`, without waiting; return the launch, and whether this call changed it."""
    launch, changed = _request_keep(settings, launch_id, keep_s, actor)
    _in_background(settings, launch, lambda one: one.is_over or one.is_kept or not one.is_halted)
    return launch, changed


def request_start(
    settings: Settings, launch_id: str, runtime_s: float | None = None, *, actor: str
) -> tuple[Launch, bool]:
    """As `start`, without waiting; return the launch, and whether this call changed it."""
    launch, changed = _request_start(settings, launch_id, runtime_s, actor)
    _in_background(settings, launch, _is_started)
    return launch, changed


def kept_for_s(settings: Settings, launch: Launch) -> float:
    """How long its disk is kept unless a request says otherwise, in seconds."""
    watch = _watch(settings, launch)
    return KEEP_S if watch is None else watch.keep_disk_for_s


def _is_started(launch: Launch) -> bool:
    return launch.is_over or launch.kept is None or not launch.kept.is_starting


def _in_background(settings: Settings, launch: Launch, is_done: Callable[[Launch], bool]) -> None:
    arguments = (settings, launch.launch_id, is_done)
    name = f"follow {launch.launch_id}"
    threading.Thread(target=follow_quietly, args=arguments, name=name, daemon=True).start()


def _current(settings: Settings, launch_id: str) -> Launch:
    with open_launches(settings) as repository:
        return known_launch(repository, launch_id)


def _request_keep(settings: Settings, launch_id: str, keep_s: float | None, actor: str) -> tuple[Launch, bool]:
    with open_launches(settings) as repository:
        launch = known_launch(repository, launch_id)
        if launch.is_halted and not launch.is_over:
            return launch, False
        _require_running(launch, _watch(settings, launch))
        wanted_s = keep_s or kept_for_s(settings, launch)
        audit = audit_event(actor, f"launch {launch_id} stopped, its disk kept", subject=launch_id, watch=launch.watch)
        now = real_now()
        executor = TransitionExecutor(repository, None, audit=audit)
        event = KeepRequested(wanted_s, _BY_OWNER)
        after = executor.apply_to_latest(launch, event, ClockReading(now, now))[0]
    if not after.is_halted:
        raise ProviderStateUnknown(f"launch {launch_id} changed meanwhile; see: gpuwatch launches")
    return after, True


def _require_running(launch: Launch, watch: Watch | None) -> None:
    """Raise UsageError: its disk cannot be kept."""
    launch_id = launch.launch_id
    if (reason := cannot_keep_disk(launch)) is not None:
        raise UsageError(f"launch {launch_id} was not stopped: {reason}")
    if launch.dry_run or launch.state is not LaunchState.RUNNING or launch.condition is not None:
        raise UsageError(f"launch {launch_id} does not run, so it cannot be stopped; see: gpuwatch launches")
    if launch.kept is not None:
        raise UsageError(f"launch {launch_id} is being started again; wait until it runs")
    if launch.purpose.job is not None:
        raise UsageError(f"launch {launch_id} runs job {launch.purpose.job}; cancel the job, or let it end")
    if watch is not None and watch.launch is not None and watch.launch.self_destruct is True:
        raise UsageError(f"launch {launch_id} ends itself on its instance (self_destruct); its disk cannot be kept")


def _request_start(settings: Settings, launch_id: str, runtime_s: float | None, actor: str) -> tuple[Launch, bool]:
    audit = audit_event(actor, f"launch {launch_id} started again", subject=launch_id)
    retrying = Retrying(retry=retry_if_exception_type(LaunchConflict), stop=stop_after_attempt(_CONFLICTS_MAX))
    with open_launches(settings) as repository:
        launch = known_launch(repository, launch_id)
        if launch.kept is not None and launch.kept.is_starting:
            return launch, False
        try:
            return retrying(_start, settings, repository, launch_id, runtime_s, audit=audit), True
        except RetryError as error:
            raise ProviderStateUnknown(f"launch {launch_id} keeps changing; try again") from error


def _start(
    settings: Settings, repository: SqlLaunchRepository, launch_id: str, runtime_s: float | None, *, audit: OutboxAlert
) -> Launch:
    launch, now = known_launch(repository, launch_id), real_now()
    watch = _watch(settings, launch)
    for_s = runtime_at_start_s(settings, launch, runtime_s)
    if (contract := contract_end(settings, launch)).is_before(now + timedelta(seconds=for_s)):
        hint = f"say a shorter time: gpuwatch launches start {launch_id} --for 1h"
        raise UsageError(f"launch {launch_id} was not started: {contract.text}; {hint}")
    check = partial(start_refusal, budget=settings.budget, watch=watch, now=now)
    starting = started_again(launch, for_s, now)
    started = repository.extend_to(launch, starting, "starting it again", check, now, audit=audit)
    if isinstance(started, LaunchRefusal):
        raise UsageError(f"launch {launch_id} was not started: {started.said}; its disk is kept until {_until(launch)}")
    return started


def runtime_at_start_s(settings: Settings, launch: Launch, runtime_s: float | None) -> float:
    """How long it may run if it is started, in seconds. Raises UsageError: it cannot be started.

    Args:
        runtime_s: the requested time; None: `max_runtime` of its watch.
    """
    launch_id, watch = launch.launch_id, _watch(settings, launch)
    if launch.is_over:
        raise UsageError(f"launch {launch_id} has ended ({launch.end_reason}): its disk is gone")
    if launch.is_halted and not launch.is_kept:
        raise UsageError(f"launch {launch_id} is still being stopped; try again in a minute")
    if not launch.is_kept:
        raise UsageError(f"launch {launch_id} is {launch.state.value}; only one whose disk is kept can be started")
    if settings.dry_run:
        raise UsageError(f"launch {launch_id} was not started: dry_run = true, so nothing is rented")
    spec = None if watch is None else watch.launch
    for_s = runtime_s or (None if spec is None else spec.max_runtime_s)
    if for_s is None:
        raise UsageError(f"launch {launch_id}: its watch has no max_runtime; say how long it may run, such as --for 4h")
    return for_s


def _watch(settings: Settings, launch: Launch) -> Watch | None:
    return governing_watch(launch, {watch.name: watch for watch in settings.watches})


def _until(launch: Launch) -> str:
    end = latest_end(launch)
    return "its end" if end is None else format_moment(end)
