"""The clockwork: which beat runs when. Alone knows APScheduler, and works around its two known gaps.

APScheduler 3.11 falls silent when the clock steps back (its next run lies in what is now the future) and has no word for a
beat that was skipped; a guard compares the wall clock with the monotonic one and sets every job anew after a jump, and
listeners turn what was missed into log lines. Jobs live in memory and are made from the settings at every start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

log = logging.getLogger(__name__)

JUMP_S = 5.0  # a wall clock this far off the monotonic one has jumped, or the machine slept
GUARD_EVERY_S = 2.0


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """Something that runs again and again, never twice at once."""

    name: str
    run: Callable[[], object]
    every_s: float
    jitter_s: float = 0.0


class Clockwork:
    """Runs beats on threads until it is stopped. One that hangs delays no other."""

    def __init__(self, beats: Sequence[Beat], now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._beats = beats
        self._now = now
        self._monotonic = monotonic
        self._stopped = threading.Event()
        self._guard = threading.Thread(target=self._watch_clock, name="clock-guard", daemon=True)
        pool = ThreadPoolExecutor(max_workers=len(beats) + 1)
        self._scheduler = BackgroundScheduler(timezone="UTC", executors={"default": pool})
        self._scheduler.add_listener(_tell, EVENT_JOB_ERROR | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)

    def start(self) -> None:
        """Every beat runs at once, then at its interval."""
        for beat in self._beats:
            self._scheduler.add_job(
                beat.run,
                IntervalTrigger(seconds=beat.every_s, jitter=beat.jitter_s or None, timezone="UTC"),
                id=beat.name,
                name=beat.name,
                coalesce=True,
                max_instances=1,
                misfire_grace_time=None,
                next_run_time=self._now(),
            )
        self._scheduler.start()
        self._guard.start()

    def stop(self, wait_s: float) -> None:
        """No beat starts any more; those that run get `wait_s` to end."""
        self._stopped.set()
        self._scheduler.pause()
        ending = threading.Thread(target=self._scheduler.shutdown, kwargs={"wait": True}, daemon=True)
        ending.start()
        ending.join(wait_s)
        if ending.is_alive():
            log.warning("a beat did not end within %.0f s; its work is kept in rows and taken up at the next start", wait_s)

    def nudge(self, name: str) -> None:
        """Run a beat now instead of at its next time."""
        if not self._stopped.is_set() and self._scheduler.get_job(name):
            self._scheduler.modify_job(name, next_run_time=self._now())

    def _watch_clock(self) -> None:
        offset = self._offset()
        while not self._stopped.wait(GUARD_EVERY_S):
            moved = self._offset() - offset
            if abs(moved) > JUMP_S:
                offset += moved
                log.warning("the clock moved by %+.0f s against its own pace; all beats are set anew", moved)
                self._set_anew()

    def _offset(self) -> float:
        return self._now().timestamp() - self._monotonic()

    def _set_anew(self) -> None:
        for beat in self._beats:
            self.nudge(beat.name)


def _tell(event: JobEvent) -> None:
    if event.code == EVENT_JOB_ERROR:
        log.error("beat %s failed and runs again at its next time", event.job_id, exc_info=event.exception)
    elif event.code == EVENT_JOB_MISSED:
        log.warning("beat %s was missed", event.job_id)
    else:
        log.warning("beat %s still runs at its next time; that run is left out", event.job_id)
