"""Threads for the rounds of jobs: a slow machine holds up no other, and one job never has two rounds at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger(__name__)


class JobThreads:
    """Runs rounds.

    Args:
        workers: threads; 0: each round runs at once, in the caller's thread.
    """

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="job") if workers else None
        self._lock = threading.Lock()
        self._busy: set[str] = set()

    def start(self, job_id: str, step: Callable[[], None]) -> bool:
        """Begin a round; False: the last one of this job still runs."""
        if self._pool is None:
            step()
            return True
        with self._lock:
            if job_id in self._busy:
                return False
            self._busy.add(job_id)
        self._pool.submit(self._guarded, job_id, step)
        return True

    def close(self) -> None:
        """Start nothing more; what runs is repeated by the next process."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _guarded(self, job_id: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            log.exception("a round of job %s failed; the next one comes", job_id)
        finally:
            with self._lock:
                self._busy.discard(job_id)
