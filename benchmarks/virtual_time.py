"""Time that passes only while all tasks wait: a day of real tasks, including threads, in seconds.

Each task runs on a thread of its own, as in the daemon, but one at a time: a task that sleeps hands over to the one
that is due next, and the clock jumps to that moment. Work takes no time; waiting takes exactly the requested time. The
same tasks and the same seed give the same day.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from gpuwatch.bootstrap import TimeSource
from gpuwatch.daemon.task_progress import PeriodicTask

_STUCK_AFTER_S = 60.0  # by the real clock, without a single hand-over


class TaskStuck(Exception):
    """A task waits for something other than this clock: no task can continue."""


class _Runner:
    """A thread's place in the queue."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.turn = threading.Semaphore(0)
        self.thread: threading.Thread | None = None


class VirtualTime:
    """A clock and the tasks that use it. The thread that created it is one of them.

    Args:
        start: the first moment; aware, UTC.
        seed: for the tasks' jitter.
    """

    def __init__(self, start: datetime, seed: int = 1) -> None:
        self._start = start
        self._passed_s = 0.0
        self._rng = random.Random(seed)
        self._due: list[tuple[float, int, _Runner]] = []
        self._numbers = itertools.count()
        self._main = self._running = _Runner("main")
        self._tasks: list[_Runner] = []
        self._moves = 0
        self._ended = False
        self._failure: BaseException | None = None

    # --- the clock ----------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """Return the wall clock: aware, UTC."""
        return self._start + timedelta(seconds=self._passed_s)

    def monotonic(self) -> float:
        """Return the seconds since the start."""
        return self._passed_s

    def unix(self) -> float:
        """Return Unix seconds, for the emulator."""
        return self._start.timestamp() + self._passed_s

    def sleep(self, seconds: float) -> None:
        """Wait, and let the others run meanwhile. After the end no task waits any more."""
        if self._ended:
            return
        me = self._running
        heapq.heappush(self._due, (self._passed_s + max(seconds, 0.0), next(self._numbers), me))
        self._hand_over(me)

    @property
    def source(self) -> TimeSource:
        """For `bootstrap`: the waiting task checks the event only when its wait is over."""
        return TimeSource(self.now, self.monotonic, lambda _, seconds: self.sleep(seconds))

    # --- the tasks ----------------------------------------------------------------------------------------------------

    @property
    def running(self) -> str:
        """Return the name of the current task."""
        return self._running.name

    def spawn(self, name: str, run: Callable[[], object]) -> None:
        """Start a task on a thread of its own, as soon as this one waits."""
        one = _Runner(name)
        one.thread = threading.Thread(target=self._live, args=(one, run), name=name, daemon=True)
        self._tasks.append(one)
        heapq.heappush(self._due, (self._passed_s, next(self._numbers), one))
        one.thread.start()

    def repeat(self, task: PeriodicTask) -> None:
        """Run a periodic task like the daemon's scheduler: at once, then at its interval; late runs are combined."""

        def run() -> None:
            due_s = self._passed_s
            while not self._ended:
                task.run()
                while due_s <= self._passed_s:  # runs that were due meanwhile are skipped, as with max_instances = 1
                    due_s += task.every_s + self._rng.uniform(-task.jitter_s, task.jitter_s)
                self.sleep(due_s - self._passed_s)

        self.spawn(task.name, run)

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Let time pass inside the block; at its end, let every task finish, one after the other.

        Raises:
            TaskStuck: a task waited for something else than this clock.
            Exception: the first error of any task.
        """
        try:
            yield
        finally:
            self._ended = True
            for task in self._tasks:
                self._running = task
                task.turn.release()
                if task.thread is not None:
                    task.thread.join(timeout=_STUCK_AFTER_S)
            self._running = self._main
        self._raise_failure()

    def _live(self, me: _Runner, run: Callable[[], object]) -> None:
        me.turn.acquire()
        try:
            run()
        except BaseException as error:  # raised again on the thread that created this clock
            self._failure = self._failure or error
            heapq.heappush(self._due, (self._passed_s, -1, self._main))
        if not self._ended:
            self._wake_next()

    def _hand_over(self, me: _Runner) -> None:
        if self._wake_next(me):
            return
        if me is not self._main:
            me.turn.acquire()
            return
        moves = self._moves
        while not me.turn.acquire(timeout=_STUCK_AFTER_S):
            if moves == self._moves:
                raise TaskStuck(f"{self._running.name} waits for something else than the virtual clock")
            moves = self._moves
        self._raise_failure()

    def _wake_next(self, me: _Runner | None = None) -> bool:
        """Let the task that is due next run; return whether that is `me`."""
        due_s, _, one = heapq.heappop(self._due)
        self._passed_s = max(self._passed_s, due_s)
        self._running = one
        self._moves += 1
        if one is me:
            return True
        one.turn.release()
        return False

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
