"""Follows rented instances from one listing of the provider to the next.

The first listing after a start is the reconciliation: before it, nothing new is rented at that provider. Each listing
becomes an event per launch for `domain/launches/life/state_machine`; this module carries out the effects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpuwatch.domain.launches.instance import CHANGING_EVERY_S, RUNNING_EVERY_S, launch_id_in
from gpuwatch.domain.launches.instances.absence import ABSENCE_WAIT_S
from gpuwatch.domain.launches.instances.end_rules import overdue
from gpuwatch.domain.launches.instances.obligation import Obligation
from gpuwatch.domain.launches.launch import WATCH_ENDED, Launch, LaunchConflict, LaunchState
from gpuwatch.domain.launches.life.kept_disks import halt_begins_at, kept_after_end_s
from gpuwatch.domain.launches.life.launch_events import (
    BidRaised,
    ClockReading,
    Destroy,
    Effect,
    Halt,
    InstanceUnlisted,
    LifecycleEvent,
    ListUnavailable,
    RaiseBid,
    Resume,
    SlotFreed,
    WatchTerms,
    watch_terms,
)
from gpuwatch.domain.launches.life.launch_record import governing_watch
from gpuwatch.domain.market.money import usd
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.alerts.alert_reporter import AlertReporter
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.followed_launch import FollowedLaunches
from gpuwatch.engine.launches.following.absence import IndependentEvidence, MissingInstances, ReopenedLaunches
from gpuwatch.engine.launches.following.provider_account import OtherAccounts, ProviderAccount
from gpuwatch.engine.launches.following.reconciled_store import ReconciledStore
from gpuwatch.engine.launches.following.strays import LostLaunches, UnaccountedInstances, UnknownInstances
from gpuwatch.engine.launches.following.transition_executor import LaunchClock, TransitionExecutor, must_end_at
from gpuwatch.engine.launches.guarding.guard import ProviderGuard, due_cause, listed_event
from gpuwatch.engine.launches.guarding.instance_ender import InstanceEnder, at_once
from gpuwatch.engine.launches.guarding.instance_lists import Contradictions, InstanceListing, InstanceListMonitor
from gpuwatch.engine.setup.failpoint import failpoint
from gpuwatch.errors import OrderError, PartlyDone, ProviderError, StoreError
from gpuwatch.ports import DiskKeeper, Instance, Launcher, Market

if TYPE_CHECKING:
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

log = logging.getLogger(__name__)

ALIVE_EVERY = timedelta(seconds=CHANGING_EVERY_S)
OTHERS_END_AFTER = timedelta(minutes=5)  # past its end, then a launch of another owner is ended, too
STEADY_EVERY = timedelta(seconds=RUNNING_EVERY_S)  # also without launches, to find unknown instances
_MOVING = frozenset({LaunchState.REQUESTED, LaunchState.UNKNOWN, LaunchState.STARTING, LaunchState.STOPPING})
_STEPS = 4  # transitions per poll: found, running, ended, …


class LaunchReconciler:
    """Follows the launches at one provider. Not thread-safe.

    Args:
        watches: by name, as in the current settings; a launch outlives the watch that started it.
        in_flight: returns the launches that are being ordered.
        monotonic: seconds; used to prove absence, so that no change of the wall clock shortens the wait.
        market: to look up whether an offer is for rent again, as evidence of absence; None: no evidence from it.
        freed: called with a launch that is over, because its slot is free.
        may_destroy: called before a destroy; False: not yet (the owner's hook is still running).
        owner: identifies the launches of the launcher's account; no others are judged or ended here.
        obligations: returns this installation's open obligations at this provider. Raises StoreError.
        on_listed: called with every complete list.
        close_obligation: closes one whose order created nothing. Raises StoreError.
        generation: grows when the database went back to an older state: nothing is rented until a listing after that.
        watch_ended: how long after its end a launch is reopened if its instance is listed again.
        pace: factor by which the time between two lists is shortened.
        keeps_disk: whether a `DiskKeeper` can stop this launch with its disk kept.
    """

    def __init__(  # noqa: PLR0913 each is a separate port
        self,
        repository: SqlLaunchRepository,
        launcher: Launcher,
        launch_alerts: LaunchAlerts,
        *,
        watches: Mapping[str, Watch],
        in_flight: Callable[[], frozenset[str]],
        monotonic: Callable[[], float],
        market: Market | None = None,
        wait_s: float = ABSENCE_WAIT_S,
        freed: Callable[[Launch], None] = lambda launch: None,
        guard: ProviderGuard | None = None,
        may_destroy: Callable[[Launch, datetime], bool] = at_once,
        owner: ProviderAccount,
        watch_ended: timedelta = WATCH_ENDED,
        rents: Callable[[], bool] = lambda: False,
        obligations: Callable[[], Sequence[Obligation]] = tuple,
        on_listed: Callable[[Iterable[Instance], datetime], None] = lambda instances, now: None,
        close_obligation: Callable[[Obligation], None] = lambda obligation: None,
        generation: Callable[[], int] = lambda: 0,
        pace: float = 1.0,
        keeps_disk: Callable[[Launch], bool] = lambda launch: True,
    ) -> None:
        self._repository = repository
        self._launcher = launcher
        self._watches = watches
        self._rents = rents
        self._in_flight = in_flight
        self._freed = freed
        self._keeps_disk = keeps_disk
        self._on_listed = on_listed
        self._guard = guard
        self._executor = TransitionExecutor(repository, launch_alerts)
        self._followed = FollowedLaunches() if guard is None else guard.followed
        self._clock = LaunchClock(monotonic, self._followed)
        self._pace = pace
        reporter = AlertReporter(repository, launch_alerts.new_id)
        self._ender = InstanceEnder(reporter, launcher, launch_alerts, self._followed, monotonic, may_destroy)
        self._owner = owner
        self._other_accounts = OtherAccounts(reporter, launch_alerts, launcher.name)
        contradictions = Contradictions(reporter, launch_alerts, self._followed, monotonic)
        lost = LostLaunches(
            repository,
            launcher.name,
            obligations,
            close=close_obligation,
            generation=generation,
            monotonic=monotonic,
        )
        self._store = ReconciledStore(generation, monotonic)
        self._unknown = UnknownInstances(
            repository, launcher, reporter, launch_alerts, self._owner, monotonic, lost, watch_ended
        )
        self._reopened = ReopenedLaunches(repository, launcher, self._executor, contradictions, self._carry_out)
        self._missing = MissingInstances(
            launcher,
            clock=self._clock,
            ender=self._ender,
            followed=self._followed,
            independent=IndependentEvidence(launcher, market, self._followed, monotonic),
            unaccounted=UnaccountedInstances(repository, launcher.name),
            contradictions=contradictions,
            monotonic=monotonic,
            wait_s=wait_s,
        )
        self._list_monitor = InstanceListMonitor(reporter, launcher.name, monotonic)
        self._started_at: datetime | None = None
        self._next_at: datetime | None = None
        self._last_read: Sequence[Launch] = ()
        self._listed_last: Mapping[str, Instance] = {}
        self._defects: dict[str, Exception] = {}  # of the latest run, by launch
        self.steps = 0  # updated launches: progress within a long run
        self.list_failed = False  # at least once

    def run_if_due(self, now: datetime) -> bool:
        """Reconcile if it is time; return whether a usable list was processed.

        Raises:
            StoreError: the rows cannot be read.
            PartlyDone: a defect prevented the update of a launch; the others are up to date.
        """
        if self._next_at is not None and now < self._next_at <= now + STEADY_EVERY:
            return False
        alive = self._read(now)
        moving = any(launch.state in _MOVING or (launch.kept is not None and not launch.is_kept) for launch in alive)
        due = (at for launch in alive for at in (must_end_at(launch), self._halt_begins_at(launch)))
        ends = [at for at in due if at is not None and at > now]
        self._next_at = min([now + (ALIVE_EVERY if moving else STEADY_EVERY) / self._pace, *ends])
        self._defects.clear()
        is_sound = False
        try:
            done = self.reconcile(now)
            is_sound = not self._defects
        finally:
            if not is_sound:  # the next run repeats it: one that is not due would count as a success, and hide this
                self._next_at = None
        for launch_id, defect in self._defects.items():
            raise PartlyDone(f"launch {launch_id}: {defect}") from defect
        return done

    def _halt_begins_at(self, launch: Launch) -> datetime | None:
        terms = self._terms(launch)
        return halt_begins_at(launch, terms.keep_s, terms.hook_s)

    def _terms(self, launch: Launch) -> WatchTerms:
        keeps_disks = isinstance(self._launcher, DiskKeeper) and self._keeps_disk(launch)
        terms = watch_terms(governing_watch(launch, self._watches), launch, keeps_disks)
        return replace(terms, is_halt_sent=self._followed.of(launch).is_halt_sent)

    @property
    def reconciled(self) -> bool:
        """Whether the instances were listed since the start, and since the database last went back."""
        return self._store.is_current

    def not_ready(self) -> str | None:
        """Return why nothing new can be rented here, in one line, or None."""
        if not self.reconciled:
            why = "the database went back to an older state; " if self._store.went_back else ""
            return f"{why}gpuwatch is still looking up its earlier launches at {self._launcher.name}"
        return self._other_accounts.reason() or self._unknown.reason()

    def belongs_to_another(self, instance_id: str, launch_id: str) -> bool:
        """Whether the latest list shows this instance under another label.

        If so, no order of this launch created it.
        """
        found = self._listed_last.get(instance_id)
        return found is not None and launch_id_in(found.label) != launch_id

    def run_soon(self) -> None:
        """Reconcile at the next opportunity, because a launch was started or is to end."""
        self._next_at = None

    def reconcile(self, now: datetime, only: Collection[str] | None = None) -> bool:
        """List the instances and update every launch; False: there was no usable list. Raises StoreError.

        Args:
            only: update only these launches (a command beside a daemon); None: all.
        """
        self._started_at, began = self._started_at or now, self._store.began()
        busy = self._in_flight()  # read before the rows: a request that finishes in between still counts as in flight
        alive = [launch for launch in self._read(now) if launch.launch_id not in busy]
        try:
            self._owner.identify(now)
            listing = InstanceListing(self._launcher.list_instances())
        except ProviderError as error:
            log.warning("cannot list instances: %s", error, extra={"provider": self._launcher.name})
            self.list_failed = True
            self._without_list(_chosen(self._owner.own(alive), only), now)
            self._list_monitor.failed(error, len(alive), now, is_blocked=not self.reconciled and self._rents())
            return False
        everyone, alive = alive, self._owner.claimed(alive, lambda launch: listing.of(launch) is not None)
        mine = _chosen(alive, only)
        if only is None:
            own = {launch.launch_id for launch in alive}
            others = [launch for launch in everyone if launch.launch_id not in own]
            self._other_accounts.update([launch for launch in others if not self._owner.is_reached(launch)], now)
        self._listed_last = listing.by_id
        self._list_monitor.list_succeeded(now)
        self._on_listed(listing.by_id.values(), now)
        failpoint("reconcile.listed")
        for launch in mine:
            self._isolated(launch, lambda each: self._process(each, listing, alive, now))
        self._missing.listing_done(listing, now)
        if only is None:
            for returned in self._unknown.listed(listing, now):
                self._isolated(returned.launch, partial(self._reopened.reopen, instance=returned.instance, now=now))
        self._store.listed(began)
        return True

    def _isolated(self, launch: Launch, step: Callable[[Launch], None]) -> None:
        """Run a step so that its errors never prevent the update of other launches."""
        self.steps += 1
        try:
            step(launch)
        except LaunchConflict as error:
            log.info("%s", error)
        except (OrderError, ProviderError, StoreError) as error:
            log.warning("launch %s: %s", launch.launch_id, error)
        except Exception as error:
            log.exception("launch %s: cannot be processed", launch.launch_id)
            self._defects[launch.launch_id] = error

    def _read(self, now: datetime) -> Sequence[Launch]:
        """Return the rows. If they cannot be read, still end the last known launches on time. Raises StoreError."""
        try:
            own = self._repository.own_alive(self._launcher.name)
            others = [one for one in self._repository.alive(self._launcher.name) if _is_abandoned(one, now)]
            self._last_read = [*own, *(one for one in others if one not in own)]
        except StoreError:
            for launch in self._last_read:
                self._isolated(launch, lambda each: self._end_unread(each, now))
            raise
        return self._last_read

    def _end_unread(self, launch: Launch, now: datetime) -> None:
        """End a launch that is stopping or overdue. Nothing can prove its end now, so its destroy is repeated.

        One whose disk is to be kept then is left to the keeper, which stops it without the rows.
        """
        due = overdue(launch, self._clock.at_least(launch, now))
        is_kept = kept_after_end_s(launch, self._terms(launch).keep_s) > 0
        why = None if due is None or is_kept else due[0].text()
        if launch.state is LaunchState.STOPPING:
            why = launch.end_reason or "its end was requested"
        if why is None or launch.instance_id is None or self._ender.was_just_acknowledged(launch):
            return
        if not self._owner.own([launch]):
            return
        log.error("launch %s: ending it without reading its row: %s", launch.launch_id, why)
        self._ender.destroy(launch, launch.instance_id, now)

    # --- events from a poll -------------------------------------------------------------------------------------------

    def _process(self, launch: Launch, listing: InstanceListing, alive: Sequence[Launch], now: datetime) -> None:
        try:
            listed = listing.of(launch)
            instance = listed or self._missing.look_up_unlisted(launch, now)
        except ProviderError as error:
            log.warning("launch %s: not in the list, and its id could not be checked: %s", launch.launch_id, error)
            self._without_list([launch], now)
            return
        if instance is not None:
            self._missing.listed(launch) if listed else self._missing.found(launch)
            self._apply_events(launch, lambda each: listed_event(self._guard, each, instance, now), now)
        elif launch.state is not LaunchState.REQUESTED or self._clock.is_lost(launch, self._started_at, now):
            found = self._missing.findings(launch, listing, alive, now)
            self._apply_events(
                launch,
                lambda each: InstanceUnlisted(
                    found.verdict, due_cause(self._guard, each, now), found.words, found.candidate
                ),
                now,
            )

    def _without_list(self, launches: Sequence[Launch], now: datetime) -> None:
        def observe(launch: Launch) -> ListUnavailable:
            return ListUnavailable(self._missing.no_listing(launch), due_cause(self._guard, launch, now))

        for launch in launches:
            self._isolated(launch, lambda each: self._apply_events(each, observe, now))

    # --- effects ------------------------------------------------------------------------------------------------------

    def _apply_events(self, launch: Launch, observe: Callable[[Launch], LifecycleEvent], now: datetime) -> None:
        """Apply events while each leads to another."""
        for _ in range(_STEPS):
            clock = ClockReading(now, self._clock.at_least(launch, now))
            before, terms = launch, self._terms(launch)
            launch, effects = self._executor.apply(launch, observe(launch), clock, terms)
            for effect in effects:
                self._carry_out(launch, effect, now)
            if launch == before or launch.is_over or launch.state is LaunchState.STOPPING:
                return

    def _carry_out(self, launch: Launch, effect: Effect, now: datetime) -> None:
        if isinstance(effect, Destroy):
            self._ender.destroy(launch, effect.instance_id, now)
        elif isinstance(effect, RaiseBid):
            self._raise_bid(launch, effect, now)
        elif isinstance(effect, Halt):
            self._ender.halt(launch, effect.instance_id, now)
        elif isinstance(effect, Resume):
            self._ender.resume(launch, effect.instance_id, now)
        elif isinstance(effect, SlotFreed):
            self._followed.drop(launch)
            self._freed(launch)

    def _raise_bid(self, launch: Launch, effect: RaiseBid, now: datetime) -> None:
        """Raise the bid and record it; if the answer is lost, the next poll sends it again."""
        self._launcher.change_bid(effect.instance_id, float(usd(effect.bid_microusd_hour)))
        self._executor.apply(launch, BidRaised(effect.bid_microusd_hour), ClockReading(now, now))


def _is_abandoned(launch: Launch, now: datetime) -> bool:
    """Whether the hosts of its owner, another one perhaps, should have ended it long ago: whoever can ends it."""
    ends_at = must_end_at(launch)
    return ends_at is not None and now - ends_at > OTHERS_END_AFTER


def _chosen(launches: Sequence[Launch], only: Collection[str] | None) -> list[Launch]:
    return [launch for launch in launches if only is None or launch.launch_id in only]
