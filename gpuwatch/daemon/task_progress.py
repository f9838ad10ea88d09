"""The progress of periodic tasks: when each last succeeded, and which hang or keep failing.

It is the source of the watchdog and of alerts. It has no lock and no I/O: a task that hangs, a missing database or a
full disk cannot delay its callers.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import FrameType

import msgspec

from gpuwatch.errors import GpuwatchError, PartlyDone

HANG_TIMEOUT_S = 300.0  # beyond the interval, unless a task declares more
MAX_FAILURES = 3  # consecutive failures


class PeriodicTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that runs at an interval, never twice at the same time.

    Attributes:
        is_essential: without its progress the daemon does not do its work, so the watchdog is not fed.
        progress_within_s: longest time without progress; None: its interval plus five minutes.
        steps: counts the steps of a long run; each step is progress.
        on_every_host: whether a standby runs it, too; everything else is the leader's.
    """

    name: str
    run: Callable[[], object]
    every_s: float
    jitter_s: float = 0.0
    is_essential: bool = False
    progress_within_s: float | None = None
    steps: Callable[[], int] = lambda: 0
    on_every_host: bool = False

    @property
    def max_silence_s(self) -> float:
        """The longest acceptable time without progress."""
        return self.every_s + HANG_TIMEOUT_S if self.progress_within_s is None else self.progress_within_s


class FaultKind(StrEnum):
    """How a task fails to do its work."""

    HANGS = "hangs"
    FAILS = "fails"


class TaskFault(msgspec.Struct, frozen=True, kw_only=True):
    """A task that hangs or keeps failing.

    Attributes:
        since: its last success, or its first start.
        cause: the error in one line, or the place where it waits.
        stack: that place as a traceback; empty for a failure, whose traceback is in the log.
    """

    task: str
    kind: FaultKind
    since: datetime
    cause: str
    failures: int = 0
    stack: str = ""


class _State(msgspec.Struct, frozen=True):
    """The state of one task. Replaced as a whole, so that a reader never sees a partial change."""

    since: datetime  # the last success, or the start
    progress_s: float  # monotonic
    failures: int = 0  # consecutive failures by a defect
    error: str = ""  # of the last failure
    thread_id: int | None = None  # thread of the current run


class TaskProgress:
    """Counts the runs of periodic tasks. The runs of each task are sequential; any thread may read.

    A run that ends with a `GpuwatchError` is progress, but no success: its text names a fault outside gpuwatch, which
    is reported elsewhere. A restart would not help, and without a database it could not even start.

    Args:
        now: the wall clock.
        monotonic: monotonic seconds.
    """

    def __init__(self, now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._now = now
        self._monotonic = monotonic
        self._tasks: Mapping[str, PeriodicTask] = {}
        self._states: dict[str, _State] = {}
        self._successes: dict[str, tuple[int, datetime, float]] = {}  # by task: count, last success by both clocks
        self._thread_rounds: dict[str, datetime] = {}  # of threads that are not periodic tasks
        self._steps: dict[str, tuple[int, float]] = {}  # by task: its steps, and when that number was first seen

    def start(self, tasks: Sequence[PeriodicTask]) -> None:
        """Replace all earlier tasks by these. Last successes of the same names stay."""
        now, tick_s = self._now(), self._monotonic()
        self._states = {task.name: _State(now, tick_s) for task in tasks}
        self._tasks = {task.name: task for task in tasks}
        self._steps = {}
        self._successes = {name: success for name, success in self._successes.items() if name in self._tasks}

    @property
    def last_success(self) -> Mapping[str, datetime]:
        """When each task last ended a run without an error; without tasks that never did."""
        return {name: at for name, (_, at, _) in dict(self._successes).items()}

    @property
    def rounds(self) -> Mapping[str, datetime]:
        """When each other thread last did its work."""
        return dict(self._thread_rounds)

    def round_done(self, thread: str) -> None:
        """Note that another thread did its work once."""
        self._thread_rounds[thread] = self._now()

    def successes(self, task: str) -> int:
        """Return how many runs of a task ended without an error."""
        return self._successes[task][0] if task in self._successes else 0

    def success_age_s(self, task: str) -> float | None:
        """Return the seconds since its last run without an error, or None."""
        success = self._successes.get(task)
        return None if success is None else self._monotonic() - success[2]

    @property
    def is_started(self) -> bool:
        """Whether the tasks are known; before `start` there are none."""
        return bool(self._tasks)

    def has_task(self, task: str) -> bool:
        """Whether there is such a task."""
        return task in self._tasks

    def is_essential(self, task: str) -> bool:
        """Whether the watchdog depends on it."""
        return task in self._tasks and self._tasks[task].is_essential

    def run(self, task: PeriodicTask) -> None:
        """Run it once. Raises its errors."""
        self._update_state(task, thread_id=threading.get_ident())
        try:
            task.run()
        except GpuwatchError:
            self._update_state(task, progress_s=self._monotonic(), thread_id=None)
            raise
        except Exception as error:
            failures = self._states[task.name].failures + 1 if task.name in self._states else 1
            self._update_state(task, failures=failures, error=_error_line(error), thread_id=None)
            if isinstance(error, PartlyDone):  # reported like any failure, but a restart would do more harm than good
                self._update_state(task, progress_s=self._monotonic())
            raise
        now = self._now()
        self._successes[task.name] = (self.successes(task.name) + 1, now, self._monotonic())
        self._update_state(task, since=now, progress_s=self._monotonic(), failures=0, error="", thread_id=None)

    def left_out(self, task: PeriodicTask) -> None:
        """Note that a run was left out on purpose: neither a success nor a hang."""
        self._update_state(task, progress_s=self._monotonic())

    def stalled(self, tick_s: float) -> list[str]:
        """Return the essential tasks without progress for too long; if there are any, the watchdog is not fed.

        Args:
            tick_s: now, on the monotonic clock.
        """
        return [task.name for task in self._tasks.values() if task.is_essential and self._is_late(task, tick_s)]

    def faults(self, tick_s: float) -> list[TaskFault]:
        """Return every task that hangs or has failed three consecutive times.

        Args:
            tick_s: now, on the monotonic clock.
        """
        faults = [self._fault(task, tick_s) for task in self._tasks.values()]
        return [fault for fault in faults if fault is not None]

    def _fault(self, task: PeriodicTask, tick_s: float) -> TaskFault | None:
        state = self._states[task.name]
        if state.failures >= MAX_FAILURES:
            return TaskFault(
                task=task.name, kind=FaultKind.FAILS, since=state.since, cause=state.error, failures=state.failures
            )
        if (state.thread_id is not None or not state.failures) and self._is_late(task, tick_s):
            frame = None if state.thread_id is None else sys._current_frames().get(state.thread_id)
            stack = "" if frame is None else "".join(traceback.format_stack(frame))
            return TaskFault(
                task=task.name, kind=FaultKind.HANGS, since=state.since, cause=_innermost_place(frame), stack=stack
            )
        return None

    def _is_late(self, task: PeriodicTask, tick_s: float) -> bool:
        steps, progress_s = task.steps(), self._states[task.name].progress_s
        if steps != self._steps.get(task.name, (0, 0.0))[0]:
            self._steps[task.name] = (steps, tick_s)
        if task.name in self._steps:
            progress_s = max(progress_s, self._steps[task.name][1])
        return tick_s - progress_s > task.max_silence_s

    def _update_state(self, task: PeriodicTask, **changes: object) -> None:
        """Change the state, except for an earlier task of the same name that still hangs after a reload."""
        if self._tasks.get(task.name) is task:
            self._states[task.name] = msgspec.structs.replace(self._states[task.name], **changes)


def error_place(error: BaseException) -> str:
    """Return the line that raised the error, or its cause."""
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    return _short_place(frames[-1].filename, frames[-1].lineno) if frames else "an unknown place"


def _error_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]} ({error_place(error)})"


def _innermost_place(frame: FrameType | None) -> str:
    """Describe the innermost place in gpuwatch's own code."""
    if frame is None:
        return "it was not started again"
    own_frames = [entry for entry in traceback.extract_stack(frame) if "/gpuwatch/" in entry.filename]
    if not own_frames:
        return "it waits"
    return f"it waits in {_short_place(own_frames[-1].filename, own_frames[-1].lineno)}, {own_frames[-1].name}"


def _short_place(filename: str, line: int | None) -> str:
    _, separator, relative_path = filename.rpartition("/gpuwatch/")
    return f"{f'gpuwatch/{relative_path}' if separator else filename.rpartition('/')[2]}:{line}"
