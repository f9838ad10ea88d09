"""Ended launches whose instances are listed again: they are ended again, or followed again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from gpuwatch.domain.launches.instances.absence import REPORT_AFTER_S
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.life.launch_events import ClockReading, InstanceReturned
from gpuwatch.domain.launches.life.transitions import Effect
from gpuwatch.engine.launches.following.transition_executor import TransitionExecutor
from gpuwatch.engine.launches.guarding.instance_lookup import look_up
from gpuwatch.engine.market.contradictions import Contradictions
from gpuwatch.errors import ProviderError
from gpuwatch.ports import Instance, Launcher, LaunchReader

log = logging.getLogger(__name__)


class ReopenedLaunches:
    """Reopens launches at one provider.

    Args:
        carry_out: carries out the effects of a transition.
    """

    def __init__(
        self,
        repository: LaunchReader,
        launcher: Launcher,
        executor: TransitionExecutor,
        contradictions: Contradictions,
        carry_out: Callable[[Launch, Effect, datetime], None],
    ) -> None:
        self._repository = repository
        self._launcher = launcher
        self._executor = executor
        self._contradictions = contradictions
        self._carry_out = carry_out

    def reopen(self, launch: Launch, instance: Instance, now: datetime) -> None:
        """Reopen a launch whose instance is listed, unless a lookup by id reports the instance as gone.

        Raises:
            LaunchConflict: another process changed the launch.
            ProviderError: the lookup failed.
            StoreError: storing failed, and nothing was done.
        """
        if not self._is_alive(instance.instance_id):
            why = "The list shows it after its end, but a lookup by id finds nothing."
            self._contradictions.note(launch, why, REPORT_AFTER_S, now)
            return
        self._contradictions.clear(launch)
        log.error("launch %s: it has ended, but instance %s is listed", launch.launch_id, instance.instance_id)
        event = InstanceReturned(instance.instance_id, self._end_was_wanted(launch))
        launch, effects = self._executor.apply(launch, event, ClockReading(now, now))
        for effect in effects:
            self._carry_out(launch, effect, now)

    def _is_alive(self, instance_id: str) -> bool:
        """Whether a lookup confirms the list, if the provider supports one: lists lag."""
        try:
            return not look_up(self._launcher, instance_id).is_gone
        except ProviderError as error:
            log.warning("instance %s: listed again, and its id could not be checked: %s", instance_id, error)
            raise

    def _end_was_wanted(self, launch: Launch) -> bool:
        events = self._repository.events(launch.launch_id)
        return bool(events) and events[-1].from_state is LaunchState.STOPPING
