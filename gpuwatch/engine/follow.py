"""Follows what was rented, from one listing of the provider's instances to the next.

The first listing after a start is the reconciliation: nothing new is rented at that provider before it. A launch whose
answer was lost is looked for by its label; an instance is gone only when its absence is proven (`reconcile`); an end
is a state that lasts until the list no longer shows the instance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.engine.failpoint import failpoint
from gpuwatch.engine.launch_alerts import Herald
from gpuwatch.engine.reconcile import Absence, Listing, tell_orphans
from gpuwatch.errors import OrderError, ProviderError, StoreError
from gpuwatch.launches.absence import WAIT_S, Verdict
from gpuwatch.launches.faults import billed, fault_of, is_late, overdue
from gpuwatch.launches.launch import LOST, End, Launch, LaunchMoved, LaunchState
from gpuwatch.market.pricing import threshold_microusd
from gpuwatch.ports import Books, Instance, InstanceState, Launcher
from gpuwatch.watches.watch import LaunchSpec, Watch

log = logging.getLogger(__name__)

SLOW_STOP_S = 300.0
ALIVE_EVERY = timedelta(seconds=3)  # while anything is on its way
STEADY_EVERY = timedelta(seconds=10)  # while all of it runs, and with nothing alive: for instances that nobody knows
ELSEWHERE_FOR = timedelta(minutes=5)  # so long a request of another process may be on its way
_MOVING = frozenset({LaunchState.REQUESTED, LaunchState.UNKNOWN, LaunchState.STARTING, LaunchState.STOPPING})


class Follower:
    """Follows the launches at one provider. One beat at a time.

    Args:
        watches: by name, as the settings say now; a launch outlives the watch that made it.
        in_flight: launches that are being asked for at this moment.
        monotonic: seconds; absence is proven by it, so that no step of the wall clock shortens the wait.
        freed: called with a launch that is over: its slot is free.
    """

    def __init__(  # noqa: PLR0913 each is a door of its own
        self,
        books: Books,
        launcher: Launcher,
        herald: Herald,
        *,
        watches: Mapping[str, Watch],
        in_flight: Callable[[], frozenset[str]],
        monotonic: Callable[[], float],
        wait_s: float = WAIT_S,
        freed: Callable[[Launch], None] = lambda launch: None,
    ) -> None:
        self._books = books
        self._launcher = launcher
        self._herald = herald
        self._watches = watches
        self._in_flight = in_flight
        self._monotonic = monotonic
        self._freed = freed
        self._absence = Absence(monotonic, wait_s)
        self._idle_since: dict[str, datetime] = {}
        self._seen_s: dict[tuple[str, LaunchState], float] = {}  # monotonic, since it was first seen so
        self._stopping_since_s: dict[str, float] = {}
        self._destroyed: set[str] = set()  # launches whose destroy was acknowledged
        self._began_at: datetime | None = None
        self._next_at: datetime | None = None
        self.reconciled = False

    def beat_if_due(self, now: datetime) -> bool:
        """One look, if its time has come; True if there was one. Raises StoreError."""
        if self._next_at is not None and now < self._next_at <= now + STEADY_EVERY:
            return False
        moving = any(launch.state in _MOVING for launch in self._books.alive(self._launcher.name))
        self._next_at = now + (ALIVE_EVERY if moving else STEADY_EVERY)
        return self.beat(now)

    def hurry(self) -> None:
        """A launch was begun or is to end: look at the next chance."""
        self._next_at = None

    def beat(self, now: datetime, only: Collection[str] | None = None) -> bool:
        """List, and take every launch one step further; False: the provider gave no usable list. Raises StoreError.

        Args:
            only: touch these launches and no others (a command beside a daemon); None: all.
        """
        self._began_at = self._began_at or now
        busy = self._in_flight()  # before the rows are read: what ends in between is seen as it was
        alive = [launch for launch in self._books.alive(self._launcher.name) if launch.launch_id not in busy]
        mine = [launch for launch in alive if only is None or launch.launch_id in only]
        try:
            listing = Listing(self._launcher.list_instances())
        except ProviderError as error:
            log.warning("instances are not known: %s", error, extra={"provider": self._launcher.name})
            self._without_list(mine, now)
            return False
        for launch in mine:
            self._guarded(launch, lambda each: self._step(each, listing, alive, now))
        self._absence.listed(listing)
        if only is None:
            tell_orphans(self._books, self._herald, self._launcher.name, listing, now)
        self.reconciled = True
        return True

    def _guarded(self, launch: Launch, step: Callable[[Launch], None]) -> None:
        """One launch's trouble never keeps the others from their step."""
        try:
            step(launch)
        except LaunchMoved as error:
            log.info("%s", error)
        except (OrderError, ProviderError, StoreError) as error:
            log.warning("launch %s: %s", launch.launch_id, error)

    def _step(self, launch: Launch, listing: Listing, alive: Sequence[Launch], now: datetime) -> None:
        instance = listing.of(launch)
        if instance is not None:
            self._absence.seen(launch)
            self._present(launch, instance, now)
            return
        if launch.state is LaunchState.REQUESTED:
            if not self._is_lost(launch, now):
                return
            launch = self._books.move(launch, LaunchState.UNKNOWN, "its answer is not known to this process", now)
        self._missing(launch, listing, alive, now)

    def _is_lost(self, launch: Launch, now: datetime) -> bool:
        """Is a request that is not ours to answer dead? Older than this process: yes, or it is another daemon's."""
        asked_at = launch.requested_at or launch.intended_at
        return (
            self._began_at is None
            or asked_at < self._began_at
            or self._at_least(launch, now) - asked_at > ELSEWHERE_FOR
        )

    # --- the instance is listed ---------------------------------------------------------------------------------------

    def _present(self, launch: Launch, instance: Instance, now: datetime) -> None:
        if launch.instance_id is None:
            launch = self._adopt(launch, instance, now)
        elif launch.state in LOST:
            launch = self._books.move(launch, LaunchState.STARTING, "found by its id", now)
        if launch.state is LaunchState.STOPPING:
            self._destroy(launch, instance.instance_id, now)
            return
        fault = fault_of(launch, instance, self._at_least(launch, now), self._ceiling(launch))
        fault = fault or self._idle(launch, instance, now)
        if fault is not None:
            self._end(launch, *fault, now)
        elif launch.state is LaunchState.STARTING and instance.state is InstanceState.RUNNING:
            self._runs(launch, instance, now)

    def _adopt(self, launch: Launch, instance: Instance, now: datetime) -> Launch:
        """Found by its label. If its end was wanted meanwhile, that still holds."""
        to_end = launch.end_reason is not None
        state = LaunchState.STOPPING if to_end else LaunchState.STARTING
        why = "The answer to the request was lost; the instance was found by its label. Nothing was sent twice."
        adopted = msgspec.structs.replace(launch, state=state, instance_id=instance.instance_id)
        headline = "found by its label; it is being ended" if to_end else "rented; found by its label"
        news = self._herald.moved(adopted, headline, why, now)
        return self._books.move(launch, state, "found by its label", now, news, instance_id=instance.instance_id)

    def _ceiling(self, launch: Launch) -> int | None:
        watch = self._watches.get(launch.watch)
        return None if watch is None else threshold_microusd(watch.max_price_usd_gpu_hour, launch.gpu_count)

    def _runs(self, launch: Launch, instance: Instance, now: datetime) -> None:
        """From now on the ledger reckons with the price that the provider's list says."""
        listed, price = billed(launch, instance)
        changes = {"running_at": now, "listed_microusd_hour": listed, "price_microusd_hour": price}
        running = msgspec.structs.replace(launch, state=LaunchState.RUNNING, **changes)
        news = self._herald.moved(running, "running", "The instance came to life.", now)
        self._books.move(launch, LaunchState.RUNNING, "running", now, news, **changes)

    def _idle(self, launch: Launch, instance: Instance, now: datetime) -> tuple[End, str] | None:
        """A utilisation that is not known is not 0: it neither counts nor breaks the count."""
        spec = self._spec(launch)
        measured = instance.gpu_utilisation
        if launch.state is not LaunchState.RUNNING or spec is None or measured is None:
            return None
        if spec.idle_below is None or spec.idle_for_s is None:
            return None
        if measured >= spec.idle_below:
            self._idle_since.pop(launch.launch_id, None)
            return None
        since = self._idle_since.setdefault(launch.launch_id, now)
        if now - since < timedelta(seconds=spec.idle_for_s):
            return None
        return End.IDLE, f"{measured:g} % GPU use, under {spec.idle_below:g} % since {since:%H:%M} UTC"

    def _at_least(self, launch: Launch, now: datetime) -> datetime:
        """The wall clock, or later: one that stepped back must not let an instance run longer."""
        begun_at = launch.running_at or launch.requested_at or launch.intended_at
        tick_s = self._monotonic()
        seen_s = self._seen_s.setdefault((launch.launch_id, launch.state), tick_s)
        return max(now, begun_at + timedelta(seconds=tick_s - seen_s))

    def _spec(self, launch: Launch) -> LaunchSpec | None:
        watch = self._watches.get(launch.watch)
        return None if watch is None else watch.launch

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self, launch: Launch, end: End, words: str, now: datetime) -> None:
        reason = end.text(words)
        ending = msgspec.structs.replace(launch, state=LaunchState.STOPPING, end_reason=reason)
        news = self._herald.moved(ending, f"is being ended: {end.value}", reason, now)
        try:
            launch = self._books.move(launch, LaunchState.STOPPING, reason, now, news, end_reason=reason)
        except StoreError as error:
            # a full disk must not let it run on: to end it twice costs nothing, not to end it does
            log.error("launch %s is ended without a record: %s", launch.launch_id, error)  # noqa: TRY400
        if launch.instance_id is not None:
            self._destroy(launch, launch.instance_id, now)

    def _destroy(self, launch: Launch, instance_id: str, now: datetime) -> None:
        """Ask again at every listing that still shows it. An acknowledgement is not proof: the list is."""
        failpoint("launch.before_destroy")
        try:
            self._launcher.destroy(instance_id)
            self._destroyed.add(launch.launch_id)
            failpoint("launch.after_destroy")
        except (OrderError, ProviderError) as error:
            log.warning("launch %s: not destroyed yet: %s", launch.launch_id, error)
        self._tell_if_slow(launch, now)

    def _tell_if_slow(self, launch: Launch, now: datetime) -> None:
        since_s = self._stopping_since_s.setdefault(launch.launch_id, self._monotonic())
        if self._monotonic() - since_s > SLOW_STOP_S:
            self._books.tell(self._herald.slow_stop(launch, launch.end_reason or "to be ended", now))

    # --- there is no list ---------------------------------------------------------------------------------------------

    def _without_list(self, launches: Sequence[Launch], now: datetime) -> None:
        """The list is down, the bill is not: what is overdue is destroyed by its id; what is lost goes to the owner."""
        verdicts = self._absence.no_listing(launches)
        for launch in launches:
            self._guarded(launch, lambda each: self._blind_step(each, verdicts[each.launch_id], now))

    def _blind_step(self, launch: Launch, verdict: Verdict, now: datetime) -> None:
        due = overdue(launch, self._at_least(launch, now))
        if due is not None:
            self._end(launch, *due, now)
        elif launch.state is LaunchState.STOPPING and launch.instance_id is not None:
            self._destroy(launch, launch.instance_id, now)
        elif launch.instance_id is None and verdict is Verdict.CANNOT_PROVE:
            self._hold(launch, now)

    # --- the instance is not listed -----------------------------------------------------------------------------------

    def _missing(self, launch: Launch, listing: Listing, alive: Sequence[Launch], now: datetime) -> None:
        if launch.state is LaunchState.HELD:
            return  # the owner decides
        at = self._at_least(launch, now)
        due = overdue(launch, at) or is_late(launch, "it is in no list", at)
        if due is not None:
            self._end(launch, *due, now)
            return
        if launch.state is LaunchState.STOPPING and self._is_destroyed(launch, now):
            verdict = self._absence.missing_after_destroy(launch)
        else:
            verdict = self._absence.missing(launch, listing, alive)
        if verdict is Verdict.ABSENT:
            self._absent(launch, now)
        elif verdict is Verdict.CANNOT_PROVE:
            self._cannot_prove(launch, now)

    def _is_destroyed(self, launch: Launch, now: datetime) -> bool:
        """Acknowledged in this process; else asked once more: to destroy what is gone already is no error."""
        if launch.launch_id not in self._destroyed and launch.instance_id is not None:
            self._destroy(launch, launch.instance_id, now)
        return launch.launch_id in self._destroyed

    def _absent(self, launch: Launch, now: datetime) -> None:
        if launch.state is LaunchState.STOPPING:
            state = LaunchState.ENDED if launch.running_at is not None else _end_of_unborn(launch)
            self._over(launch, state, launch.end_reason or End.STOPPED.text(), "ended", now)
        elif launch.state in LOST:
            self._over(launch, LaunchState.FAILED, End.ABSENT.text(), "nothing was made", now)
        else:
            self._over(launch, LaunchState.ENDED, End.GONE.text(), "gone at the provider", now)

    def _over(self, launch: Launch, state: LaunchState, reason: str, headline: str, now: datetime) -> None:
        over = msgspec.structs.replace(launch, state=state, ended_at=now, end_reason=reason)
        news = self._herald.moved(over, headline, reason, now)
        over = self._books.move(launch, state, reason, now, news, ended_at=now, end_reason=reason)
        self._absence.seen(launch)
        self._stopping_since_s.pop(launch.launch_id, None)
        self._destroyed.discard(launch.launch_id)
        self._idle_since.pop(launch.launch_id, None)
        self._seen_s = {key: value for key, value in self._seen_s.items() if key[0] != launch.launch_id}
        self._freed(over)

    def _cannot_prove(self, launch: Launch, now: datetime) -> None:
        """What was rented and is in no list may still run, and be wanted: it is told, not destroyed."""
        if launch.state in LOST or launch.instance_id is None:
            self._hold(launch, now)
        elif launch.state is not LaunchState.STOPPING:
            self._books.tell(self._herald.unlisted(launch, now))

    def _hold(self, launch: Launch, now: datetime) -> None:
        """Nothing is sent again; what cannot be proven is the owner's to decide."""
        if launch.state is LaunchState.HELD:
            return
        if launch.state is LaunchState.REQUESTED:
            launch = self._books.move(launch, LaunchState.UNKNOWN, "its answer is not known to this process", now)
        why = "The request may have been carried out; no list proves that it was not. Its budget stays reserved."
        news = self._herald.held(msgspec.structs.replace(launch, state=LaunchState.HELD), why, now)
        self._books.move(launch, LaunchState.HELD, "absence could not be proven", now, news)
        self._absence.seen(launch)


def _end_of_unborn(launch: Launch) -> LaunchState:
    """It never ran: failed, unless the owner wanted its end."""
    return LaunchState.ENDED if launch.ended_because(End.STOPPED) else LaunchState.FAILED
