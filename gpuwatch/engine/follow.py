"""Follows what was rented, from one listing of the provider's instances to the next.

The first listing after a start is the reconciliation: nothing new is rented at that provider before it. A launch whose
answer was lost is looked for by its label; an instance is gone only when its absence is proven (`watches.absence`); an
end is a state that lasts until the list no longer shows the instance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.engine.failpoint import failpoint
from gpuwatch.engine.launch_alerts import Herald
from gpuwatch.errors import OrderError, ProviderError, StoreError
from gpuwatch.market.pricing import MICRO
from gpuwatch.ports import Books, Instance, InstanceState, Launcher, News
from gpuwatch.watches.absence import LISTINGS, WAIT_S, Looks, Verdict, failed_look, has_canary, missed, verdict
from gpuwatch.watches.launches import End, Launch, LaunchMoved, LaunchState, launch_id_in
from gpuwatch.watches.watch import Watch

log = logging.getLogger(__name__)

SLOW_STOP = timedelta(minutes=5)
ALIVE_EVERY = timedelta(seconds=5)  # while anything is on its way
STEADY_EVERY = timedelta(seconds=30)  # while all of it runs
QUIET_EVERY = timedelta(minutes=5)  # with nothing alive: for instances that nobody knows
_PRICE_SLACK = 1.005  # a listing's price may carry more digits, or a disk rounded up to the least size
_MOVING = frozenset({LaunchState.REQUESTED, LaunchState.UNKNOWN, LaunchState.STARTING, LaunchState.STOPPING})


class Follower:
    """Follows the launches at one provider. One beat at a time.

    Args:
        watches: by name, as the settings say now; a launch outlives the watch that made it.
        in_flight: launches that are being asked for at this moment.
        monotonic: seconds; absence is proven by it, so that no step of the wall clock shortens the wait.
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
    ) -> None:
        self._books = books
        self._launcher = launcher
        self._herald = herald
        self._watches = watches
        self._in_flight = in_flight
        self._monotonic = monotonic
        self._wait_s = wait_s
        self._looks: dict[str, Looks] = {}
        self._idle_since: dict[str, datetime] = {}
        self._destroyed: set[str] = set()  # launches whose destroy was acknowledged
        self._foreign: set[str] = set()  # instances of the account that are not ours
        self._next_at: datetime | None = None
        self.reconciled = False

    def beat_if_due(self, now: datetime) -> bool:
        """One look, if its time has come; True if there was one. Raises StoreError."""
        if self._next_at is not None and now < self._next_at <= now + QUIET_EVERY:
            return False
        alive = self._books.alive(self._launcher.name)
        every = QUIET_EVERY
        if alive:
            moving = any(launch.state in _MOVING for launch in alive)
            every = ALIVE_EVERY if moving else STEADY_EVERY
        self._next_at = now + every
        return self.beat(now)

    def hurry(self) -> None:
        """A launch was begun or is to end: look at the next chance."""
        self._next_at = None

    def beat(self, now: datetime, only: Collection[str] | None = None) -> bool:
        """List, and take every launch one step further; False: the provider gave no usable list. Raises StoreError.

        Args:
            only: touch these launches and no others (a command beside a daemon); None: all.
        """
        busy = self._in_flight()  # before the rows are read: what ends in between is seen as it was
        alive = [launch for launch in self._books.alive(self._launcher.name) if launch.launch_id not in busy]
        try:
            instances = self._launcher.list_instances()
        except ProviderError as error:
            log.warning("instances are not known: %s", error, extra={"provider": self._launcher.name})
            self._looks = {key: failed_look(looks) for key, looks in self._looks.items()}
            if only is None:
                self._on_time_alone(alive, now)
            return False
        listing = _Listing(instances)
        for launch in alive:
            if only is None or launch.launch_id in only:
                self._guarded(launch, listing, alive, now)
        if only is None:
            self._tell_orphans(listing, now)
        self._foreign = {i.instance_id for i in instances if launch_id_in(i.label) is None}
        self.reconciled = True
        return True

    def _guarded(self, launch: Launch, listing: _Listing, alive: Sequence[Launch], now: datetime) -> None:
        """One launch's trouble never keeps the others from their step."""
        try:
            self._step(launch, listing, alive, now)
        except LaunchMoved as error:
            log.info("%s", error)
        except (OrderError, ProviderError) as error:
            log.warning("launch %s: %s", launch.launch_id, error)

    def _step(self, launch: Launch, listing: _Listing, alive: Sequence[Launch], now: datetime) -> None:
        instance = listing.of(launch)
        if launch.state is LaunchState.REQUESTED:
            launch = self._books.move(launch, LaunchState.UNKNOWN, "its answer is not known to this process", now)
        if instance is not None:
            self._looks.pop(launch.launch_id, None)
            self._present(launch, instance, now)
        else:
            self._missing(launch, listing, alive, now)

    # --- the instance is listed ---------------------------------------------------------------------------------------

    def _present(self, launch: Launch, instance: Instance, now: datetime) -> None:
        if launch.state in {LaunchState.UNKNOWN, LaunchState.HELD}:
            launch = self._adopt(launch, instance, now)
        if launch.state is LaunchState.STOPPING:
            self._destroy(launch, instance.instance_id, now)
            return
        fault = self._fault(launch, instance, now)
        if fault is not None:
            self._end(launch, *fault, now)
        elif launch.state is LaunchState.STARTING and instance.state is InstanceState.RUNNING:
            self._runs(launch, now)

    def _adopt(self, launch: Launch, instance: Instance, now: datetime) -> Launch:
        why = "The answer to the request was lost; the instance was found by its label. Nothing was sent twice."
        adopted = msgspec.structs.replace(launch, state=LaunchState.STARTING, instance_id=instance.instance_id)
        news = self._herald.moved(adopted, "rented; found by its label", why, now)
        return self._books.move(
            launch, LaunchState.STARTING, "found by its label", now, news, instance_id=instance.instance_id
        )

    def _runs(self, launch: Launch, now: datetime) -> None:
        running = msgspec.structs.replace(launch, state=LaunchState.RUNNING, running_at=now)
        news = self._herald.moved(running, "running", "The instance came to life.", now)
        self._books.move(launch, LaunchState.RUNNING, "running", now, news, running_at=now)

    def _fault(self, launch: Launch, instance: Instance, now: datetime) -> tuple[End, str] | None:
        """Why it must end, if it must. A word of the provider that we do not know is never a reason."""
        words = instance.status
        if launch.spot and instance.spot is False:
            return End.WRONG_TYPE, "it is billed at the on-demand price"
        if self._is_dearer(launch, instance):
            return End.DEARER, f"{instance.listed_usd_hour:.4f} $/h listed"
        if instance.state is InstanceState.FAILED:
            return End.BROKEN, words
        if launch.spot and instance.state is InstanceState.STOPPED:
            return End.BID_LOST, words
        if launch.state is LaunchState.STARTING:
            return self._late(launch, words, now)
        return self._overdue(launch, now) or self._idle(launch, instance, now)

    def _is_dearer(self, launch: Launch, instance: Instance) -> bool:
        """The provider's own price against the one that was admitted, while it is young enough to be that price."""
        if instance.listed_usd_hour is None or launch.state is not LaunchState.STARTING:
            return False
        return instance.listed_usd_hour * MICRO > launch.listed_microusd_hour * _PRICE_SLACK + 1000

    def _late(self, launch: Launch, words: str, now: datetime) -> tuple[End, str] | None:
        asked_at = launch.requested_at or launch.intended_at
        if launch.ready_within_s is None or now - asked_at <= timedelta(seconds=launch.ready_within_s):
            return None
        return End.NOT_READY, words

    def _overdue(self, launch: Launch, now: datetime) -> tuple[End, str] | None:
        if launch.max_runtime_s is None or launch.running_at is None:
            return None
        if now - launch.running_at < timedelta(seconds=launch.max_runtime_s):
            return None
        return End.MAX_RUNTIME, ""

    def _idle(self, launch: Launch, instance: Instance, now: datetime) -> tuple[End, str] | None:
        """A utilisation that is not known is not 0: it neither counts nor breaks the count."""
        watch = self._watches.get(launch.watch)
        spec = watch.launch if watch is not None else None
        if spec is None or spec.idle_below is None or spec.idle_for_s is None or instance.gpu_utilisation is None:
            return None
        if instance.gpu_utilisation >= spec.idle_below:
            self._idle_since.pop(launch.launch_id, None)
            return None
        since = self._idle_since.setdefault(launch.launch_id, now)
        if now - since < timedelta(seconds=spec.idle_for_s):
            return None
        return End.IDLE, f"{instance.gpu_utilisation:g} % GPU use, under {spec.idle_below:g} % since {since:%H:%M} UTC"

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self, launch: Launch, end: End, words: str, now: datetime) -> None:
        reason = end.text(words)
        ending = msgspec.structs.replace(launch, state=LaunchState.STOPPING, end_reason=reason)
        news = self._herald.moved(ending, f"is being ended: {end.value}", reason, now)
        moved = self._books.move(launch, LaunchState.STOPPING, reason, now, news, end_reason=reason)
        if moved.instance_id is not None:
            self._destroy(moved, moved.instance_id, now)

    def _destroy(self, launch: Launch, instance_id: str, now: datetime) -> None:
        """Ask again at every listing that still shows it. An acknowledgement is not proof: the list is."""
        failpoint("launch.before_destroy")
        self._tell_if_slow(launch, now)
        try:
            self._launcher.destroy(instance_id)
        except (OrderError, ProviderError) as error:
            log.warning("launch %s: not destroyed yet: %s", launch.launch_id, error)
            return
        self._destroyed.add(launch.launch_id)

    def _tell_if_slow(self, launch: Launch, now: datetime) -> None:
        looks = self._looks.get(f"stop:{launch.launch_id}")
        if looks is None:
            self._looks[f"stop:{launch.launch_id}"] = Looks(self._monotonic())
        elif self._monotonic() - looks.since_s > SLOW_STOP.total_seconds():
            self._books.tell(self._herald.slow_stop(launch, launch.end_reason or "to be ended", now))

    def _on_time_alone(self, alive: Sequence[Launch], now: datetime) -> None:
        """The list is down, the bill is not: what is overdue is destroyed by its id."""
        for launch in alive:
            due = launch.state is LaunchState.RUNNING and self._overdue(launch, now)
            try:
                if due:
                    self._end(launch, *due, now)
                elif launch.state is LaunchState.STOPPING and launch.instance_id is not None:
                    self._destroy(launch, launch.instance_id, now)
            except LaunchMoved as error:
                log.info("%s", error)

    # --- the instance is not listed -----------------------------------------------------------------------------------

    def _missing(self, launch: Launch, listing: _Listing, alive: Sequence[Launch], now: datetime) -> None:
        if launch.state is LaunchState.HELD:
            return  # the owner decides
        tick_s = self._monotonic()
        looks = self._looks.get(launch.launch_id, Looks(tick_s))
        if launch.state is LaunchState.STOPPING and self._is_destroyed(launch):
            looks = Looks(looks.since_s, looks.missed + 1, looks.blank)  # asked for, acknowledged, and not listed
        else:
            believed = {a.instance_id for a in alive if _is_canary(a) and a.launch_id != launch.launch_id}
            canary = has_canary(listing.ids, {i for i in believed if i is not None}, self._foreign)
            looks = missed(looks, canary, tick_s, self._wait_s)
        self._looks[launch.launch_id] = looks
        if looks.missed >= LISTINGS:
            self._absent(launch, now)
        elif verdict(looks, tick_s, self._wait_s) is Verdict.CANNOT_PROVE:
            self._cannot_prove(launch, now)

    def _is_destroyed(self, launch: Launch) -> bool:
        """Acknowledged in this process; else asked once more: to destroy what is gone already is no error."""
        if launch.launch_id not in self._destroyed and launch.instance_id is not None:
            self._launcher.destroy(launch.instance_id)
            self._destroyed.add(launch.launch_id)
        return launch.launch_id in self._destroyed

    def _absent(self, launch: Launch, now: datetime) -> None:
        self._looks.pop(launch.launch_id, None)
        self._looks.pop(f"stop:{launch.launch_id}", None)
        if launch.state is LaunchState.UNKNOWN:
            self._over(launch, LaunchState.FAILED, End.ABSENT.text(), "nothing was made", now)
        elif launch.state is LaunchState.STOPPING:
            state = LaunchState.ENDED if launch.running_at is not None else _end_of_unborn(launch)
            self._over(launch, state, launch.end_reason or End.STOPPED.text(), "ended", now)
        else:
            self._over(launch, LaunchState.ENDED, End.GONE.text(), "gone at the provider", now)

    def _over(self, launch: Launch, state: LaunchState, reason: str, headline: str, now: datetime) -> None:
        over = msgspec.structs.replace(launch, state=state, ended_at=now, end_reason=reason)
        news = self._herald.moved(over, headline, reason, now)
        self._books.move(launch, state, reason, now, news, ended_at=now, end_reason=reason)

    def _cannot_prove(self, launch: Launch, now: datetime) -> None:
        """Nothing is sent again; what cannot be proven is the owner's to decide."""
        if launch.state in {LaunchState.STARTING, LaunchState.RUNNING}:
            reason = End.GONE.text("it is in no list any more; destroyed to be sure")
            self._books.move(launch, LaunchState.STOPPING, reason, now, end_reason=reason)
            self._looks.pop(launch.launch_id, None)
            return
        why = (
            "The request may have been carried out; the lists do not prove that it was not. Its budget stays reserved."
        )
        news: News = self._herald.held(msgspec.structs.replace(launch, state=LaunchState.HELD), why, now)
        self._books.move(launch, LaunchState.HELD, "absence could not be proven", now, news)
        self._looks.pop(launch.launch_id, None)

    def _tell_orphans(self, listing: _Listing, now: datetime) -> None:
        """Every labelled instance is in the table as alive, or the owner is told (CONTRACT §4.2)."""
        for launch_id, instance in listing.labelled.items():
            launch = self._books.get(launch_id)
            if launch is not None and not launch.is_over:
                continue
            why = (
                "No launch of that id is in this database: another gpuwatch, or a database that was lost."
                if launch is None
                else f"Launch {launch_id} was believed over: {launch.end_reason}."
            )
            try:
                self._books.tell(self._herald.orphan(self._launcher.name, instance, why, now))
            except StoreError as error:
                log.error("an orphan could not be told: %s", error)  # noqa: TRY400 the disk's fault, not ours


class _Listing:
    """One whole listing, by id and by label."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self.ids = {instance.instance_id for instance in instances}
        self._by_id = {instance.instance_id: instance for instance in instances}
        self.labelled = {
            launch_id: instance for instance in instances if (launch_id := launch_id_in(instance.label)) is not None
        }

    def of(self, launch: Launch) -> Instance | None:
        """By its id, else by its label (an owner may have changed the one or the other)."""
        found = self._by_id.get(launch.instance_id) if launch.instance_id is not None else None
        return found or self.labelled.get(launch.launch_id)


def _is_canary(launch: Launch) -> bool:
    return launch.state is LaunchState.RUNNING and launch.instance_id is not None


def _end_of_unborn(launch: Launch) -> LaunchState:
    """It never ran: failed, unless the owner wanted its end."""
    return LaunchState.ENDED if launch.ended_because(End.STOPPED) else LaunchState.FAILED
