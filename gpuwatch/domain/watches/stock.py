"""When complete polls last showed nothing that fits a watch with `restock`: then the next offer is one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.watches.decide import REARM_POLLS, Decision, DecisionReason, Observation
from gpuwatch.domain.watches.watch import Watch

PROOF_LASTS = timedelta(hours=1)  # assumed: after a longer gap in polling nobody knows when it came back


class StockProofs:
    """Of one process: what was seen before a restart proves nothing, for it was a gap."""

    def __init__(self) -> None:
        self._empty_at: dict[str, datetime] = {}  # watch → when that was last proven

    def added_to(self, observation: Observation, watch: Watch, now: datetime) -> Observation:
        """The observation, with whether nothing was on offer shortly before."""
        if not watch.restock:
            return observation
        empty_at = self._empty_at.get(watch.name)
        was_empty = empty_at is not None and timedelta(0) <= now - empty_at <= PROOF_LASTS
        return msgspec.structs.replace(observation, was_empty=was_empty)

    def note_all(self, decided: Iterable[tuple[Watch, Decision]]) -> None:
        """Remember what decisions prove, once what follows from them is stored."""
        for watch, decision in decided:
            if watch.restock and decision.matches:
                self._empty_at.pop(watch.name, None)
            elif watch.restock and decision.reason is DecisionReason.NO_OFFER and decision.memory.misses >= REARM_POLLS:
                self._empty_at[watch.name] = decision.decided_at
