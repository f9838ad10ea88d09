"""Reports tasks that hang or fail: once with the cause, and again when they recover."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from gpuwatch.daemon.daemon_alerts import task_alert, task_recovery_alert
from gpuwatch.daemon.task_progress import TaskFault, TaskProgress
from gpuwatch.engine.alerts.alerts import outbox_alert
from gpuwatch.errors import StoreError
from gpuwatch.ports import Alert, AlertKind, OutboxAlert

log = logging.getLogger(__name__)

DELIVERY = "deliver"  # the task that delivers the outbox
REPORTED_WITHIN = timedelta(days=7)
_STACK_LINES = 40  # innermost lines
EarlierAlerts = Callable[[datetime], Sequence[Alert]]


class _Reported(NamedTuple):
    """When a task was reported, and its number of successes at that time."""

    at: datetime
    successes: int


class TaskSupervisor:
    """Compares the tasks' progress with what was reported to the owner. Not thread-safe.

    An earlier process may have reported a task before systemd restarted it: the stored alerts show that.

    Args:
        enqueue: puts an alert into the outbox; may raise StoreError.
        send_directly: sends an alert past the outbox, on every channel.
        read_alerts: returns stored alerts about the daemon, and recoveries, since a time, oldest first; may raise
            StoreError.
        now: the wall clock.
        monotonic: the same monotonic seconds that `progress` uses.
    """

    def __init__(
        self,
        progress: TaskProgress,
        *,
        enqueue: Callable[[OutboxAlert], object],
        send_directly: Callable[[Alert], None],
        read_alerts: EarlierAlerts,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._progress = progress
        self._enqueue = enqueue
        self._send_directly = send_directly
        self._read_alerts = read_alerts
        self._now = now
        self._monotonic = monotonic
        self._reported: dict[str, _Reported] = {}  # by task
        self._has_read_earlier = False

    def check(self) -> None:
        """Report changes."""
        now = self._now()
        faults = {fault.task: fault for fault in self._progress.faults(self._monotonic())}
        self._read_earlier(now)
        for task, fault in faults.items():
            if task not in self._reported:
                self._reported[task] = _Reported(now, self._progress.successes(task))
                _log_fault(fault)
                alert = task_alert(fault, is_essential=self._progress.is_essential(task), now=now)
                self._report(alert, faults)
        for task, reported in list(self._reported.items()):
            if task not in faults and self._progress.successes(task) > reported.successes:
                del self._reported[task]
                self._report(task_recovery_alert(task, reported.at, now=now), faults)

    def _report(self, alert: Alert, faulty_tasks: Collection[str]) -> None:
        """Put it into the outbox, and also send it directly if the outbox is not being delivered."""
        try:
            self._enqueue(outbox_alert(alert))
        except StoreError as error:
            log.warning("not stored: %s: %s", alert.headline, error)
        else:
            if DELIVERY not in faulty_tasks:
                return
        self._send_directly(alert)

    def _read_earlier(self, now: datetime) -> None:
        """Read faults that an earlier process reported without a recovery. Waits until the tasks are known."""
        if self._has_read_earlier or not self._progress.is_started:
            return
        try:
            alerts = self._read_alerts(now - REPORTED_WITHIN)
        except StoreError:
            return
        self._has_read_earlier = True
        unresolved: dict[str, datetime] = {}
        for alert in alerts:
            if alert.kind is AlertKind.RECOVERED:
                unresolved.pop(alert.subject, None)
            elif self._progress.has_task(alert.subject):
                unresolved[alert.subject] = alert.created_at
        for task, at in unresolved.items():
            self._reported.setdefault(task, _Reported(at, 0))


def _log_fault(fault: TaskFault) -> None:
    stack = fault.stack.splitlines()[-_STACK_LINES:]
    log.error("task %s %s: %s", fault.task, fault.kind, fault.cause, extra={"details": stack})
