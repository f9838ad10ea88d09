"""State shared by evaluation, launching and reconciliation: which watches may rent more, and requests in flight."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from gpuwatch.domain.launches.launch import Launch, LaunchRefusal, RefusalReason

# The owner can lift these at any moment, and a cooldown ends soon. A checklist may stay open for days: polling at full
# pace would use up the day's rows.
_MAY_END_ANY_MOMENT = {RefusalReason.PAUSED, RefusalReason.BREAKER, RefusalReason.COOLING}


class LaunchSlots:
    """Free slots by watch, as of the last reservation, and the launches whose requests are in flight.

    Thread-safe.

    Args:
        run_now: runs a periodic task, by name, ahead of its time.
        when_freed: the tasks to run when a slot becomes free.
    """

    def __init__(self, run_now: Callable[[str], None] = lambda task: None, when_freed: Sequence[str] = ()) -> None:
        self.run_now = run_now
        self._when_freed = tuple(when_freed)
        self._full: set[str] = set()  # watches that could start no further launch at the last attempt
        self._blocked: set[str] = set()  # watches that could start none at all, whatever was on offer
        self._in_flight: set[str] = set()
        self._alive: dict[str, Launch] = {}  # as of the last `note_alive`, by id
        self._lock = threading.Lock()

    def is_full(self, watch: str) -> bool:
        """Whether its last reservation found no free slot or no money."""
        return watch in self._full

    def is_blocked(self, watch: str) -> bool:
        """Whether anything, such as a pause or an empty balance, blocked its last reservation."""
        return watch in self._blocked

    def note_reservation(self, watch: str, refusal: LaunchRefusal | None) -> None:
        """Store the result of the newest reservation; None: every candidate was reserved."""
        self._blocked.discard(watch) if refusal is None else self._blocked.add(watch)
        if refusal is None:
            self._full.discard(watch)
        elif refusal.reason not in _MAY_END_ANY_MOMENT:
            self._full.add(watch)

    def hold(self, watch: str) -> None:
        """Note that there were matches, but none can be rented now."""
        self._blocked.add(watch)

    def unblock(self, watches: Iterable[str]) -> None:
        """Note that there was no match, so that it is unknown whether a launch would be blocked."""
        self._blocked.difference_update(watches)

    def free(self, watch: str) -> None:
        """Note that a launch of this watch failed or ended, so that its slot is free."""
        self._full.discard(watch)
        self._blocked.discard(watch)

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget all other watches."""
        self._full.intersection_update(watches)
        self._blocked.intersection_update(watches)

    def launch_over(self, launch: Launch) -> None:
        """Free the slot and poll at once, because the watch may take the next offer."""
        self._alive.pop(launch.launch_id, None)
        self.free(launch.watch)
        for task in self._when_freed:
            self.run_now(task)

    def note_alive(self, alive: Iterable[Launch]) -> None:
        """Free the slots of launches that another process has ended since the last call: a command, another host."""
        before, self._alive = self._alive, {launch.launch_id: launch for launch in alive}
        for launch_id in before.keys() - self._alive.keys():
            self.launch_over(before[launch_id])

    def in_flight(self) -> frozenset[str]:
        """Return the launches whose requests are in flight: no other code may change them."""
        with self._lock:
            return frozenset(self._in_flight)

    @contextmanager
    def requesting(self, launch: Launch) -> Iterator[None]:
        """Mark a launch as in flight inside the block."""
        with self._lock:
            self._in_flight.add(launch.launch_id)
        try:
            yield
        finally:
            with self._lock:
                self._in_flight.discard(launch.launch_id)
