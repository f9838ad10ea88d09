"""A rate limiter: the least time between two requests of one class, for all threads of this process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Final

_SOONEST_LOOK_S: Final = 0.001


class Stopped(Exception):
    """The wait ended because gpuwatch is stopping; nothing was sent."""


class RateLimiter:
    """Allows one request every `intervals[kind]` seconds: urgent ones first, else in the order of their calls.

    Args:
        intervals: seconds by class of request; a class without an entry is not limited.
        monotonic: seconds.
        sleep: waits; it may return early.
        stop: ends every wait when set.
    """

    def __init__(
        self,
        intervals: Mapping[str, float],
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
        stop: threading.Event,
    ) -> None:
        self._intervals = intervals
        self._monotonic = monotonic
        self._sleep = sleep
        self._stop = stop
        self._lock = threading.Lock()
        self._free_at: dict[str, float] = {}
        self._waiting: dict[str, list[tuple[bool, int]]] = {}
        self._numbers = itertools.count()

    def wait(self, kind: str, urgent: bool = False) -> float:
        """Wait until a request is allowed; send it at once.

        Returns:
            Seconds waited.

        Raises:
            Stopped: gpuwatch is stopping.
        """
        began = self._monotonic()
        ticket = (not urgent, next(self._numbers))
        with self._lock:
            self._waiting.setdefault(kind, []).append(ticket)
        try:
            while (left_s := self._wait_s(kind, ticket)) > 0:
                self._sleep(max(left_s, _SOONEST_LOOK_S))
                if self._stop.is_set():
                    raise Stopped
        finally:
            with self._lock:
                self._waiting[kind].remove(ticket)
        return self._monotonic() - began

    def _wait_s(self, kind: str, ticket: tuple[bool, int]) -> float:
        """Seconds until this ticket may try again; 0: it is allowed now."""
        with self._lock:
            interval_s = self._intervals.get(kind, 0.0)
            ahead = sum(1 for other in self._waiting[kind] if other < ticket)
            now = self._monotonic()
            left_s = self._free_at.get(kind, now) - now + ahead * interval_s
            if ahead and left_s <= 0:
                return _SOONEST_LOOK_S
            if left_s <= 0:
                self._free_at[kind] = now + interval_s
            return max(left_s, 0.0)
