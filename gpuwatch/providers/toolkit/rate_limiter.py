"""A rate limiter: the minimum time between two requests of a class, for all threads of this process."""

from __future__ import annotations

import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

_MIN_SLEEP_S: Final = 0.001
_MAX_URGENT_IN_A_ROW: Final = 4  # then one non-urgent request: a waiting sweep gets a fifth of the turns
_Ticket = tuple[bool, int]  # (is not urgent, number of the call)


class WaitStopped(Exception):
    """The wait ended because gpuwatch is stopping; nothing was sent."""


class RequestHeld(Exception):
    """The class is held for longer than the caller waits; nothing was sent."""

    def __init__(self, remaining_s: float) -> None:
        super().__init__(f"held for {remaining_s:.0f} s")
        self.remaining_s = remaining_s


class RateLimiter:
    """Allows one request every `intervals[kind]` seconds, in the order of the calls, urgent ones first.

    Urgent requests never take all turns: after four of them in a row the next turn goes to a non-urgent one.

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
        self._next_slot_at: dict[str, float] = {}
        self._held_until: dict[str, float] = {}
        self._urgent_in_a_row: dict[str, int] = {}
        self._waiting: dict[str, list[_Ticket]] = {}
        self._call_numbers = itertools.count()

    def hold(self, kind: str, seconds: float) -> None:
        """Hold a class for a duration; a longer hold stays."""
        with self._lock:
            self._held_until[kind] = max(self._held_until.get(kind, 0.0), self._monotonic() + seconds)

    def release(self, kind: str) -> None:
        """End the hold of a class."""
        with self._lock:
            self._held_until.pop(kind, None)

    def wait(self, kind: str, urgent: bool = False, max_hold_s: float = math.inf) -> float:
        """Wait until a request is allowed; the caller then sends it at once.

        Args:
            max_hold_s: how long to wait for a hold to end.

        Returns:
            Seconds waited.

        Raises:
            WaitStopped: gpuwatch is stopping.
            RequestHeld: the class is held for longer.
        """
        started_at = self._monotonic()
        ticket = (not urgent, next(self._call_numbers))
        with self._lock:
            self._waiting.setdefault(kind, []).append(ticket)
        try:
            while (remaining_s := self._wait_s(kind, ticket, max_hold_s)) > 0:
                self._sleep(max(remaining_s, _MIN_SLEEP_S))
                if self._stop.is_set():
                    raise WaitStopped
        finally:
            with self._lock:
                self._waiting[kind].remove(ticket)
        return self._monotonic() - started_at

    def _wait_s(self, kind: str, ticket: _Ticket, max_hold_s: float) -> float:
        """Return seconds until this ticket may try again; 0: now."""
        with self._lock:
            interval_s, now = self._intervals.get(kind, 0.0), self._monotonic()
            held_s = self._held_until.get(kind, now) - now
            if held_s > max_hold_s:
                raise RequestHeld(held_s)
            queue_position = list(self._queue_order(kind)).index(ticket)
            remaining_s = max(self._next_slot_at.get(kind, now) - now, held_s) + queue_position * interval_s
            if queue_position and remaining_s <= 0:
                return _MIN_SLEEP_S
            if remaining_s <= 0:
                self._next_slot_at[kind] = now + interval_s
                self._urgent_in_a_row[kind] = 0 if ticket[0] else self._urgent_in_a_row.get(kind, 0) + 1
            return max(remaining_s, 0.0)

    def _queue_order(self, kind: str) -> Iterator[_Ticket]:
        """Return the waiting tickets in the order of their turns, if nobody joins them."""
        urgent = deque(sorted(ticket for ticket in self._waiting[kind] if not ticket[0]))
        non_urgent = deque(sorted(ticket for ticket in self._waiting[kind] if ticket[0]))
        in_a_row = self._urgent_in_a_row.get(kind, 0)
        while urgent or non_urgent:
            is_non_urgent_turn = non_urgent and (not urgent or in_a_row >= _MAX_URGENT_IN_A_ROW)
            in_a_row = 0 if is_non_urgent_turn else in_a_row + 1
            yield (non_urgent if is_non_urgent_turn else urgent).popleft()
