"""What evaluation, launching and reconciliation share: which watches may rent more, what is being requested."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from gpuwatch.domain.launches.launch import Launch, LaunchRefusal, RefusalReason

# The owner lifts these at any moment. A checklist may stay open for days: polling at full pace meanwhile would use up
# the day's rows.
_MAY_END_ANY_MOMENT = {RefusalReason.PAUSED, RefusalReason.BREAKER}


def _nothing(_task: str) -> None:
    """No scheduler: nothing to run."""


class LaunchSlots:
    """Free slots by watch, as the last reservation left them, and the launches whose request is under way.

    Safe to use from several threads.

    Args:
        run_now: runs a periodic task, by its name, ahead of its time.
        when_freed: the tasks to run when a slot becomes free.
    """

    def __init__(self, run_now: Callable[[str], None] = _nothing, when_freed: Sequence[str] = ()) -> None:
        self.run_now = run_now
        self._when_freed = tuple(when_freed)
        self._full: set[str] = set()  # watches that could start no further launch when they last tried
        self._held: set[str] = set()  # watches that could start none at all, whatever was on offer
        self._in_flight: set[str] = set()
        self._lock = threading.Lock()

    def is_full(self, watch: str) -> bool:
        """Did its last reservation find no free slot, or no money?"""
        return watch in self._full

    def is_held(self, watch: str) -> bool:
        """Did anything prevent its last reservation: a pause, an empty balance?"""
        return watch in self._held

    def note_reservation(self, watch: str, refusal: LaunchRefusal | None) -> None:
        """Remember how the newest reservation ended; None: every candidate was reserved."""
        self._held.discard(watch) if refusal is None else self._held.add(watch)
        if refusal is None:
            self._full.discard(watch)
        elif refusal.reason not in _MAY_END_ANY_MOMENT:
            self._full.add(watch)

    def hold(self, watch: str) -> None:
        """There were matches, and none of them can be rented now."""
        self._held.add(watch)

    def forget_held(self, watches: Iterable[str]) -> None:
        """There was no match: whether a launch would be held is unknown."""
        self._held.difference_update(watches)

    def free(self, watch: str) -> None:
        """A launch of this watch failed or is over: its slot is free again."""
        self._full.discard(watch)
        self._held.discard(watch)

    def launch_over(self, launch: Launch) -> None:
        """Free the slot and poll at once: the watch may take the next offer."""
        self.free(launch.watch)
        for task in self._when_freed:
            self.run_now(task)

    def in_flight(self) -> frozenset[str]:
        """Launches being requested at this moment: nobody else may touch them."""
        with self._lock:
            return frozenset(self._in_flight)

    @contextmanager
    def requesting(self, launch: Launch) -> Iterator[None]:
        """Marks a launch as in flight inside the block."""
        with self._lock:
            self._in_flight.add(launch.launch_id)
        try:
            yield
        finally:
            with self._lock:
                self._in_flight.discard(launch.launch_id)
