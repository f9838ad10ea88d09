"""Threads for the rounds of jobs: a slow machine delays no other, and a job never has two rounds at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class JobThreads:
    """Runs rounds. The process does not wait for them at exit: the next process repeats an interrupted one.

    Args:
        workers: maximum number of parallel rounds; 0: each round runs in the caller's thread.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._closed = False

    def start(self, job_id: str, step: Callable[[], None]) -> bool:
        """Begin a round; False: the previous round of this job still runs, or too many others do."""
        if not self._workers:
            step()
            return True
        with self._lock:
            if self._closed or job_id in self._busy or len(self._busy) >= self._workers:
                return False
            self._busy.add(job_id)
        threading.Thread(target=self._guarded, args=(job_id, step), name=f"job {job_id}", daemon=True).start()
        return True

    def close(self) -> None:
        """Start nothing more."""
        self._closed = True

    def _guarded(self, job_id: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            log.exception("a round of job %s failed; retrying in the next one", job_id)
        finally:
            with self._lock:
                self._busy.discard(job_id)
