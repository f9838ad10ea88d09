"""The marketplace's time: any callable that returns Unix seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable

Clock = Callable[[], float]


class ManualClock:
    """A clock that moves only by `advance`; for tests that skip hours."""

    def __init__(self, start: float = 1_795_219_200.0) -> None:
        self._now = start
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return the current time, Unix seconds."""
        with self._lock:
            return self._now

    def advance(self, seconds: float) -> float:
        """Move forward (or back, for a clock that jumps) and return the new time."""
        with self._lock:
            self._now += seconds
            return self._now
