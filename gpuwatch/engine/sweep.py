"""The sweep: reads every offer of the watched and recorded GPUs, for the history."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.search import RENTAL_TYPES
from gpuwatch.errors import ProviderError, QuotaSpent
from gpuwatch.ports import Answer, Completeness, Market, Query

SweepRecorder = Callable[[str, bool, Answer | ProviderError, datetime], None]


def sweep_targets(watches: Iterable[Watch], recorded: Sequence[str]) -> tuple[tuple[str, bool], ...]:
    """Which (GPU, spot) to read: recorded GPUs on demand, watched GPUs as their watches rent."""
    found = {(gpu, False): None for gpu in recorded}
    for watch in watches:
        found.update({(gpu, spot): None for gpu in watch.gpu_names for spot in RENTAL_TYPES[watch.spot]})
    return tuple(found)


class Sweeper:
    """The sweep at one provider.

    Args:
        rows: how many rows the last complete sweep took; None: unknown.
    """

    def __init__(
        self,
        market: Market,
        targets: Sequence[tuple[str, bool]],
        record: SweepRecorder,
        stopping: threading.Event,
        rows: int | None = None,
    ) -> None:
        self.market = market
        self.targets = targets
        self.rows = rows
        self._record = record
        self._stopping = stopping

    def run(self, clock: Callable[[], datetime]) -> bool:
        """Read every target once; True if every answer was complete. A spent quota ends the sweep."""
        rows, complete = 0, True
        for gpu, spot in self.targets:
            if self._stopping.is_set():
                return False
            try:
                answer = self.market.search(Query(gpus=(gpu,), count_max=None, spot=spot))
            except ProviderError as error:
                self._record(gpu, spot, error, clock())
                complete = False
                if isinstance(error, QuotaSpent):
                    break
                continue
            rows += answer.rows
            complete = complete and answer.completeness is Completeness.COMPLETE
            self._record(gpu, spot, answer, clock())
        if complete:
            self.rows = rows
        return complete
