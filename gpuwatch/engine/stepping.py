"""Tells an observation to a launch, and writes down what follows: the one way in which launches go on."""

from __future__ import annotations

import logging
from datetime import datetime

import msgspec

from gpuwatch.engine.failpoint import failpoint
from gpuwatch.engine.launch_alerts import Herald
from gpuwatch.errors import StoreError
from gpuwatch.launches.launch import Launch, LaunchMoved, LaunchState
from gpuwatch.launches.life import step
from gpuwatch.launches.observed import Observation, Terms, When
from gpuwatch.launches.outcome import Destroy, Effect, Move, Outcome
from gpuwatch.ports import Books

log = logging.getLogger(__name__)

_MEETINGS = 5  # so often a row may be changed by somebody else while we write


class Stepper:
    """Applies `life.step`: the move first, durably, with its alert; its effects are for the caller to carry out."""

    def __init__(self, books: Books, herald: Herald) -> None:
        self._books = books
        self._herald = herald

    def take(
        self,
        launch: Launch,
        seen: Observation,
        when: When,
        terms: Terms = Terms(),  # noqa: B008 a frozen value
    ) -> tuple[Launch, tuple[Effect, ...]]:
        """One step, if the row is still as it was read.

        Raises:
            LaunchMoved: somebody else changed it; look again.
            StoreError: not written down, and no effect may follow.
        """
        outcome = step(launch, seen, when, terms)
        if outcome.move is None:
            return launch, outcome.effects
        try:
            return self._write(launch, outcome.move, when.now), outcome.effects
        except StoreError as error:
            if not _ends(outcome):
                raise
            # a full disk must not let it run on: to end it twice costs nothing, not to end it does
            log.error("launch %s is ended without a record: %s", launch.launch_id, error)  # noqa: TRY400
            return launch, outcome.effects

    def insist(self, launch: Launch, seen: Observation, when: When) -> tuple[Launch, tuple[Effect, ...]]:
        """The same for what only this process knows: told to the row as it is, whoever moved it meanwhile.

        Raises:
            LaunchMoved: it is gone, or changes all the time.
            StoreError: not written down.
        """
        for _ in range(_MEETINGS):
            try:
                return self.take(launch, seen, when)
            except LaunchMoved:
                current = self._books.get(launch.launch_id)
                if current is None or current == launch:
                    raise
                launch = current
        raise LaunchMoved(f"launch {launch.launch_id} is changed again and again by somebody else")

    def _write(self, launch: Launch, move: Move, now: datetime) -> Launch:
        after = msgspec.structs.replace(launch, state=move.to_state, **move.changes)
        news = None if move.tell is None else self._herald.told(after, move.tell, now)
        failpoint(f"{move.to_state.value}.before_record")
        told = {"words": move.words, "hook": move.hook}
        written = self._books.move(launch, move.to_state, move.cause, now, news, **told, **move.changes)
        failpoint(f"{move.to_state.value}.after_record")
        return written


def _ends(outcome: Outcome) -> bool:
    assert outcome.move is not None
    destroys = any(isinstance(effect, Destroy) for effect in outcome.effects)
    return destroys and outcome.move.to_state is LaunchState.STOPPING
