"""The sweep: everything on offer of the watched and recorded GPUs, for the history."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.queries import RENTAL_TYPES
from gpuwatch.errors import ProviderError, QuotaSpent
from gpuwatch.ports import Answer, Completeness, Market, Query

SweepRecorder = Callable[[str, bool, Answer | ProviderError, datetime], None]


def sweep_targets(watches: Iterable[Watch], recorded: Sequence[str]) -> tuple[tuple[str, bool], ...]:
    """Which (GPU, spot) to read: recorded GPUs on demand, watched ones as their watches rent."""
    found = {(gpu, False): None for gpu in recorded}
    for watch in watches:
        found.update({(gpu, spot): None for gpu in watch.gpu_names for spot in RENTAL_TYPES[watch.spot]})
    return tuple(found)


class Sweeper:
    """The sweep at one provider."""

    def __init__(
        self,
        market: Market,
        targets: Sequence[tuple[str, bool]],
        record: SweepRecorder,
        stopping: threading.Event,
    ) -> None:
        self.market = market
        self.targets = targets
        self.rows: int | None = None  # what the last whole sweep cost
        self._record = record
        self._stopping = stopping

    def beat(self, clock: Callable[[], datetime]) -> bool:
        """Read every target once; True if all of it was answered whole. A spent quota ends the round."""
        rows, whole = 0, True
        for gpu, spot in self.targets:
            if self._stopping.is_set():
                return False
            try:
                answer = self.market.search(Query(gpus=(gpu,), count_max=None, spot=spot))
            except ProviderError as error:
                self._record(gpu, spot, error, clock())
                whole = False
                if isinstance(error, QuotaSpent):
                    break
                continue
            rows += answer.rows
            whole = whole and answer.completeness is Completeness.COMPLETE
            self._record(gpu, spot, answer, clock())
        if whole:
            self.rows = rows
        return whole
