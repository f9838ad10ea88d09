"""Threads for the rounds of jobs: a slow machine delays no other, and a job never has two rounds at once."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum

log = logging.getLogger(__name__)


class Lane(StrEnum):
    """What a round mostly does. Each lane has its own threads, so that no lease waits for a transfer of hours."""

    OBSERVE = "observe"  # seconds; renews the lease
    TRANSFER = "transfer"  # inputs to a machine, results from it
    COPY = "copy"  # to stores


class JobThreads:
    """Runs rounds in the order in which they were requested, so the job that waited longest is next.

    The process does not wait for them at exit: the next process repeats an interrupted one.

    Args:
        workers: maximum number of parallel rounds of a lane; 0: each round runs in the caller's thread.
        others: lanes with another maximum.
    """

    def __init__(self, workers: int, others: Mapping[Lane, int] | None = None) -> None:
        self._workers = dict.fromkeys(Lane, workers) | dict(others or {} if workers else {})
        # of the observing rounds, so many may take minutes at once (checkpoints): the others still renew leases
        self.long_rounds = threading.BoundedSemaphore(max(workers // 2, 1))
        self._lock = threading.Lock()
        self._accepted: set[str] = set()  # waiting or running
        self._running = dict.fromkeys(Lane, 0)
        self._waiting: dict[Lane, deque[tuple[str, Callable[[], None]]]] = {lane: deque() for lane in Lane}
        self._closed = False

    def start(self, job_id: str, step: Callable[[], None], lane: Lane = Lane.OBSERVE) -> bool:
        """Run a round as soon as a thread is free; False: the previous round of this job still waits or runs."""
        if not self._workers[lane]:
            step()
            return True
        with self._lock:
            if self._closed or job_id in self._accepted:
                return False
            self._accepted.add(job_id)
            self._waiting[lane].append((job_id, step))
            if self._running[lane] < self._workers[lane]:
                self._running[lane] += 1
                threading.Thread(target=self._work, args=(lane,), name=f"job rounds {lane}", daemon=True).start()
        return True

    def close(self) -> None:
        """Start nothing more."""
        with self._lock:
            self._closed = True
            for waiting in self._waiting.values():
                waiting.clear()

    def _work(self, lane: Lane) -> None:
        while (given := self._next(lane)) is not None:
            job_id, step = given
            try:
                step()
            except Exception:
                log.exception("a round of job %s failed; retrying in the next one", job_id)
            finally:
                with self._lock:
                    self._accepted.discard(job_id)

    def _next(self, lane: Lane) -> tuple[str, Callable[[], None]] | None:
        with self._lock:
            if self._waiting[lane]:
                return self._waiting[lane].popleft()
            self._running[lane] -= 1
            return None
