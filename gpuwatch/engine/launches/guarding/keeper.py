"""Ends instances that outlive their end, from its own file: it needs no database, scheduler or instance list.

It is the second line of defence. The reconciler ends instances on time. If the file still shows an instance as open
well after its end, the keeper ends it by its id, or by its label while the id is unknown. It touches nothing else,
takes no shared lock, and never waits: each instance is ended on a thread of its own. Where the owner keeps the disk at
the end, it stops the instance; one that does not stop within seconds is destroyed. Until `watch_ended` is over, it
watches obligations that it closed itself because the provider denied the instance, and those that the daemon closed
while the daemon does not follow that provider; an instance that reappears is ended.

Its alerts bypass the outbox.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gpuwatch.domain.alerts.alert import AlertSpec
from gpuwatch.domain.alerts.kept_texts import KEEPER_STOPPED
from gpuwatch.domain.alerts.launch_texts import KEEPER_CANNOT_END, KEEPER_ENDED
from gpuwatch.domain.launches.instance import Instance, InstanceState, launch_id_in
from gpuwatch.domain.launches.instances.obligation import Obligation
from gpuwatch.domain.launches.launch import WATCH_ENDED
from gpuwatch.domain.market.money import price_text, usd
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.engine.launches.guarding.instance_lists import look_up
from gpuwatch.errors import GpuwatchError, OrderError, ProviderError, StoreError, is_refusal
from gpuwatch.ports import Alert, DiskKeeper, Launcher
from gpuwatch.ports.store import ObligationReader
from gpuwatch.redaction import redact

log = logging.getLogger(__name__)

AFTER_S = 75.0  # past its end: the reconciler has had its chance, and less than two minutes have passed
ALONE_AFTER_S = 30.0  # without a daemon here: with a timer of a minute, less than two minutes, too
AGAIN_S = 15.0
LOOKUP_EVERY_S = 60.0  # between two lookups of an instance whose id is unknown, or that was gone
WATCH_AFTER_S = LOOKUP_EVERY_S / 2  # a starting daemon needs some time to follow
STOP_WITHIN_S, STOP_AGAIN_S = 30.0, 5.0  # for a stop that keeps its disk: with the time above, two minutes in all
GONE_AFTER = 3  # consecutive lookups that do not find it
FAILING_S = 45.0  # errors that last this long are reported; a refusal is reported at once
REPEAT_S = 3600.0
MAX_REQUESTS_AT_ONCE = 8  # per provider; endings and lookups count separately, and so does each provider
Runner = Callable[[str, Callable[[], None]], None]


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How far the keeper is with one overdue instance.

    Attributes:
        is_busy: an attempt is under way.
        is_absent: nothing was destroyed, and the provider shows no instance of it.
        error: of the last attempt; None: it succeeded, or there was none.
        is_lasting: it failed for a while, or the provider refused.
    """

    obligation: Obligation
    is_busy: bool
    is_absent: bool
    error: str | None
    is_lasting: bool


class _Work(msgspec.Struct):
    """The keeper's progress on one obligation; only its thread changes it while `is_busy`."""

    provider: str
    next_s: float
    is_busy: bool = False
    is_looked_up: bool = False  # a lookup ended, with or without an answer
    is_absent: bool = False
    is_acknowledged: bool = False  # the provider accepted a destroy
    error: str | None = None
    is_lasting: bool = False
    failing_since_s: float | None = None
    reported_failing_s: float | None = None
    stopping_since_s: float | None = None  # the first stop that keeps its disk
    not_found: int = 0  # consecutive lookups


_Step = Callable[[Obligation, _Work, datetime], None]


class Keeper:
    """Checks obligations; call `check` about every second.

    Args:
        obligations: a separate reader of the file.
        launcher_for: returns a separate launcher with the key of the obligation's account. Raises GpuwatchError: none.
        report: sends an alert past the outbox, without waiting.
        daemon_fault: returns why the daemon cannot end or report it, in one line; None: the daemon works.
        run: runs work on a named thread of its own.
        new_id: returns alert ids.
        after_s: seconds past the end before the keeper acts.
        watch_ended: how long closed obligations are watched.
        is_followed: whether the daemon follows a provider's launches, and finds reappearing instances itself.
        is_extended: whether the database proves a later end, which is then in the file; answers within seconds.
        watch_after_s: seconds before the first lookup of a closed obligation that is watched.
    """

    def __init__(  # noqa: PLR0913 each is a separate port
        self,
        obligations: ObligationReader,
        launcher_for: Callable[[Obligation], Launcher],
        report: Callable[[Alert], None],
        *,
        daemon_fault: Callable[[], str | None],
        run: Runner,
        new_id: Callable[[], str],
        monotonic: Callable[[], float],
        after_s: float = AFTER_S,
        watch_ended: timedelta = WATCH_ENDED,
        is_followed: Callable[[str], bool] = lambda provider: True,
        is_extended: Callable[[Obligation], bool] = lambda obligation: False,
        watch_after_s: float = WATCH_AFTER_S,
    ) -> None:
        self._obligations = obligations
        self._launcher_for = launcher_for
        self._report = report
        self._daemon_fault = daemon_fault
        self._run = run
        self._new_id = new_id
        self._monotonic = monotonic
        self._after_s = after_s
        self._known: Sequence[Obligation] = ()
        self._seen: dict[str, tuple[datetime, float]] = {}  # by launch: both clocks when first seen
        self._work: dict[str, _Work] = {}
        self._watched: dict[str, _Work] = {}  # closed obligations that are still watched
        self._watch_ended = watch_ended
        self._is_followed = is_followed
        self._is_extended = is_extended
        self._watch_after_s = watch_after_s
        self._overdue: Sequence[Obligation] = ()
        self._read_error: str | None = None

    @property
    def open_count(self) -> int:
        """The number of open obligations at the last check."""
        return len(self._known)

    def endings(self) -> list[Ending]:
        """How far each instance is that was overdue at the last check."""
        works = [(one, self._work[one.launch_id]) for one in self._overdue]
        return [
            Ending(
                obligation=one,
                is_busy=work.is_busy,
                is_absent=work.is_absent and not work.is_acknowledged,
                error=work.error,
                is_lasting=work.is_lasting,
            )
            for one, work in works
        ]

    @property
    def is_looking(self) -> bool:
        """Whether a closed obligation that is watched still waits for its first lookup."""
        return any(not work.is_looked_up for work in self._watched.values())

    def check(self, now: datetime) -> None:
        """Begin to end overdue instances, without waiting. Never raises GpuwatchError."""
        self._read()
        tick_s = self._monotonic()
        known = {obligation.launch_id for obligation in self._known}
        self._seen = {one: at for one, at in self._seen.items() if one in known}
        self._work = {one: work for one, work in self._work.items() if one in known}
        closed = self._obligations.recently_closed(now - self._watch_ended)
        watched = [one for one in closed if one.by_keeper or not self._is_followed(one.provider)]
        first_s = tick_s + self._watch_after_s
        before = self._watched
        self._watched = {one.launch_id: before.get(one.launch_id) or _Work(one.provider, first_s) for one in watched}
        self._overdue = self._overdue_at(now, tick_s)
        for obligation in self._overdue:
            work = self._work.setdefault(obligation.launch_id, _Work(obligation.provider, tick_s))
            self._start(obligation, work, now, self._end)
        for one in watched:
            self._start(one, self._watched[one.launch_id], now, self._check_reappeared)

    def _read(self) -> None:
        """Read the open obligations; if that fails, the last known ones stay."""
        try:
            self._known = self._obligations.open_obligations()
            self._read_error = None
        except StoreError as error:
            if self._read_error != str(error):
                log.error("keeper: %s", error)  # noqa: TRY400 one line
            self._read_error = str(error)

    def _overdue_at(self, now: datetime, tick_s: float) -> Sequence[Obligation]:
        """Return overdue obligations, longest overdue first."""
        late = [
            obligation
            for obligation in self._known
            if obligation.ends_at is not None
            and self._at_least(obligation, now, tick_s) >= obligation.ends_at + timedelta(seconds=self._after_s)
        ]
        return sorted(late, key=lambda obligation: obligation.ends_at or now)

    def _at_least(self, one: Obligation, now: datetime, tick_s: float) -> datetime:
        """Return the wall clock or a later time: a clock that stepped back must not let an instance run longer."""
        seen_at, seen_s = self._seen.setdefault(one.launch_id, (now, tick_s))
        return max(now, seen_at + timedelta(seconds=tick_s - seen_s))

    def _start(self, one: Obligation, work: _Work, now: datetime, step: _Step) -> None:
        """Run a step on its own thread, if it is time."""
        tick_s = self._monotonic()
        alike = (self._watched if one.is_over else self._work).values()
        busy = sum(each.is_busy and each.provider == one.provider for each in alike)
        if busy >= MAX_REQUESTS_AT_ONCE or work.is_busy or work.next_s > tick_s:
            return
        work.is_busy = True

        def run() -> None:
            try:
                step(one, work, now)
            except GpuwatchError as error:
                self._failed(one, work, error, now)
            except Exception as error:
                log.exception("keeper: launch %s", one.launch_id)
                self._failed(one, work, GpuwatchError(f"{type(error).__name__}: {error}"), now)
            finally:
                work.is_looked_up, work.is_busy = True, False

        try:
            self._run(f"keeper {one.launch_id}", run)
        except RuntimeError as error:  # no thread is available
            work.is_busy = False
            log.error("keeper: launch %s: %s", one.launch_id, error)  # noqa: TRY400 one line

    # --- one instance, on its own thread ------------------------------------------------------------------------------

    def _end(self, one: Obligation, work: _Work, now: datetime) -> None:
        """Destroy it, or check whether it is gone. Raises GpuwatchError."""
        if not work.is_acknowledged and self._is_extended(one):
            work.next_s = self._monotonic() + AGAIN_S
            return
        launcher = self._launcher_for(one)
        if not work.is_acknowledged and self._keeps_disk(one, work, launcher, now):
            work.failing_since_s, work.error, work.is_lasting = None, None, False
            work.next_s = self._monotonic() + STOP_AGAIN_S
            return
        left = self._to_destroy(one, work, launcher)
        work.is_absent = not left
        if left:
            work.not_found = 0
            self._destroy(one, work, launcher, left, now)
        elif work.is_acknowledged:
            work.not_found += 1
            if work.not_found >= GONE_AFTER:
                log.info("keeper: the instance of launch %s is gone", one.launch_id)
                self._obligations.close(one)
        work.failing_since_s, work.error, work.is_lasting = None, None, False
        work.next_s = self._monotonic() + (AGAIN_S if work.is_acknowledged else LOOKUP_EVERY_S)

    def _keeps_disk(self, one: Obligation, work: _Work, launcher: Launcher, now: datetime) -> bool:
        """Stop it with its disk kept, if its owner wants that; False: it must be destroyed now."""
        if not one.keep_s or one.is_ending or one.instance_id is None or one.ends_at is None or one.runtime_s is None:
            return False
        kept_until = one.ends_at + timedelta(seconds=one.keep_s)
        if now >= kept_until or not isinstance(launcher, DiskKeeper):
            return False
        if _is_stopped(one.instance_id, launcher):
            self._obligations.note_disk_kept(one)
            if work.stopping_since_s is not None:
                fields = {"kept_until": format_moment(kept_until), "launch": one.launch_id}
                self._alert(KEEPER_STOPPED, one, self._daemon_fault(), now, **fields)
            return True
        tick_s = self._monotonic()
        work.stopping_since_s = tick_s if work.stopping_since_s is None else work.stopping_since_s
        if tick_s - work.stopping_since_s > STOP_WITHIN_S:
            return False
        try:
            launcher.stop_instance(one.instance_id)
        except (OrderError, ProviderError) as error:
            log.warning("keeper: cannot stop launch %s: %s", one.launch_id, error)
            return not is_refusal(error)
        log.warning("keeper: stopped instance %s of launch %s, overdue", one.instance_id, one.launch_id)
        return True

    def _check_reappeared(self, one: Obligation, work: _Work, now: datetime) -> None:
        """Reopen a closed obligation whose instance exists after a provider denied it. Raises GpuwatchError."""
        work.next_s = self._monotonic() + LOOKUP_EVERY_S
        launcher = self._launcher_for(one)
        is_there = self._labelled(one, launcher) if one.instance_id is None else _find(one.instance_id, launcher)
        if is_there:
            log.error("keeper: the instance of launch %s is listed again", one.launch_id)
            self._obligations.reopen(one)

    def _to_destroy(self, one: Obligation, work: _Work, launcher: Launcher) -> Sequence[str]:
        """Return the ids to destroy. A known id is destroyed without a query first: a list may be down or wrong.

        If no answer ever gave an id, every instance whose label carries the launch's id counts as its own.
        """
        if one.instance_id is None:
            return self._labelled(one, launcher)
        is_gone = work.is_acknowledged and _is_gone(one.instance_id, launcher)
        return () if is_gone else (one.instance_id,)

    def _labelled(self, one: Obligation, launcher: Launcher) -> Sequence[str]:
        return [each.instance_id for each in launcher.list_instances() if launch_id_in(each.label) == one.launch_id]

    def _destroy(self, one: Obligation, work: _Work, launcher: Launcher, ids: Sequence[str], now: datetime) -> None:
        for instance_id in ids:
            launcher.destroy(instance_id)
            log.warning("keeper: destroyed instance %s of launch %s, overdue", instance_id, one.launch_id)
        fault = self._daemon_fault()
        if not (work.is_acknowledged or one.is_end_reported) and not (one.is_ending and fault is None):
            self._alert(KEEPER_ENDED, one, fault, now, destroyed=", ".join(ids))
            self._note_report(msgspec.structs.replace(one, is_end_reported=True))
        work.is_acknowledged = True

    def _failed(self, one: Obligation, work: _Work, error: GpuwatchError, now: datetime) -> None:
        """Retry soon; report it once an hour, unless the daemon works and does so itself."""
        tick_s = self._monotonic()
        work.next_s = tick_s + AGAIN_S
        work.failing_since_s = tick_s if work.failing_since_s is None else work.failing_since_s
        work.error = redact(str(error))
        work.is_lasting = is_refusal(error) or tick_s - work.failing_since_s >= FAILING_S
        log.warning("keeper: cannot %s launch %s: %s", "look up" if one.is_over else "end", one.launch_id, error)
        fault = self._daemon_fault()
        if one.is_over or (one.is_ending and fault is None):
            return
        reported_s = [] if work.reported_failing_s is None else [tick_s - work.reported_failing_s]
        if one.failing_reported_at is not None:  # perhaps by the keeper of an earlier process
            reported_s.append(abs(now - one.failing_reported_at).total_seconds())
        if work.is_lasting and all(age_s >= REPEAT_S for age_s in reported_s):
            work.reported_failing_s = tick_s
            what = f"instance {one.instance_id}" if one.instance_id else f"the instance labelled {one.label}"
            self._alert(KEEPER_CANNOT_END, one, fault, now, error=work.error, what=what)
            self._note_report(msgspec.structs.replace(one, failing_reported_at=now))

    def _note_report(self, one: Obligation) -> None:
        """Note it for the keeper of the next process, which would alert about the same again."""
        try:
            self._obligations.note_report(one)
        except StoreError as error:
            log.warning("keeper: launch %s: %s", one.launch_id, error)

    def _alert(self, spec: AlertSpec, one: Obligation, fault: str | None, now: datetime, **fields: Any) -> None:
        """Report it with the facts of the obligation. `fault`: why the daemon could not end it; None: none is known."""
        self._report(
            spec.alert(
                self._new_id(),
                now,
                subject=one.launch_id,
                watch=one.watch,
                facts=_facts(one, fault),
                provider=one.provider,
                end=_at(one),
                **fields,
            )
        )


def _find(instance_id: str, launcher: Launcher) -> Instance | None:
    """Return it as the provider shows it; None: it shows none. Raises ProviderError: no answer."""
    answer = look_up(launcher, instance_id)
    if answer.is_known:
        return answer.instance
    return next((each for each in launcher.list_instances() if each.instance_id == instance_id), None)


def _is_stopped(instance_id: str, launcher: Launcher) -> bool:
    """Whether the provider shows it as stopped; False: it does not, or does not answer."""
    try:
        found = _find(instance_id, launcher)
    except ProviderError as error:
        log.warning("keeper: stopping instance %s again: %s", instance_id, error)
        return False
    return found is not None and found.state is InstanceState.STOPPED


def _is_gone(instance_id: str, launcher: Launcher) -> bool:
    """Whether the provider no longer shows it; False: it does, or does not answer."""
    try:
        return _find(instance_id, launcher) is None
    except ProviderError as error:
        log.warning("keeper: destroying instance %s again: %s", instance_id, error)
        return False


def _facts(one: Obligation, alone: str | None) -> tuple[tuple[str, str], ...]:
    price = price_text(usd(one.price_microusd_hour))
    found = (
        ("Launch", one.launch_id),
        ("Provider", one.provider),
        ("Instance", one.instance_id or "id unknown"),
        ("GPU", f"{one.gpu_count} × {one.gpu}" if one.gpu_count else "none"),
        ("Price", f"${price} an hour"),
        ("Should have ended", _at(one)),
    )
    return found if alone is None else (*found, ("What is wrong", redact(alone)))


def _at(one: Obligation) -> str:
    return "an unknown time" if one.ends_at is None else f"{one.ends_at:%Y-%m-%d %H:%M:%S} UTC"
