"""The owner's hooks: `on_running` and `on_ended` run at least once; `before_stop` runs once, for a limited time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from gpuwatch.domain.alerts.launch_texts import HOOK_FAILED, HOOK_FAILED_ONCE
from gpuwatch.domain.launches.instances.end_rules import HOOK_MARGIN_S, longest_hook_s
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.life.launch_record import governing_watch, stored_watch
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.launch_spec import HookSpec, LaunchSpec
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.errors import StoreError
from gpuwatch.ports import OutboxAlert
from gpuwatch.ports.hooks import BEFORE_STOP, HookCall, HookInvoker, HookRun
from gpuwatch.redaction import redact

if TYPE_CHECKING:
    from gpuwatch.storage.launches.hook_runs import SqlHookQueue

log = logging.getLogger(__name__)

RETRY_AFTER_S = (10.0, 60.0, 300.0, 1200.0)  # after the first, second, … failure
MAX_ATTEMPTS = len(RETRY_AFTER_S) + 1
MAX_HOOKS_AT_ONCE = 4
_SAVED_MOST = 1_000  # launches that are being destroyed at once are far fewer
_CUT_OFF = "gpuwatch was restarted while it ran, or before its end was recorded"


class LaunchHooks:
    """Runs hooks on threads: no periodic task waits for one, and a destroy waits only for a limited time.

    Args:
        watches: by name; a launch whose watch was removed uses the hooks of its rent.
        clock: the wall clock.
        monotonic: seconds.
        stopping: once set, nothing is started; interrupted hooks run again later, except `before_stop`.
    """

    def __init__(  # noqa: PLR0913 each is a separate port
        self,
        book: SqlHookQueue,
        run: HookInvoker,
        *,
        watches: Mapping[str, Watch],
        new_id: Callable[[], str],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
        stopping: threading.Event,
    ) -> None:
        self._hook_runs = book
        self._run = run
        self._watches = watches
        self._new_id = new_id
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._running: set[threading.Thread] = set()
        self._ends_s: dict[str, float] = {}  # launch → time at which it is destroyed, hook or not
        self._saved: dict[str, None] = {}  # launches whose `before_stop` is over, the newest last
        self._stopping = stopping

    def close(self, within_s: float = 3.0) -> bool:
        """Start nothing more, and wait briefly for running hooks; return whether none is left."""
        self._stopping.set()
        ends_s = self._monotonic() + within_s
        with self._lock:
            running = list(self._running)
        for thread in running:
            thread.join(max(0.0, min(within_s, ends_s - self._monotonic())))
        return not any(thread.is_alive() for thread in running)

    @property
    def longest_s(self) -> float:
        """Return the longest time that a destroy may wait for a hook."""
        specs = [_spec(watch) for watch in self._watches.values()]
        return max((longest_hook_s(spec) for spec in specs), default=0.0)

    @property
    def _leased_s(self) -> float:
        """Return the longest time of hooks that run afterwards; those of removed watches get no more."""
        specs = [_spec(watch) for watch in self._watches.values()]
        return max(spec.hook_timeout_s for spec in (*specs, _NO_LAUNCH))

    # --- afterwards ---------------------------------------------------------------------------------------------------

    def run_due(self, now: datetime) -> int:
        """Start due hooks; return how many. Raises StoreError."""
        with self._lock:
            free = MAX_HOOKS_AT_ONCE - len(self._running)
        if free <= 0 or self._stopping.is_set():
            return 0
        due = self._hook_runs.lease(now, free, self._leased_s + HOOK_MARGIN_S)
        for run in due:
            self._start_thread(partial(self._afterwards, run))
        return len(due)

    def _start_thread(self, job: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                job()
            except StoreError as error:
                log.error("cannot store the result of a hook: %s", error)  # noqa: TRY400 its row is retried
            finally:
                with self._lock:
                    self._running.discard(threading.current_thread())

        thread = threading.Thread(target=guarded, name="hook", daemon=True)
        with self._lock:
            self._running.add(thread)
        thread.start()

    def _afterwards(self, run: HookRun) -> None:
        watch = self._watches.get(run.watch) or stored_watch(run.terms)
        spec = None if watch is None else getattr(_spec(watch), run.event, None)
        if watch is None or spec is None:
            self._hook_runs.mark_done(run)
            return
        if run.attempts > MAX_ATTEMPTS:
            self._fail(run, _CUT_OFF)
            return
        error = self._call(run, spec, min(_spec(watch).hook_timeout_s, self._leased_s))
        if error is None:
            self._hook_runs.mark_done(run)
        elif self._stopping.is_set():
            self._hook_runs.release(run)
        elif run.attempts >= MAX_ATTEMPTS:
            self._fail(run, error)
        else:
            self._hook_runs.postpone(run, self._clock() + timedelta(seconds=RETRY_AFTER_S[run.attempts - 1]), error)

    # --- before a destroy ---------------------------------------------------------------------------------------------

    def may_destroy(self, launch: Launch, now: datetime) -> bool:
        """Whether its watch allows destroying it now; see `before_stop`."""
        watch = governing_watch(launch, self._watches)
        return watch is None or self.before_stop(launch, _spec(watch), now)

    def before_stop(self, launch: Launch, spec: LaunchSpec, now: datetime) -> bool:
        """Whether it may be destroyed now. False: its hook still runs within its time.

        The first call starts the hook if the instance ever ran. It starts once in the life of a launch, even after
        crashes. If the start cannot be recorded, nothing is started and nothing waits.
        """
        if spec.before_stop is None or launch.running_at is None or launch.launch_id in self._saved:
            return True
        if launch.launch_id in self._ends_s:
            return self._is_over(launch.launch_id)
        try:
            return self._start_before_stop(launch, spec, now)
        except StoreError as error:
            log.error("skipping before_stop of launch %s: %s", launch.launch_id, error)  # noqa: TRY400 not a crash
            return self._over(launch.launch_id)

    def _start_before_stop(self, launch: Launch, spec: LaunchSpec, now: datetime) -> bool:
        assert spec.before_stop is not None
        hook, timeout_s = spec.before_stop, spec.hook_timeout_s
        run = self._hook_runs.begin(launch, BEFORE_STOP, now, timeout_s + HOOK_MARGIN_S)
        if run is None:
            if self._hook_runs.is_running(launch.launch_id, BEFORE_STOP, now):
                return False
            self._give_up(launch, _CUT_OFF)
            return self._over(launch.launch_id)
        with self._lock:
            self._ends_s[launch.launch_id] = self._monotonic() + timeout_s + HOOK_MARGIN_S
        self._start_thread(partial(self._save, run, hook, timeout_s))
        return False

    def _save(self, run: HookRun, hook: HookSpec, timeout_s: float) -> None:
        try:
            error = self._call(run, hook, timeout_s)
            if error is None:
                self._hook_runs.mark_done(run)
            elif not self._stopping.is_set():  # otherwise the next process reports that it was interrupted
                self._fail(run, error)
        finally:
            self._over(run.launch_id)

    def _is_over(self, launch_id: str) -> bool:
        with self._lock:
            late = self._monotonic() >= self._ends_s.get(launch_id, 0.0)
        return self._over(launch_id) if late else False

    def _over(self, launch_id: str) -> bool:
        with self._lock:
            self._ends_s.pop(launch_id, None)
            self._saved[launch_id] = None
            while len(self._saved) > _SAVED_MOST:
                del self._saved[next(iter(self._saved))]
        return True

    # --- one hook -----------------------------------------------------------------------------------------------------

    def _call(self, run: HookRun, spec: HookSpec, timeout_s: float) -> str | None:
        call = HookCall(spec=spec, event=run.event, body=run.body, at=self._clock(), timeout_s=timeout_s)
        try:
            error = self._run(call)
        except Exception as fault:  # whatever it raises, the launch continues, and the owner gets an alert
            log.exception("%s of launch %s", run.event, run.launch_id)
            error = type(fault).__name__
        if error is None:
            log.info("%s of launch %s ran", run.event, run.launch_id)
            return None
        error = clean(redact(error))
        log.warning("%s of launch %s failed (try %d): %s", run.event, run.launch_id, run.attempts, error)
        return error

    def _fail(self, run: HookRun, error: str) -> None:
        outbox_alert = self._hook_alert(run.launch_id, run.watch, run.event, error, run.attempts)
        self._hook_runs.mark_failed(run.launch_id, run.event, error, outbox_alert)

    def _give_up(self, launch: Launch, error: str) -> None:
        """Report a hook whose end was never recorded; otherwise it is already over."""
        outbox_alert = self._hook_alert(launch.launch_id, launch.watch, BEFORE_STOP, error, 1)
        self._hook_runs.mark_failed(launch.launch_id, BEFORE_STOP, error, outbox_alert)

    def _hook_alert(self, launch_id: str, watch: str, event: str, error: str, tries: int) -> OutboxAlert:
        fields = {"launch": launch_id, "event": event, "error": clean(error), "tries": min(tries, MAX_ATTEMPTS)}
        spec = HOOK_FAILED_ONCE if event == BEFORE_STOP else HOOK_FAILED
        return spec.outbox(self._new_id(), self._clock(), watch=watch, **fields)


def _spec(watch: Watch) -> LaunchSpec:
    return watch.launch or _NO_LAUNCH


_NO_LAUNCH = LaunchSpec()
