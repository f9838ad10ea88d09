"""The minimum time between two requests of a class, for all threads of this process.

After a provider's refusals whole classes are held back, across restarts, too.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gpuwatch.errors import ProviderError, QuotaSpent, RateLimited
from gpuwatch.ports.market import Hold, SearchTurns

if TYPE_CHECKING:
    from gpuwatch.ports.declarations import Tools

_PROBE_EVERY_S: Final = 3600.0  # while a quota is used up
_MAX_HOLD_S: Final = 3600.0  # of a hold: limits the effect of a wrong clock
_MAX_LIST_HOLD_S: Final = 60.0  # running instances stay unlisted for no longer, whatever the provider requests
_MAX_ORDER_HOLD_S: Final = 10.0  # a destroy must not wait while an instance costs money
_MAX_BACKOFF_S: Final = 60.0  # while refusals without Retry-After repeat
_MIN_HOLD_S: Final = 1.0
_MIN_STORED_S: Final = 2.0  # shorter holds expire during a restart
SEARCH: Final = "search"
_MIN_SLEEP_S: Final = 0.001
_ASK_AGAIN_S: Final = 1.0  # while it is unknown when the next turn begins
_LATE_SHARE: Final = 0.25  # of the interval: how late a turn may be used,
_LATE_S: Final = 0.1  # or this late
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
        turns: of searches, whose pace other processes may share.
    """

    def __init__(
        self,
        intervals: Mapping[str, float],
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
        stop: threading.Event,
        turns: SearchTurns | None = None,
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
        self._turns = turns
        self._turn_at_s: float | None = None  # the beginning of the turn that the next search has
        self._turn_lock = threading.Lock()  # held while a turn is taken; `_lock` never waits for the store

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
            if remaining_s > 0:
                return remaining_s
            turns = self._turns if kind == SEARCH and interval_s else None
            if turns is None or not turns.is_shared or self._uses_turn(now, interval_s):
                self._next_slot_at[kind] = now + interval_s
                self._urgent_in_a_row[kind] = 0 if ticket[0] else self._urgent_in_a_row.get(kind, 0) + 1
                return 0.0
        return self._take_turn(turns, interval_s)

    def _uses_turn(self, now: float, interval_s: float) -> bool:
        """Whether this search has a turn. One that it would use late is given up: the next one is another process's."""
        began_s, self._turn_at_s = self._turn_at_s, None
        return began_s is not None and now - began_s <= max(interval_s * _LATE_SHARE, _LATE_S)

    def _take_turn(self, turns: SearchTurns, interval_s: float) -> float:
        """Take a turn for the next search, whoever of this process sends it; return when to try again."""
        with self._turn_lock:
            if self._turn_at_s is not None:  # another thread took it meanwhile
                return _MIN_SLEEP_S
            wait_s = turns.take(interval_s)
            if wait_s is None:
                return _ASK_AGAIN_S
            with self._lock:
                self._turn_at_s = self._next_slot_at[SEARCH] = self._monotonic() + wait_s
        return _MIN_SLEEP_S

    def _queue_order(self, kind: str) -> Iterator[_Ticket]:
        """Return the waiting tickets in the order of their turns, if nobody joins them."""
        urgent = deque(sorted(ticket for ticket in self._waiting[kind] if not ticket[0]))
        non_urgent = deque(sorted(ticket for ticket in self._waiting[kind] if ticket[0]))
        in_a_row = self._urgent_in_a_row.get(kind, 0)
        while urgent or non_urgent:
            is_non_urgent_turn = non_urgent and (not urgent or in_a_row >= _MAX_URGENT_IN_A_ROW)
            in_a_row = 0 if is_non_urgent_turn else in_a_row + 1
            yield (non_urgent if is_non_urgent_turn else urgent).popleft()


class Holds:
    """The holds of one provider: sets them in its rate limiter, and stores them."""

    def __init__(self, name: str, tools: Tools, limiter: RateLimiter, intervals_s: Mapping[str, float]) -> None:
        self._name = name
        self._tools = tools
        self._limiter = limiter
        self._intervals_s = intervals_s
        self._lock = threading.Lock()
        self._is_loaded = tools.holds is None
        self._current: dict[str, Hold] = {}
        self._set_at_s: dict[str, float] = {}  # by class, on the clock of the limiter
        self._refusals_in_a_row: dict[str, int] = {}  # refusals in a row, by class

    def load(self) -> None:
        """Take over the holds of an earlier process, once."""
        with self._lock:
            if self._is_loaded or self._tools.holds is None:
                return
            self._is_loaded = True
            now = self._tools.now()
            for hold in self._tools.holds.load(self._name):
                remaining_s = min(
                    (hold.until - now).total_seconds(), (hold.until - hold.set_at).total_seconds(), _MAX_HOLD_S
                )
                if remaining_s > 0:
                    self._current[hold.kind] = hold
                    self._limiter.hold(hold.kind, remaining_s)

    def on_read_refused(self, kind: str, error: ProviderError) -> None:
        """Handle a refused request that only reads: hold back its whole class."""
        if isinstance(error, QuotaSpent):
            remaining_s = (error.resets_at - self._tools.now()).total_seconds()
            self._limiter.release(kind)  # the probe's own hold
            self._hold(kind, min(max(remaining_s, _MIN_HOLD_S), _PROBE_EVERY_S), error)
        elif isinstance(error, RateLimited):
            seconds = self._backoff_s(kind) if error.retry_after_s is None else error.retry_after_s
            self._hold(kind, min(seconds, _MAX_HOLD_S if kind == SEARCH else _MAX_LIST_HOLD_S), error)

    def on_order_refused(self, kind: str, retry_after_s: float | None) -> None:
        """Handle a rate-limited change: the next one of its class waits a little, and is then sent."""
        interval_s = max(self._intervals_s.get(kind, 0.0), _MIN_HOLD_S)
        self._limiter.hold(kind, min(retry_after_s or interval_s, _MAX_ORDER_HOLD_S))

    def on_send(self, kind: str) -> None:
        """Prepare for a request. While the quota is used up, only one probe is sent per hour."""
        hold = self._current.get(kind)
        if hold is not None and hold.quota_resets_at is not None:
            remaining_s = (hold.quota_resets_at - self._tools.now()).total_seconds()
            self._limiter.hold(kind, min(remaining_s, _PROBE_EVERY_S))

    def on_complete(self, kind: str, sent_at_s: float) -> None:
        """Handle a completed request: release its class, unless a refusal arrived after the request was sent."""
        if kind in self._current and self._set_at_s.get(kind, 0.0) < sent_at_s:
            del self._current[kind]
            self._refusals_in_a_row.pop(kind, None)
            self._limiter.release(kind)

    def error(self, kind: str, remaining_s: float) -> ProviderError:
        """Return the error of a request that is not sent: the reason, and until when."""
        hold = self._current.get(kind)
        reason = f"{self._name}: too many requests" if hold is None else hold.reason
        until = self._tools.now() + timedelta(seconds=remaining_s) if hold is None else hold.until
        text = f"{reason}; no requests before {until:%Y-%m-%d %H:%M:%S} UTC"
        if hold is not None and hold.quota_resets_at is not None:
            return QuotaSpent(text, hold.quota_resets_at)
        return RateLimited(text, remaining_s)

    def _hold(self, kind: str, seconds: float, error: ProviderError) -> None:
        now = self._tools.now()
        self._current[kind] = hold = Hold(
            provider=self._name,
            kind=kind,
            set_at=now,
            until=now + timedelta(seconds=seconds),
            reason=str(error),
            quota_resets_at=error.resets_at if isinstance(error, QuotaSpent) else None,
        )
        self._set_at_s[kind] = self._tools.monotonic()
        self._limiter.hold(kind, seconds)
        if self._tools.holds is not None and seconds >= _MIN_STORED_S:
            self._tools.holds.save(hold)

    def _backoff_s(self, kind: str) -> float:
        """Return the back-off: one interval of the class, doubled with each further refusal."""
        refusals_in_a_row = self._refusals_in_a_row[kind] = self._refusals_in_a_row.get(kind, -1) + 1
        initial_s = max(self._intervals_s.get(kind, 0.0), _MIN_HOLD_S)
        return min(initial_s * 2.0 ** min(refusals_in_a_row, 10), max(initial_s, _MAX_BACKOFF_S))
