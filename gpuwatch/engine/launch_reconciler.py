"""Follow rented instances from one listing of the provider to the next.

The first listing after a start is the reconciliation: nothing new is rented at that provider before it. What a listing
shows of each launch becomes an event for `state_machine`; its effects are carried out here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from gpuwatch.domain.launches.absence_proof import ABSENCE_WAIT_S, AbsenceVerdict
from gpuwatch.domain.launches.end_rules import EndCause, overdue
from gpuwatch.domain.launches.events import (
    BidRaised,
    ClockReading,
    InstanceListed,
    InstanceUnlisted,
    LifecycleEvent,
    ListUnavailable,
    watch_terms,
)
from gpuwatch.domain.launches.instance import CHANGING_EVERY_S, RUNNING_EVERY_S
from gpuwatch.domain.launches.launch import Launch, LaunchConflict, LaunchState, launch_id_in
from gpuwatch.domain.launches.transitions import Destroy, Effect, RaiseBid, SlotFreed
from gpuwatch.domain.market.pricing import usd
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.failpoint import failpoint
from gpuwatch.engine.instance_list_monitor import InstanceListMonitor
from gpuwatch.engine.instance_listing import AbsenceTracker, InstanceListing, report_orphans
from gpuwatch.engine.launch_alerts import LaunchAlerts
from gpuwatch.engine.returned_instances import end_again
from gpuwatch.engine.transition_executor import TransitionExecutor
from gpuwatch.errors import GpuwatchError, OrderError, ProviderError, StoreError, is_refusal
from gpuwatch.ports import Instance, InstanceLookup, InstanceState, Launcher, LaunchRepository, OutboxAlert

log = logging.getLogger(__name__)
T = TypeVar("T")

SLOW_STOP_S = 300.0
ALIVE_EVERY = timedelta(seconds=CHANGING_EVERY_S)
STEADY_EVERY = timedelta(seconds=RUNNING_EVERY_S)  # also with nothing alive, to find unknown instances
LISTED_WITHIN = timedelta(minutes=2)  # for this long after an order, lists and destroys may not know the instance
ELSEWHERE_FOR = timedelta(minutes=5)  # how long a request of another process may be in flight
_MOVING = frozenset({LaunchState.REQUESTED, LaunchState.UNKNOWN, LaunchState.STARTING, LaunchState.STOPPING})
_STEPS = 4  # in one poll: found, running, ended, …


class LaunchGuard(Protocol):
    """Rules about an instance beyond what the list shows; implemented by `guard`."""

    def fault(self, launch: Launch, instance: Instance, now: datetime) -> EndCause | None:
        """Why it must end, or None."""

    def due(self, launch: Launch, now: datetime) -> EndCause | None:
        """Why it must end whether a list shows it or not, or None."""

    def verified(self, launch: Launch, instance: Instance, now: datetime) -> bool | EndCause:
        """Whether it matches its offer; False: not yet known."""


class NoGuard:
    """No guard."""

    def fault(self, launch: Launch, instance: Instance, now: datetime) -> EndCause | None:
        """Nothing is wrong."""
        return None

    def due(self, launch: Launch, now: datetime) -> EndCause | None:
        """Nothing ends it."""
        return None

    def verified(self, launch: Launch, instance: Instance, now: datetime) -> bool | EndCause:
        """It is trusted."""
        return True


def _at_once(launch: Launch, now: datetime) -> bool:
    return True


class LaunchReconciler:
    """Follows the launches at one provider. Not thread-safe.

    Args:
        watches: by name, as in the current settings; a launch outlives the watch that started it.
        in_flight: launches that are being ordered at this moment.
        monotonic: seconds; absence is proven by it, so that no change of the wall clock shortens the wait.
        freed: called with a launch that is over: its slot is free.
        may_destroy: called before a destroy; False: not yet (the owner's hook is still running).
    """

    def __init__(  # noqa: PLR0913 each is a separate port
        self,
        repository: LaunchRepository,
        launcher: Launcher,
        launch_alerts: LaunchAlerts,
        *,
        watches: Mapping[str, Watch],
        in_flight: Callable[[], frozenset[str]],
        monotonic: Callable[[], float],
        wait_s: float = ABSENCE_WAIT_S,
        freed: Callable[[Launch], None] = lambda launch: None,
        guard: LaunchGuard | None = None,
        may_destroy: Callable[[Launch, datetime], bool] = _at_once,
    ) -> None:
        self._repository = repository
        self._launcher = launcher
        self._launch_alerts = launch_alerts
        self._watches = watches
        self._in_flight = in_flight
        self._monotonic = monotonic
        self._freed = freed
        self._guard: LaunchGuard = guard or NoGuard()
        self._may_destroy = may_destroy
        self._executor = TransitionExecutor(repository, launch_alerts)
        self._absence = AbsenceTracker(monotonic, wait_s)
        self._list_monitor = InstanceListMonitor(repository, launch_alerts, launcher.name, monotonic)
        self._first_seen_s: dict[tuple[str, LaunchState], float] = {}  # monotonic: when it was first in this state
        self._stopping_since_s: dict[str, float] = {}
        self._destroyed: set[str] = set()  # launches whose destroy was acknowledged
        self._shown: set[str] = set()  # launches that a list has shown
        self._began_at: datetime | None = None
        self._next_at: datetime | None = None
        self._foreign_ids: Sequence[str] = ()
        self._last_read: Sequence[Launch] = ()
        self._listed_last: Mapping[str, Instance] = {}
        self.reconciled = False

    def run_if_due(self, now: datetime) -> bool:
        """Reconcile if it is time; return whether that happened. Raises StoreError."""
        if self._next_at is not None and now < self._next_at <= now + STEADY_EVERY:
            return False
        alive = self._read(now)
        moving = any(launch.state in _MOVING for launch in alive)
        ends = [end for launch in alive if (end := _must_end_at(launch)) is not None and end > now]
        self._next_at = min([now + (ALIVE_EVERY if moving else STEADY_EVERY), *ends])
        return self.reconcile(now)

    def not_ready(self) -> str | None:
        """Return why nothing new may be rented here, in one line, or None. Raises StoreError.

        A database without any launch, beside instances with its label, is a new one: what the lost database had rented
        would be rented again.
        """
        name = self._launcher.name
        if not self.reconciled:
            return f"gpuwatch is still looking up what it rented at {name} before"
        if not self._foreign_ids or not self._repository.never_launched():
            return None
        known = ", ".join(self._foreign_ids[:3])
        return (
            f"{name} lists instances with a gpuwatch label that this database does not know ({known}); "
            "gpuwatch adopt INSTANCE, or gpuwatch adopt INSTANCE --not-mine"
        )

    def belongs_to_another(self, instance_id: str, launch_id: str) -> bool:
        """Return whether the latest list shows this instance under another label.

        Then no order of this launch created it.
        """
        found = self._listed_last.get(instance_id)
        return found is not None and launch_id_in(found.label) != launch_id

    def run_soon(self) -> None:
        """A launch was started or is to end: reconcile at the next opportunity."""
        self._next_at = None

    def reconcile(self, now: datetime, only: Collection[str] | None = None) -> bool:
        """List the instances and update every launch; False: the provider gave no usable list. Raises StoreError.

        Args:
            only: update only these launches (a command beside a daemon); None: all.
        """
        self._began_at = self._began_at or now
        busy = self._in_flight()  # before the rows are read: what ends in between is handled as it was
        alive = [launch for launch in self._read(now) if launch.launch_id not in busy]
        mine = [launch for launch in alive if only is None or launch.launch_id in only]
        try:
            listing = InstanceListing(self._launcher.list_instances())
        except ProviderError as error:
            log.warning("could not list instances: %s", error, extra={"provider": self._launcher.name})
            self._without_list(mine, now)
            self._list_monitor.failed(error, len(alive), now)
            return False
        self._listed_last = listing.by_id
        self._list_monitor.saw(now)
        failpoint("reconcile.listed")
        for launch in mine:
            self._isolated(launch, lambda each: self._process(each, listing, alive, now))
        self._absence.listing_done(listing)
        if only is None:
            found = report_orphans(self._repository, self._launch_alerts, self._launcher.name, listing, now)
            self._foreign_ids = found.foreign_ids
            end_again(self._repository, self._launcher, self._launch_alerts, found.returned, now)
        self.reconciled = True
        return True

    def _isolated(self, launch: Launch, step: Callable[[Launch], None]) -> None:
        """An error of one launch never keeps the others from their update."""
        try:
            step(launch)
        except LaunchConflict as error:
            log.info("%s", error)
        except (OrderError, ProviderError, StoreError) as error:
            log.warning("launch %s: %s", launch.launch_id, error)
        except Exception:
            log.exception("launch %s: could not be processed", launch.launch_id)

    def _read(self, now: datetime) -> Sequence[Launch]:
        """The rows. While they cannot be read, the launches read last still end in time. Raises StoreError."""
        try:
            self._last_read = self._repository.alive(self._launcher.name)
        except StoreError:
            for launch in self._last_read:
                self._isolated(launch, lambda each: self._end_unread(each, now))
            raise
        return self._last_read

    def _end_unread(self, launch: Launch, now: datetime) -> None:
        due = overdue(launch, self._at_least(launch, now))
        if due is None or launch.instance_id is None or launch.launch_id in self._destroyed:
            return
        log.error("launch %s is ended without reading its row: %s", launch.launch_id, due[0].text())
        self._destroy(launch, launch.instance_id, now)

    # --- what a poll shows --------------------------------------------------------------------------------------------

    def _process(self, launch: Launch, listing: InstanceListing, alive: Sequence[Launch], now: datetime) -> None:
        try:
            instance = listing.of(launch) or self._looked_up(launch)
        except ProviderError as error:
            log.warning("launch %s: not in the list, and not found out by its id: %s", launch.launch_id, error)
            self._without_list([launch], now)
            return
        if instance is not None:
            self._shown.add(launch.launch_id)
            self._absence.listed_again(launch)
            self._apply_events(launch, lambda each: self._listed(each, instance, now), now)
        elif launch.state is not LaunchState.REQUESTED or self._is_lost(launch, now):
            verdict = self._verdict(launch, listing, alive, now)
            self._apply_events(launch, lambda each: InstanceUnlisted(verdict, self._due(each, now)), now)

    def _looked_up(self, launch: Launch) -> Instance | None:
        """A list may omit what is alive: before a missing instance counts as missing, it is asked for by its id."""
        if launch.instance_id is None or not isinstance(self._launcher, InstanceLookup):
            return None
        found = self._launcher.get(launch.instance_id)
        if found is not None:
            log.warning("launch %s: instance %s is alive, the list omits it", launch.launch_id, launch.instance_id)
        return found

    def _listed(self, launch: Launch, instance: Instance, now: datetime) -> InstanceListed:
        """The guard checks living launches, and verifies an instance before it counts as running."""
        if launch.state not in {LaunchState.STARTING, LaunchState.RUNNING}:
            return InstanceListed(instance)
        fault = self._of_guard(launch, lambda: self._guard.fault(launch, instance, now))
        if fault is not None or launch.state is LaunchState.RUNNING or instance.state is not InstanceState.RUNNING:
            return InstanceListed(instance, fault)
        checked = self._of_guard(launch, lambda: self._guard.verified(launch, instance, now))
        found = True if checked is None else checked
        return InstanceListed(instance, verified=found) if isinstance(found, bool) else InstanceListed(instance, found)

    def _due(self, launch: Launch, now: datetime) -> EndCause | None:
        return self._of_guard(launch, lambda: self._guard.due(launch, now))

    def _of_guard(self, launch: Launch, check: Callable[[], T]) -> T | None:
        """A guard that raises ends nothing, and holds up nothing that the launch's own time ends."""
        try:
            return check()
        except GpuwatchError as error:
            log.warning("launch %s: guard: %s", launch.launch_id, error)
        except Exception:
            log.exception("launch %s: its guard failed", launch.launch_id)
        return None

    def _is_lost(self, launch: Launch, now: datetime) -> bool:
        """Whether a request that this process did not send is dead.

        It is older than this process, or another daemon's.
        """
        requested_at = launch.requested_at or launch.intended_at
        return (
            self._began_at is None
            or requested_at < self._began_at
            or self._at_least(launch, now) - requested_at > ELSEWHERE_FOR
        )

    def _verdict(
        self, launch: Launch, listing: InstanceListing, alive: Sequence[Launch], now: datetime
    ) -> AbsenceVerdict:
        if launch.state is LaunchState.HELD:
            return AbsenceVerdict.LOOKING
        if launch.state is LaunchState.STOPPING and self._is_destroyed(launch, now):
            return (
                AbsenceVerdict.LOOKING if self._is_too_new(launch, now) else self._absence.missing_after_destroy(launch)
            )
        return self._absence.missing(launch, listing, alive)

    def _is_too_new(self, launch: Launch, now: datetime) -> bool:
        """Whether a missing instance proves nothing yet: it was just ordered, and no list has shown it."""
        if launch.running_at is not None or launch.launch_id in self._shown:
            return False
        return self._at_least(launch, now) - (launch.requested_at or launch.intended_at) < LISTED_WITHIN

    def _is_destroyed(self, launch: Launch, now: datetime) -> bool:
        """Acknowledged in this process; else sent once more: destroying what is gone is no error."""
        if launch.launch_id not in self._destroyed and launch.instance_id is not None:
            self._destroy(launch, launch.instance_id, now)
        return launch.launch_id in self._destroyed

    def _without_list(self, launches: Sequence[Launch], now: datetime) -> None:
        verdicts = self._absence.no_listing(launches)

        def observe(launch: Launch) -> ListUnavailable:
            return ListUnavailable(verdicts[launch.launch_id], self._due(launch, now))

        for launch in launches:
            self._isolated(launch, lambda each: self._apply_events(each, observe, now))

    def _at_least(self, launch: Launch, now: datetime) -> datetime:
        """The wall clock, or later: a clock that stepped back must not let an instance run longer."""
        running_since = launch.running_at if launch.state is LaunchState.RUNNING else None
        started_at = running_since or launch.requested_at or launch.intended_at
        tick_s = self._monotonic()
        seen_s = self._first_seen_s.setdefault((launch.launch_id, launch.state), tick_s)
        return max(now, started_at + timedelta(seconds=tick_s - seen_s))

    # --- what follows -------------------------------------------------------------------------------------------------

    def _apply_events(self, launch: Launch, observe: Callable[[Launch], LifecycleEvent], now: datetime) -> None:
        """Apply events as long as one leads to the next."""
        for _ in range(_STEPS):
            clock = ClockReading(now, self._at_least(launch, now))
            before, terms = launch, watch_terms(self._watches.get(launch.watch), launch)
            launch, effects = self._executor.apply(launch, observe(launch), clock, terms)
            for effect in effects:
                self._carry_out(launch, effect, now)
            if launch == before or launch.is_over or launch.state is LaunchState.STOPPING:
                return

    def _carry_out(self, launch: Launch, effect: Effect, now: datetime) -> None:
        if isinstance(effect, Destroy):
            self._destroy(launch, effect.instance_id, now)
        elif isinstance(effect, RaiseBid):
            self._raise_bid(launch, effect, now)
        elif isinstance(effect, SlotFreed):
            self._forget(launch)
            self._freed(launch)

    def _destroy(self, launch: Launch, instance_id: str, now: datetime) -> None:
        """Send it again at every listing that still shows the instance. An acknowledgement is no proof; the list is."""
        self._report_if_slow(launch, now)
        if not self._may_destroy(launch, now):
            return
        failpoint("launch.before_destroy")
        try:
            self._launcher.destroy(instance_id)
            self._destroyed.add(launch.launch_id)
            failpoint("launch.after_destroy")
        except (OrderError, ProviderError) as error:
            log.warning("launch %s: not destroyed yet: %s", launch.launch_id, error)
            if is_refusal(error):
                self._report_end(self._launch_alerts.refused_end(launch, str(error), now))

    def _report_if_slow(self, launch: Launch, now: datetime) -> None:
        since_s = self._stopping_since_s.setdefault(launch.launch_id, self._monotonic())
        if self._monotonic() - since_s > SLOW_STOP_S:
            self._report_end(self._launch_alerts.slow_end(launch, launch.end_reason or "to be ended", now))

    def _report_end(self, news: OutboxAlert) -> None:
        try:
            self._repository.enqueue(news)
        except StoreError as error:
            log.warning("%s: the alert is not stored yet: %s", news.alert.headline, error)

    def _raise_bid(self, launch: Launch, effect: RaiseBid, now: datetime) -> None:
        """Record what the provider accepted; a raise whose answer was lost is sent again at the next poll."""
        self._launcher.change_bid(effect.instance_id, float(usd(effect.bid_microusd_hour)))
        self._executor.apply(launch, BidRaised(effect.bid_microusd_hour), ClockReading(now, now))

    def _forget(self, launch: Launch) -> None:
        self._absence.listed_again(launch)
        self._stopping_since_s.pop(launch.launch_id, None)
        self._destroyed.discard(launch.launch_id)
        self._shown.discard(launch.launch_id)
        self._first_seen_s = {key: value for key, value in self._first_seen_s.items() if key[0] != launch.launch_id}


def _must_end_at(launch: Launch) -> datetime | None:
    """When it ends if nothing else happens; None: it does not."""
    if launch.state is LaunchState.RUNNING and launch.running_at and launch.max_runtime_s is not None:
        return launch.running_at + timedelta(seconds=launch.max_runtime_s)
    if launch.state is LaunchState.STARTING and launch.ready_within_s is not None:
        return (launch.requested_at or launch.intended_at) + timedelta(seconds=launch.ready_within_s)
    return None
