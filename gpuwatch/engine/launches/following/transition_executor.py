"""Applies an event to a launch and records the result: launches change state only here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchConflict, LaunchState
from gpuwatch.domain.launches.life.command_life import CommandEvent
from gpuwatch.domain.launches.life.launch_events import ClockReading, EndRequested, LifecycleEvent, WatchTerms
from gpuwatch.domain.launches.life.state_machine import transition
from gpuwatch.domain.launches.life.transitions import Destroy, Effect, Transition, TransitionResult
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.setup.failpoint import failpoint
from gpuwatch.errors import StoreError
from gpuwatch.ports import LaunchRepository

log = logging.getLogger(__name__)

_MAX_CONFLICTS = 5  # how often another process may change a row while we write


class TransitionExecutor:
    """Applies `state_machine.transition`, and stores the transition with its alert.

    The caller carries out the effects.

    Args:
        launch_alerts: None: the events raise no alert.
        rules: another pure function instead, for launches outside providers.
    """

    def __init__(
        self,
        repository: LaunchRepository,
        launch_alerts: LaunchAlerts | None,
        rules: Callable[[Launch, Any, ClockReading, WatchTerms], TransitionResult] = transition,
    ) -> None:
        self._repository = repository
        self._launch_alerts = launch_alerts
        self._rules = rules

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
        texts = {"message": transition.words, "hook": transition.hook}
        written = self._repository.transition(
            launch, transition.to_state, transition.cause, now, outbox_alert, **texts, **transition.changes
        )
        failpoint(f"{transition.to_state.value}.after_record")
        return written


def request_end(repository: LaunchRepository, launch: Launch, end: EndReason, now: datetime, words: str = "") -> Launch:
    """Record that a launch must end, whoever changes it meanwhile; repeated calls change nothing.

    The reconciler destroys its instance, as often as needed, proves its end and reports it.

    Raises:
        LaunchConflict: the row is gone, or keeps changing.
        StoreError: nothing was recorded.
    """
    transitions = TransitionExecutor(repository, None)
    return transitions.apply_to_latest(launch, EndRequested(end, words), ClockReading(now, now))[0]


def _ends(outcome: TransitionResult) -> bool:
    assert outcome.transition is not None
    destroys = any(isinstance(effect, Destroy) for effect in outcome.effects)
    return destroys and outcome.transition.to_state is LaunchState.STOPPING
