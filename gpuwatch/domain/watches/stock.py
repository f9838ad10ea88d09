"""When complete polls last showed no fitting offer for a watch with `restock`, so that the next one is a restock."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.watches.decide import REARM_POLLS, Decision, DecisionReason, Observation
from gpuwatch.domain.watches.watch import Watch

PROOF_LASTS = timedelta(hours=1)  # assumed: after a longer gap in polling, the time of the return is unknown


class StockProofs:
    """The proofs of this process: observations from before a restart prove nothing, because polling was interrupted."""

    def __init__(self) -> None:
        self._empty_at: dict[str, datetime] = {}  # watch → time of the last proof

    def added_to(self, observation: Observation, watch: Watch, now: datetime) -> Observation:
        """Add to the observation whether nothing was on offer shortly before."""
        if not watch.restock:
            return observation
        empty_at = self._empty_at.get(watch.name)
        was_empty = empty_at is not None and timedelta(0) <= now - empty_at <= PROOF_LASTS
        return msgspec.structs.replace(observation, was_empty=was_empty)

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget all other watches."""
        self._empty_at = {name: at for name, at in self._empty_at.items() if name in watches}

    def note_all(self, decided: Iterable[tuple[Watch, Decision]]) -> None:
        """Record what these decisions prove, once their consequences are stored."""
        for watch, decision in decided:
            if watch.restock and decision.matches:
                self._empty_at.pop(watch.name, None)
            elif watch.restock and decision.reason is DecisionReason.NO_OFFER and decision.memory.misses >= REARM_POLLS:
                self._empty_at[watch.name] = decision.decided_at
