"""Applies an event to a launch and records the result: launches change state only here.

`LaunchClock` computes the age of a launch by two clocks: no change of the wall clock may let an instance run longer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchConflict, LaunchState
from gpuwatch.domain.launches.life.command_life import CommandEvent
from gpuwatch.domain.launches.life.launch_events import (
    ClockReading,
    Destroy,
    Effect,
    EndRequested,
    LifecycleEvent,
    Transition,
    TransitionResult,
    WatchTerms,
)
from gpuwatch.domain.launches.life.state_machine import transition
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.followed_launch import FollowedLaunches
from gpuwatch.engine.setup.failpoint import failpoint
from gpuwatch.errors import StoreError

if TYPE_CHECKING:
    from gpuwatch.ports import OutboxAlert
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

log = logging.getLogger(__name__)

ELSEWHERE_FOR = timedelta(minutes=5)  # how long a request of another process may be in flight
_MAX_CONFLICTS = 5  # how often another process may change a row while we write


class TransitionExecutor:
    """Applies `state_machine.transition`, and stores the transition with its alert.

    The caller carries out the effects.

    Args:
        launch_alerts: None: the events raise no alert.
        rules: another pure function instead, for launches outside providers.
        audit: of an action of the owner, stored with the transition.
    """

    def __init__(
        self,
        repository: SqlLaunchRepository,
        launch_alerts: LaunchAlerts | None,
        rules: Callable[[Launch, Any, ClockReading, WatchTerms], TransitionResult] = transition,
        audit: OutboxAlert | None = None,
    ) -> None:
        self._repository = repository
        self._launch_alerts = launch_alerts
        self._rules = rules
        self._audit = audit

    def apply(
        self,
        launch: Launch,
        event: LifecycleEvent | CommandEvent,
        clock: ClockReading,
        terms: WatchTerms = WatchTerms(),  # noqa: B008 a frozen value
    ) -> tuple[Launch, tuple[Effect, ...]]:
        """Apply one event, provided that the row is unchanged since it was read.

        Raises:
            LaunchConflict: another process changed it; read it again.
            StoreError: storing failed, and no effect may be carried out.
        """
        outcome = self._rules(launch, event, clock, terms)
        if outcome.transition is None:
            return launch, outcome.effects
        try:
            return self._write(launch, outcome.transition, clock.now), outcome.effects
        except StoreError as error:
            if not _ends(outcome):
                raise
            # a full disk must not keep it running: ending it twice does no harm, not ending it does
            log.error("launch %s: ending it without a record: %s", launch.launch_id, error)  # noqa: TRY400
            return launch, outcome.effects

    def apply_to_latest(
        self, launch: Launch, event: LifecycleEvent | CommandEvent, clock: ClockReading
    ) -> tuple[Launch, tuple[Effect, ...]]:
        """Apply an event that only this process knows to the current row, whoever changed it meanwhile.

        Raises:
            LaunchConflict: the row is gone, or keeps changing.
            StoreError: storing failed.
        """
        for _ in range(_MAX_CONFLICTS):
            try:
                return self.apply(launch, event, clock)
            except LaunchConflict:
                current = self._repository.get(launch.launch_id)
                if current is None or current == launch:
                    raise
                launch = current
        raise LaunchConflict(f"launch {launch.launch_id} keeps being changed concurrently")

    def _write(self, launch: Launch, transition: Transition, now: datetime) -> Launch:
        after = msgspec.structs.replace(launch, state=transition.to_state, **transition.changes)
        outbox_alert = None
        if transition.notify is not None:
            assert self._launch_alerts is not None, "an event that raises alerts"
            outbox_alert = self._launch_alerts.for_notification(after, transition.notify, now)
        failpoint(f"{transition.to_state.value}.before_record")
        written = self._repository.transition(
            launch,
            transition.to_state,
            transition.cause,
            now,
            outbox_alert,
            message=transition.words,
            hook=transition.hook,
            audit=self._audit,
            **transition.changes,
        )
        failpoint(f"{transition.to_state.value}.after_record")
        return written


def _ends(outcome: TransitionResult) -> bool:
    assert outcome.transition is not None
    destroys = any(isinstance(effect, Destroy) for effect in outcome.effects)
    return destroys and outcome.transition.to_state is LaunchState.STOPPING


def request_end(
    repository: SqlLaunchRepository,
    launch: Launch,
    end: EndReason,
    now: datetime,
    words: str = "",
    audit: OutboxAlert | None = None,
) -> Launch:
    """Record that a launch must end, whoever changes it meanwhile; repeated calls change nothing.

    The reconciler destroys its instance, as often as needed, proves its end and reports it.

    Raises:
        LaunchConflict: the row is gone, or keeps changing.
        StoreError: nothing was recorded.
    """
    transitions = TransitionExecutor(repository, None, audit=audit)
    return transitions.apply_to_latest(launch, EndRequested(end, words), ClockReading(now, now))[0]


class LaunchClock:
    """Computes the age of launches.

    Args:
        monotonic: seconds.
    """

    def __init__(self, monotonic: Callable[[], float], followed: FollowedLaunches) -> None:
        self._monotonic = monotonic
        self._followed = followed

    def at_least(self, launch: Launch, now: datetime) -> datetime:
        """Return the wall clock or a later time: a clock that stepped back must not let an instance run longer."""
        running_since = launch.running_at if launch.state is LaunchState.RUNNING else None
        started_at = running_since or launch.requested_at or launch.intended_at
        tick_s = self._monotonic()
        seen_s = self._followed.of(launch).first_seen_s.setdefault(launch.state, tick_s)
        return max(now, started_at + timedelta(seconds=tick_s - seen_s))

    def since_order(self, launch: Launch, now: datetime) -> timedelta:
        """Return the time since its order."""
        return self.at_least(launch, now) - (launch.requested_at or launch.intended_at)

    def is_lost(self, launch: Launch, began_at: datetime | None, now: datetime) -> bool:
        """Whether a request that this process did not send is over: no process waits for its answer.

        It is older than this process, which began at `began_at`, or too old to be in flight in another one.
        """
        requested_at = launch.requested_at or launch.intended_at
        return began_at is None or requested_at < began_at or self.since_order(launch, now) > ELSEWHERE_FOR


def must_end_at(launch: Launch) -> datetime | None:
    """Return when it ends if nothing else happens; None: never."""
    if launch.state is LaunchState.RUNNING and launch.running_at and launch.max_runtime_s is not None:
        return launch.running_at + timedelta(seconds=launch.max_runtime_s)
    if launch.state is LaunchState.STARTING and launch.ready_within_s is not None:
        return (launch.requested_at or launch.intended_at) + timedelta(seconds=launch.ready_within_s)
    return None
