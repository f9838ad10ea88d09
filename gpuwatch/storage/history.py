"""The price history: polls, and prices as intervals. One transaction an answer; what did not change costs nothing."""

from __future__ import annotations

import threading
from datetime import datetime

from gpuwatch.ports import Answer
from gpuwatch.storage.changes import Look
from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor, Executor
from gpuwatch.storage.open_prices import OPEN_ROWS, OpenPrices, load_covers, load_ids, load_open
from gpuwatch.storage.quota import rows_used
from gpuwatch.storage.recording import (
    Recorded,
    clock_stepped_back,
    seconds,
    settle,
    step_back,
    write_answer,
    write_failure,
)

__all__ = ["History", "Recorded"]


class History:
    """Keeps what was seen for sale. Long-lived: what is on offer stays in memory, and is read anew if others wrote."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._prices = OpenPrices()
        self._lock = threading.Lock()  # one recording of this process at a time: they share the memory

    def record(self, answer: Answer, *, lane: str, gpu: str = "", spot: bool = False) -> Recorded:
        """Keep an answer.

        Args:
            lane: "sweep": what a complete answer does not show is gone; any other, such as "hunt", covers nothing.
            gpu: the model that was asked for; "": all.
            spot: the rental type that was asked for.

        Raises:
            StoreError: nothing was kept.
        """
        with self._lock:
            try:
                with self._database.write() as connection:
                    executor = CoreExecutor(connection)
                    self._catch_up(executor, answer)
                    written = write_answer(executor, self._prices, answer, lane, gpu, spot)
            except BaseException:
                self._prices = OpenPrices()  # what was written into memory did not happen
                raise
            settle(written, self._prices)
            return written.recorded

    def record_failure(
        self, provider: str, *, lane: str, gpu: str = "", spot: bool = False, at: datetime, error: str
    ) -> None:
        """Keep that a question was not answered: a gap, never "no offers". Raises StoreError."""
        with self._database.write() as connection:
            look = Look(provider, lane, gpu, int(spot), seconds(at), False, None)
            write_failure(CoreExecutor(connection), look, error)

    def rows_used(self, provider: str, now: datetime) -> int:
        """Rows returned since 00:00 UTC. Raises StoreError."""
        with self._database.read() as connection:
            return rows_used(CoreExecutor(connection), provider, now)

    def _catch_up(self, executor: Executor, answer: Answer) -> None:
        """Somebody else wrote (or nothing is loaded yet): read again."""
        self._load_if_stale(executor)
        at_s = seconds(answer.observed_at)
        if clock_stepped_back(self._prices, answer.provider, at_s):
            step_back(executor, answer.provider, at_s)
            self._prices = load(executor)

    def _load_if_stale(self, executor: Executor) -> None:
        sql = "SELECT version FROM history_state WHERE id = 1"
        if not self._database.is_sqlite:
            sql += " FOR UPDATE"  # recorders take turns, whatever process they are in
        if executor.rows(sql)[0][0] != self._prices.version:
            self._prices = load(executor)


def load(executor: Executor) -> OpenPrices:
    """Everything that is on offer, as the database has it."""
    prices = OpenPrices()
    prices.version, prices.next_hour = executor.rows("SELECT version, next_hour FROM history_state WHERE id = 1")[0]
    load_ids(executor, prices)
    load_covers(executor, prices)
    load_open(executor.rows(OPEN_ROWS), prices)
    return prices
