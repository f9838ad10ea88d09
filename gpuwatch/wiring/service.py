"""The daemon's parts, built from the settings and joined; the clockwork drives the beats that come out of here."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch.engine.act import Actor
from gpuwatch.engine.auto_price import AutoPrices
from gpuwatch.engine.beat import Beat
from gpuwatch.engine.deliver import Deliverer
from gpuwatch.engine.distress import Distress
from gpuwatch.engine.evaluate import Evaluator, Rules, Start
from gpuwatch.engine.follow import Follower
from gpuwatch.engine.guard import Guard
from gpuwatch.engine.hunt import Hunter, Recorder
from gpuwatch.engine.launch_alerts import Herald
from gpuwatch.engine.novelty import Novelty
from gpuwatch.engine.purse import REFRESH_S, Purse
from gpuwatch.engine.reminders import remind
from gpuwatch.engine.rent import Shop
from gpuwatch.engine.sight import Watchman
from gpuwatch.engine.station import Station
from gpuwatch.engine.sweep import Sweeper, sweep_targets
from gpuwatch.errors import GpuwatchError
from gpuwatch.launches.launch import LaunchState
from gpuwatch.storage.auto_prices import StoredWaits
from gpuwatch.storage.desk import StoreDesk
from gpuwatch.storage.history import History
from gpuwatch.storage.ledger import Ledger
from gpuwatch.storage.outbox import Outbox
from gpuwatch.storage.polls import last_sweep
from gpuwatch.storage.uses import StoredUses
from gpuwatch.system.ssh import SshProbe
from gpuwatch.watches.watch import Action
from gpuwatch.wiring import adapters, channels, http_client, monotonic, new_id, pace, real_now
from gpuwatch.wiring.access import followable, has_credentials, is_asked, unable
from gpuwatch.wiring.costs import charge_beats
from gpuwatch.wiring.crew import Crew
from gpuwatch.wiring.hooks import hooks_of
from gpuwatch.wiring.renting import status_part
from gpuwatch.wiring.rules import commissions_of, rules_of

if TYPE_CHECKING:
    from gpuwatch.errors import ProviderError
    from gpuwatch.launches.launch import Launch
    from gpuwatch.net import Http
    from gpuwatch.ports import Answer, Channel, Query
    from gpuwatch.providers import Adapter
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database
    from gpuwatch.watches.watch import Watch

log = logging.getLogger(__name__)

FOLLOW_EVERY_S = 2.0
DELIVER_EVERY_S = 1.0
SIGHT_EVERY_S = 5.0
SWEEP_LOOK_EVERY_S = 15.0
ROLL_UP_EVERY_S = 60.0
GUARD_EVERY_S = 5.0
HOOKS_EVERY_S = 2.0
REMIND_EVERY_S = 3600.0
AUTO_PRICE_EVERY_S = 60.0
LAUNCH_FIRST_S = 0.2  # at most so long the history waits for launches that have just begun
_STUCK_FACTOR = 5  # rounds without an end, after which the watchdog is not fed


class Service:
    """Everything that runs. `nudge` is set by the clockwork: run a beat now."""

    def __init__(
        self, settings: Settings, store: Database, http: Http, extra_channels: Mapping[str, Channel] | None = None
    ) -> None:
        self.settings = settings
        self.stopping = threading.Event()
        self.nudge: Callable[[str], None] = lambda name: None
        self._store = store
        self._http = http
        self.desk = StoreDesk(store)
        self.history = History(store)
        self.ledger = Ledger(store)
        self.adapters = adapters(settings, http, stop=self.stopping)
        self.channels = {**channels(settings, http), **(extra_channels or {})}
        self.deliverer = Deliverer(Outbox(store), self.channels)
        self.distress = Distress(self.channels, new_id)
        self._watches = {watch.name: watch for watch in settings.watches}
        self._herald = Herald(self._channels_of, new_id)
        self._purses: dict[str, Purse] = {}
        self._shops = {name: shop for name, adapter in self.adapters.items() if (shop := self._shop(name, adapter))}
        self.actor = Actor(self.ledger, self._shops, self._herald, real_now, settings.budget)
        self._crew = Crew()
        self.hooks = hooks_of(settings, store, http, self._channels_of, self.stopping)
        self.guards = {name: self._guard(shop) for name, shop in self._shops.items()}
        self.followers = {name: self._follower(name, shop) for name, shop in self._shops.items()}
        self.evaluator = Evaluator(self.desk, self._rules(), self._start, new_id)
        self.auto_prices = AutoPrices(StoredWaits(store, commissions_of(settings)))
        self.stations = {name: self._station(name, adapter) for name, adapter in self.adapters.items()}
        self._progress: dict[str, tuple[int, float]] = {}

    # --- what is built ------------------------------------------------------------------------------------------------

    def _channels_of(self, watch_name: str) -> tuple[str, ...]:
        watch = self._watches.get(watch_name)
        return tuple(self.channels) if watch is None or watch.notify is None else watch.notify

    def _shop(self, name: str, adapter: Adapter) -> Shop | None:
        """Where something can be rented: gpuwatch knows how, and there is a key, or the provider finds its own."""
        provider = self.settings.providers[name]
        if adapter.launcher is None or not has_credentials(provider):
            return None
        self._purses[name] = Purse(adapter.launcher, monotonic)
        return Shop(
            adapter.launcher,
            adapter.market,
            provider.commission,
            self._purses[name],
            is_another=partial(self._is_another, name),
        )

    def _is_another(self, provider: str, instance_id: str, launch_id: str) -> bool:
        return self.followers[provider].is_another(instance_id, launch_id)

    def _follower(self, name: str, shop: Shop) -> Follower:
        return Follower(
            self.ledger,
            shop.launcher,
            self._herald,
            watches=self._watches,
            in_flight=self.actor.in_flight,
            monotonic=monotonic,
            freed=self._freed,
            guard=self.guards[name],
            may_destroy=self.hooks.may_destroy,
        )

    def _guard(self, shop: Shop) -> Guard:
        return Guard(
            self.ledger,
            StoredUses(self._store),
            shop.launcher,
            SshProbe(),
            self._herald,
            watches=self._watches,
            budget=self.settings.budget,
            zone=ZoneInfo(self.settings.timezone),
            channels_of=self._channels_of,
            new_id=new_id,
        )

    def _freed(self, launch: Launch) -> None:
        """A launch is over: its watch may rent again, the next offer at once."""
        self.evaluator.lost_a_launch(launch.watch)
        self.nudge("deliver")
        for name in self.stations:
            self.nudge(f"hunt {name}")

    def _watches_at(self, provider: str) -> list[Watch]:
        return [watch for watch in self.settings.watches if is_asked(provider, watch)]

    def _rules(self) -> Rules:
        return rules_of(self.settings, tuple(self.adapters), tuple(self.channels), self._not_ready)

    def _station(self, name: str, adapter: Adapter) -> Station:
        provider, told = self.settings.providers[name], tuple(self.channels)
        watchman = Watchman(name, self.desk, told, new_id, real_now())
        station = Station(provider, self.history, watchman, Novelty(name, self.desk, told, new_id), real_now)
        mine = self._watches_at(name)
        keep = self._launches_first(name, station.keep_hunt)
        hunter = Hunter(adapter.market, mine, provider.commission, self.evaluator, keep, self.stopping)
        hunter.in_force = self.auto_prices.in_force
        named = [watch for watch in self.settings.watches if watch.providers is None or name in watch.providers]
        targets = sweep_targets(named, self.settings.record_gpus)  # list prices are kept for those that rent, too
        sweeper = Sweeper(adapter.market, targets, station.keep_sweep, self.stopping)
        swept = last_sweep(self._store, name)
        sweeper.rows = swept.rows if swept else None
        station.man(hunter if mine else None, sweeper, swept.at if swept else None)
        return station

    # --- launches -----------------------------------------------------------------------------------------------------

    def _not_ready(self, provider: str, price_microusd_hour: int) -> str | None:
        """Nothing is rented before what was rented is known (CONTRACT §4.1), nor what cannot be paid for an hour."""
        follower = self.followers.get(provider)
        if follower is None:
            return unable(self.settings).why_not(provider) or f"gpuwatch cannot rent at {provider}"
        return follower.not_ready() or self._purses[provider].too_little(price_microusd_hour)

    def unwatched(self, settings: Settings) -> list[Launch]:
        """Launches that are alive and that nobody could follow under these settings: no provider, or no key."""
        alive = self.ledger.alive()
        known = followable(settings, self._http, {launch.provider for launch in alive})
        return [launch for launch in alive if launch.provider not in known]

    def _remind(self) -> int:
        return remind(self.ledger, self._herald, frozenset(self.followers), real_now())

    def _start(self, start: Start) -> None:
        self._crew.begin(start.launch.provider, partial(self._act, start))
        self.nudge("deliver")

    def _launches_first(self, provider: str, keep: Recorder) -> Recorder:
        """Writing the history takes the interpreter's lock from a request that is just being sent: it comes after."""

        def kept(query: Query, answer: Answer | ProviderError, now: datetime) -> None:
            self._crew.wait_for_begun(provider, LAUNCH_FIRST_S)
            keep(query, answer, now)

        return kept

    def _act(self, start: Start) -> None:
        launch = start.launch
        try:
            acted = self.actor.act(launch, start.watch, start.candidates, start.observed_at)
            if acted.state is LaunchState.FAILED:
                self.evaluator.lost_a_launch(start.watch.name)
        except GpuwatchError as error:
            log.error("launch %s: %s", launch.launch_id, error)  # noqa: TRY400 its row says where it stands
        except Exception:
            log.exception("launch %s stopped in the middle; its row is taken up again", launch.launch_id)
        if (follower := self.followers.get(launch.provider)) is not None:
            follower.hurry()
        self.nudge("deliver")

    # --- what the clockwork drives ------------------------------------------------------------------------------------

    def beats(self) -> list[Beat]:
        """Every beat of the daemon; those of one provider never wait for those of another."""
        found = [
            Beat(name="deliver", run=self._deliver, every_s=DELIVER_EVERY_S),
            Beat(name="hooks", run=lambda: self.hooks.beat(real_now()), every_s=HOOKS_EVERY_S),
            Beat(name="remind", run=self._remind, every_s=REMIND_EVERY_S),
            Beat(name="roll-up", run=lambda: self.history.roll_up(real_now()), every_s=ROLL_UP_EVERY_S),
            Beat(name="auto price", run=self._reckon_limits, every_s=AUTO_PRICE_EVERY_S),
        ]
        for name, station in self.stations.items():
            poll_s = station.settings.poll_every_s
            found += [
                Beat(name=f"hunt {name}", run=station.hunt, every_s=poll_s, jitter_s=min(1.0, poll_s / 20)),
                Beat(name=f"sweep {name}", run=station.sweep_if_due, every_s=self._sweep_look_s(station)),
                Beat(name=f"sight {name}", run=station.look_after_sight, every_s=SIGHT_EVERY_S),
            ]
        if self._rents:
            found += [Beat(name=f"purse {n}", run=p.look, every_s=REFRESH_S) for n, p in self._purses.items()]
        for name, guard in self.guards.items():
            found.append(Beat(name=f"guard {name}", run=self._look_after(guard), every_s=GUARD_EVERY_S))
        for name, follower in self.followers.items():
            found.append(Beat(name=f"follow {name}", run=self._follow(follower), every_s=FOLLOW_EVERY_S))
        return found + charge_beats(self._store, {name: shop.launcher for name, shop in self._shops.items()})

    @property
    def _rents(self) -> bool:
        """May anything be rented at all?"""
        return not self.settings.dry_run and any(w.action is not Action.ALERT for w in self.settings.watches)

    def _reckon_limits(self) -> None:
        self.auto_prices.beat(self.settings.watches, real_now())

    def _sweep_look_s(self, station: Station) -> float:
        wanted_s = station.settings.sweep_every_s
        return SWEEP_LOOK_EVERY_S if wanted_s is None else min(wanted_s, SWEEP_LOOK_EVERY_S)

    def _follow(self, follower: Follower) -> Callable[[], bool]:
        def look() -> bool:
            if pace() > 1:  # in a test: at every beat
                follower.hurry()
            return follower.beat_if_due(real_now())

        return look

    def _look_after(self, guard: Guard) -> Callable[[], None]:
        return lambda: guard.beat(real_now())

    def _deliver(self) -> int:
        self.distress.look(self._store.fault, real_now())
        return self.deliverer.beat(real_now())

    # --- how it goes --------------------------------------------------------------------------------------------------

    def progresses(self, tick_s: float) -> bool:
        """Has a round of every hunt ended lately? A provider that fails ends its rounds; a hung daemon does not."""
        fine = True
        for name, station in self.stations.items():
            beats, since_s = self._progress.get(name, (-1, tick_s))
            if beats != station.finished_beats:
                self._progress[name] = (station.finished_beats, tick_s)
            elif tick_s - since_s > _STUCK_FACTOR * station.interval_s + 4 * station.settings.timeout_s:
                fine = False
        return fine

    def status(self, now: datetime) -> str:
        """One line for `systemctl status`."""
        parts = [_standing(station, now) for station in self.stations.values()]
        alive = len(self.ledger.alive())
        paused = status_part(self._store, now)
        parts += [f"{alive} launches alive", *([paused] if paused else [])]
        return f"{len(self.settings.watches)} watches; {'; '.join(parts)}"

    def close(self) -> None:
        """Let what is on its way come to a point where its row says so, but not for long."""
        self.stopping.set()
        self._crew.shutdown(wait=False, cancel_futures=True)
        self.hooks.close(within_s=1.5)
        self.deliverer.close(timeout_s=1.0)


def _standing(station: Station, now: datetime) -> str:
    sight = station.watchman.sight
    if sight.blind_since is not None:
        return f"{station.name} BLIND since {sight.blind_since:%H:%M} UTC"
    if sight.complete_at is None:
        return f"{station.name} not polled yet"
    return f"{station.name} polled {(now - sight.complete_at).total_seconds():.0f} s ago"


@contextmanager
def build_service(
    settings: Settings, store: Database, extra_channels: Mapping[str, Channel] | None = None
) -> Iterator[Service]:
    """The service over an opened, upgraded database; closed at the end."""
    with http_client(settings) as http:
        service = Service(settings, store, http, extra_channels)
        try:
            yield service
        finally:
            service.close()
