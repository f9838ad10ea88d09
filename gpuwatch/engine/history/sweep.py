"""The sweep: reads every offer of the watched and recorded GPUs, for the history.

It has no limits, so it also shows whether a provider whose hunt finds nothing still lists offers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from gpuwatch.domain.market.search_query import query_of
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.market.watch_search import RENTAL_TYPES
from gpuwatch.errors import ProviderError, QuotaSpent, RateLimited
from gpuwatch.ports import Answer, Completeness, Market

SweepRecorder = Callable[[str, bool, Answer | ProviderError, datetime], None]


def sweep_targets(watches: Iterable[Watch], recorded: Sequence[str]) -> tuple[tuple[str, bool], ...]:
    """Return which (GPU, spot) to read: recorded GPUs on demand, watched GPUs with their watches' rental types."""
    found = {(gpu, False): None for gpu in recorded}
    for watch in watches:
        found.update({(gpu, spot): None for gpu in watch.gpu_names for spot in RENTAL_TYPES[watch.spot]})
    return tuple(found)


class Sweeper:
    """The sweep at one provider.

    Args:
        rows: the rows of the last complete sweep; None: unknown.
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
        self._remaining: list[tuple[str, bool]] = []  # remaining targets of the current sweep, and its rows so far
        self._rows_read, self._is_complete = 0, True

    @property
    def is_unfinished(self) -> bool:
        """Whether the last sweep was interrupted: the next call of `run` continues it."""
        return bool(self._remaining)

    def run(self, clock: Callable[[], datetime]) -> bool:
        """Read every target once, or the rest of an interrupted sweep; return whether every answer was complete.

        A rate limit or a used-up quota interrupts the sweep.
        """
        if not self._remaining:
            self._remaining, self._rows_read, self._is_complete = list(self.targets), 0, True
        while self._remaining:
            if self._stopping.is_set():
                return False
            gpu, spot = self._remaining[0]
            try:
                answer = self.market.search(query_of(gpu, spot=spot))
            except ProviderError as error:
                self._record(gpu, spot, error, clock())
                if isinstance(error, RateLimited | QuotaSpent):
                    return False
                self._is_complete = False
            else:
                self._rows_read += answer.rows
                self._is_complete = self._is_complete and answer.completeness is Completeness.COMPLETE
                self._record(gpu, spot, answer, clock())
            self._remaining.pop(0)
        if self._is_complete:
            self.rows = self._rows_read
        return self._is_complete
