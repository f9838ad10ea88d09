"""Launches that the owner's command carries out (`action = "command"`): each command runs at most once.

The reservation is durable before the command starts, and only the process that made it runs the command, once, from
memory. A `requested` row whose command no process runs is therefore never started again: it becomes `held`.
"""

from __future__ import annotations

import logging
import shlex
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from gpuwatch.domain.alerts import offer_texts as texts
from gpuwatch.domain.launches.launch import COMMAND_PLACE, EndReason, Launch, LaunchConflict, LaunchState
from gpuwatch.domain.launches.life.command_life import (
    CommandEnded,
    CommandEvent,
    CommandLost,
    CommandNotRun,
    CommandTimePassed,
    command_transition,
)
from gpuwatch.domain.launches.life.launch_events import ClockReading
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.orchestrator_task import filled_words
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.followed_launch import FollowedLaunches
from gpuwatch.engine.launches.following.transition_executor import LaunchClock, TransitionExecutor
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.errors import GpuwatchError, StoreError
from gpuwatch.ports.hooks import LaunchCommandInvoker
from gpuwatch.redaction import redact

if TYPE_CHECKING:
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

log = logging.getLogger(__name__)

_MARGIN = timedelta(seconds=60)  # to end a command whose time is over, and to record that


class LaunchCommands:
    """Runs commands on threads, and follows their launches.

    Args:
        is_alone: whether no other process can be running these commands (SQLite allows one daemon).
        renting_fault: why nothing can be rented at all, in one line; empty: renting is possible.
        generation: grows when the database went back to an older state.
    """

    def __init__(  # noqa: PLR0913 each is a collaborator of its own
        self,
        repository: SqlLaunchRepository,
        launch_alerts: LaunchAlerts,
        run: LaunchCommandInvoker,
        slots: LaunchSlots,
        *,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
        is_alone: bool,
        renting_fault: str = "",
        generation: Callable[[], int] = lambda: 0,
    ) -> None:
        self._repository = repository
        self._transitions = TransitionExecutor(repository, launch_alerts, command_transition)
        self._run = run
        self._slots = slots
        self._clock = clock
        self._followed = FollowedLaunches()
        self._launch_clock = LaunchClock(monotonic, self._followed)
        self._started_at = clock()
        self._is_alone = is_alone
        self._renting_fault = renting_fault
        self._generation = generation
        self._running: dict[str, threading.Thread] = {}  # by launch
        self._ran: dict[str, Launch] = {}  # by id: what may still be rented, whatever the database says

    def not_ready(self, provider: str, price_microusd_hour: int, watch: str) -> str | None:
        """Return why nothing can be rented now, or None. gpuwatch cannot know what the command's tool can rent.

        Raises StoreError.
        """
        return self._renting_fault or (self._lost() if self._generation() else None)

    def _lost(self) -> str | None:
        """Return why a launch that only this process still knows prevents others, or None."""
        now = self._clock()
        self._ran = {one.launch_id: one for one in self._ran.values() if not _is_time_over(one, now)}
        for launch_id in self._ran:
            if self._repository.get(launch_id) is None:
                return f"the database lost launch {launch_id}, whose command ran; when it is gone, restart gpuwatch"
        return None

    def start(self, launch: Launch, watch: Watch, candidates: Sequence[Match]) -> None:
        """Run the command of a newly reserved launch on its own thread."""
        if launch.dry_run:
            return
        thread = threading.Thread(
            target=self._guarded, args=(launch, watch, candidates[0]), name=f"command {launch.launch_id}", daemon=True
        )
        self._running[launch.launch_id] = thread
        thread.start()

    def follow(self, now: datetime) -> None:
        """Hold launches whose command no process runs, and end those whose time is over. Raises StoreError."""
        for launch in self._repository.own_alive(COMMAND_PLACE):
            event: CommandEvent = CommandTimePassed()
            if launch.state is LaunchState.REQUESTED:
                if launch.launch_id in self._running or not self._is_lost(launch, now):
                    continue
                event = CommandLost()
            try:
                self._apply(launch, event, now)
            except LaunchConflict as error:
                log.info("%s", error)

    @property
    def running(self) -> tuple[str, ...]:
        """The launches whose commands run in this process."""
        return tuple(self._running)

    def close(self, within_s: float) -> None:
        """Wait briefly for commands that are being ended, so that their ends are recorded."""
        for thread in list(self._running.values()):
            thread.join(within_s)

    def _is_lost(self, launch: Launch, now: datetime) -> bool:
        if self._is_alone and launch.intended_at < self._started_at:
            return True
        longest = timedelta(seconds=launch.ready_within_s or 0.0) + _MARGIN
        return self._launch_clock.since_order(launch, now) > longest

    def _guarded(self, launch: Launch, watch: Watch, match: Match) -> None:
        try:
            self._execute(launch, watch, match)
        except GpuwatchError as error:
            log.error("launch %s: %s", launch.launch_id, error)  # noqa: TRY400 its row shows its state
        except Exception:
            log.exception("launch %s: its command may have run; it is held when its time is over", launch.launch_id)
        finally:
            self._running.pop(launch.launch_id, None)
            self._slots.run_now("deliver")

    def _execute(self, launch: Launch, watch: Watch, match: Match) -> None:
        """Make the last check before money is spent, run the command, and record the result."""
        try:
            refusal = self._repository.may_send(launch, self._clock())
        except StoreError as error:
            self._apply(launch, CommandNotRun(EndReason.NOT_RUN.text(str(error))), self._clock())
            return
        if refusal is not None:
            self._apply(launch, CommandNotRun(EndReason.PAUSED.text(refusal.said)), self._clock())
            return
        if not self._repository.lease.is_held:  # the process may have slept since the last check
            self._apply(launch, CommandNotRun(EndReason.NOT_RUN.text("another host leads")), self._clock())
            return
        log.info("launch %s: starting its command", launch.launch_id, extra={"watch": watch.name})
        self._ran[launch.launch_id] = launch
        outcome = self._run(launch, watch, match, self._clock())
        event: CommandEvent = CommandEnded(outcome.code, outcome.output)
        if outcome.not_started is not None:
            event = CommandNotRun(EndReason.NOT_RUN.text(outcome.not_started))
        self._apply(launch, event, self._clock())

    def _apply(self, launch: Launch, event: CommandEvent, now: datetime) -> None:
        reading = ClockReading(now, self._launch_clock.at_least(launch, now))
        after, effects = self._transitions.apply_to_latest(launch, event, reading)
        if after.state is not launch.state:
            log.info("launch %s: %s", launch.launch_id, after.state.value, extra={"watch": launch.watch})
        if effects:  # it is over
            self._ran.pop(launch.launch_id, None)
            self._followed.drop(launch)
            self._slots.launch_over(launch)


def _is_time_over(launch: Launch, now: datetime) -> bool:
    if launch.max_runtime_s is None:
        return False
    return now >= launch.intended_at + timedelta(seconds=(launch.ready_within_s or 0.0) + launch.max_runtime_s)


def command_summary(reserved: Sequence[tuple[Launch, Watch, Sequence[Match]]]) -> str:
    """Return the sentences of an alert about the commands that run, or would run."""
    found = [
        filled_words(watch, candidates[0], launch.launch_id)
        for launch, watch, candidates in reserved
        if watch.action is Action.COMMAND
    ]
    return "".join(texts.ITS_COMMAND.format(command=redact(shlex.join(words))) for words in found)
