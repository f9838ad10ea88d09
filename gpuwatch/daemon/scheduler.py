"""The scheduler: runs each periodic task at its interval. Only this module uses APScheduler.

It closes three gaps of APScheduler 3.11. After the clock steps back, the next run is far in the future and nothing
runs: a thread compares the wall clock with the monotonic one and reschedules every task after a jump. After it steps
forward, APScheduler lists each missed run: `_EvenTrigger` skips them. Runs that APScheduler skips are invisible to the
task: listeners log them. Tasks exist only in memory, and are created at every start.

The keeper and the supervisor must work while the scheduler hangs: each has a thread of its own (`repeating_thread`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from gpuwatch.daemon.task_progress import PeriodicTask, TaskProgress, error_place
from gpuwatch.errors import GpuwatchError
from gpuwatch.storage.setup.daemon_lease import NO_LEASE, Lease

log = logging.getLogger(__name__)


CLOCK_JUMP_S = 5.0  # a larger difference to the monotonic clock means a jump or a sleep of the machine
CHECK_CLOCK_EVERY_S = 2.0


class _EvenTrigger(IntervalTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Skips missed runs in one step. APScheduler lists each of them, and the list of a year takes gigabytes."""

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        if previous_fire_time is not None and previous_fire_time < now:
            previous_fire_time += (now - previous_fire_time) // self.interval * self.interval
        next_fire_time: datetime | None = super().get_next_fire_time(previous_fire_time, now)
        return next_fire_time


class TaskScheduler:
    """Runs periodic tasks on threads until it is stopped. A task that hangs delays no other one.

    Args:
        now: the wall clock.
        monotonic: monotonic seconds.
        progress: counts the runs; None: runs are not counted.
        lease: only its holder runs tasks that are the leader's.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        check_clock_every_s: float = CHECK_CLOCK_EVERY_S,
        progress: TaskProgress | None = None,
        lease: Lease = NO_LEASE,
    ) -> None:
        self._lease = lease
        self._progress = progress or TaskProgress(now, monotonic)
        self._tasks: Sequence[PeriodicTask] = ()
        self._now = now
        self._monotonic = monotonic
        self._check_clock_every_s = check_clock_every_s
        self._stopped = threading.Event()
        self._clock_check = threading.Thread(target=self._check_clock, name="clock-check", daemon=True)
        self._scheduler = BackgroundScheduler(timezone="UTC")
        for logger_name in ("apscheduler.executors.default", "apscheduler.scheduler"):
            logging.getLogger(logger_name).setLevel(logging.CRITICAL)  # `_TaskLog` reports the same in one line
        events = EVENT_JOB_EXECUTED | EVENT_JOB_ERROR | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES
        self._scheduler.add_listener(_TaskLog().log_event, events)

    def start(self, tasks: Sequence[PeriodicTask]) -> None:
        """Run every task of this host at once, then at its interval."""
        tasks = [task for task in tasks if task.on_every_host or self._lease.leads]
        self._tasks = tasks
        self._progress.start(tasks)
        self._scheduler.add_executor(ThreadPoolExecutor(max_workers=len(tasks) + 1))
        for task in tasks:
            self._scheduler.add_job(
                partial(self._run, task),
                _EvenTrigger(seconds=task.every_s, jitter=task.jitter_s or None, timezone="UTC"),
                id=task.name,
                name=task.name,
                coalesce=True,
                max_instances=1,
                misfire_grace_time=None,
                next_run_time=self._now(),
            )
        self._scheduler.start()
        self._clock_check.start()

    def stop(self, wait_s: float) -> None:
        """Start no more runs; running ones get `wait_s` to finish."""
        self._stopped.set()
        self._scheduler.pause()
        shutdown = threading.Thread(target=self._scheduler.shutdown, kwargs={"wait": True}, daemon=True)
        shutdown.start()
        shutdown.join(wait_s)
        if shutdown.is_alive():
            log.warning("a task did not finish within %.0f s; the next start continues its work", wait_s)

    def run_now(self, name: str) -> None:
        """Run a task now instead of at its next time. Does nothing before `start`."""
        if not self._stopped.is_set() and self._scheduler.get_job(name):
            self._scheduler.modify_job(name, next_run_time=self._now())

    def _run(self, task: PeriodicTask) -> None:
        if task.on_every_host or self._lease.is_held:
            self._progress.run(task)
        else:
            self._progress.left_out(task)

    def _check_clock(self) -> None:
        offset = self._offset()
        while not self._stopped.wait(self._check_clock_every_s):
            jump_s = self._offset() - offset
            if abs(jump_s) > CLOCK_JUMP_S:
                offset += jump_s
                log.warning("the clock jumped by %+.0f s; all tasks are rescheduled", jump_s)
                for task in self._tasks:
                    self.run_now(task.name)

    def _offset(self) -> float:
        return self._now().timestamp() - self._monotonic()


class _TaskLog:
    """Logs the events of tasks: a failure once, its recovery once, a traceback once for each cause.

    `RepeatedLines` counts repetitions.
    """

    def __init__(self) -> None:
        self._last_error: dict[str, str] = {}  # by task
        self._logged_traces: set[tuple[str, str]] = set()  # (task, cause) whose traceback was logged

    def log_event(self, event: JobEvent) -> None:
        task = event.job_id
        if event.code == EVENT_JOB_EXECUTED:
            if self._last_error.pop(task, None):
                log.info("task %s works again", task)
        elif event.code == EVENT_JOB_ERROR and isinstance(event.exception, GpuwatchError):
            if self._last_error.get(task) != str(event.exception):  # once, not every second
                log.error("task %s: %s", task, event.exception)
            self._last_error[task] = str(event.exception)
        elif event.code == EVENT_JOB_ERROR:
            self._log_defect(task, event.exception)
        elif event.code == EVENT_JOB_MISSED:
            log.warning("task %s missed a run", task)
        else:
            # expected: a round waits for its turns at the provider. `TaskSupervisor` reports a task that hangs.
            log.debug("task %s is still running; skipped this run", task)

    def _log_defect(self, task: str, error: BaseException) -> None:
        """Log it, once per cause with the traceback; the text varies: a cause is the error's type and place."""
        cause = (task, f"{type(error).__name__} in {error_place(error)}")
        self._last_error[task] = cause[1]
        if cause in self._logged_traces:
            log.error("task %s failed again: %s", *cause)
        else:
            self._logged_traces.add(cause)
            log.error("task %s failed; retrying at its next run", task, exc_info=error)


# --- threads beside the scheduler -------------------------------------------------------------------------------------


@contextmanager
def repeating_thread(name: str, action: Callable[[], object], every_s: float) -> Iterator[None]:
    """Do it at once, and then at this interval; the end of the block does not wait for it."""
    stopped = threading.Event()

    def repeat() -> None:
        while not stopped.is_set():
            try:
                action()
            except Exception:
                log.exception("%s failed; retrying", name)
            stopped.wait(every_s)

    threading.Thread(target=repeat, name=name, daemon=True).start()
    try:
        yield
    finally:
        stopped.set()
