"""The daemon's parts, built from the settings and joined; the clockwork drives the beats that come out of here."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch import providers
from gpuwatch.engine.act import Actor
from gpuwatch.engine.beat import Beat
from gpuwatch.engine.deliver import Deliverer
from gpuwatch.engine.evaluate import Evaluator, Rules, Start
from gpuwatch.engine.follow import Follower
from gpuwatch.engine.hunt import Hunter
from gpuwatch.engine.novelty import Novelty
from gpuwatch.engine.queries import RENTAL_TYPES
from gpuwatch.engine.reconcile import Reconciler
from gpuwatch.engine.sight import Watchman
from gpuwatch.engine.station import Station
from gpuwatch.engine.sweep import Sweeper, sweep_targets
from gpuwatch.errors import GpuwatchError
from gpuwatch.storage.desk import StoreDesk
from gpuwatch.storage.history import History
from gpuwatch.storage.ledger import Ledger
from gpuwatch.storage.outbox import Outbox
from gpuwatch.wiring import adapters, channels, database, http_client, new_id, real_now

if TYPE_CHECKING:
    from gpuwatch.net import Http
    from gpuwatch.ports import Channel
    from gpuwatch.providers import Adapter
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database
    from gpuwatch.watches.watch import Watch

log = logging.getLogger(__name__)

FOLLOW_EVERY_S = 5.0
DELIVER_EVERY_S = 2.0
SIGHT_EVERY_S = 5.0
SWEEP_LOOK_EVERY_S = 15.0
ROLL_UP_EVERY_S = 60.0
_STUCK_FACTOR = 5  # rounds without an end, after which the watchdog is not fed


class Service:
    """Everything that runs. `nudge` is set by the clockwork: run a beat now."""

    def __init__(self, settings: Settings, store: Database, http: Http, extra_channels: Mapping[str, Channel]) -> None:
        self.settings = settings
        self.stopping = threading.Event()
        self.nudge: Callable[[str], None] = lambda name: None
        self.desk = StoreDesk(store)
        self.history = History(store)
        self.ledger = Ledger(store)
        self.adapters = adapters(settings, http, stop=self.stopping)
        self.channels = {**channels(settings, http), **extra_channels}
        self.deliverer = Deliverer(Outbox(store), self.channels)
        self._crew = ThreadPoolExecutor(max_workers=4, thread_name_prefix="act")
        self._keys = {name: a.launcher for name, a in self.adapters.items() if a.launcher is not None}
        self._unreconciled = set(self._keys)
        self.evaluator = Evaluator(self.desk, self._rules(), self._start, new_id)
        self.stations = {name: self._station(name, adapter) for name, adapter in self.adapters.items()}
        self._progress: dict[str, tuple[int, float]] = {}

    # --- what is built ------------------------------------------------------------------------------------------------

    def _watches_at(self, provider: str) -> list[Watch]:
        return [w for w in self.settings.watches if w.providers is None or provider in w.providers]

    def _rules(self) -> Rules:
        settings = self.settings
        expected = {
            watch.name: frozenset(
                (name, spot)
                for name in settings.providers
                if watch.providers is None or name in watch.providers
                for spot in RENTAL_TYPES[watch.spot]
            )
            for watch in settings.watches
        }
        slowest_s = max((provider.poll_every_s for provider in settings.providers.values()), default=30.0)
        return Rules(
            commissions={name: provider.commission for name, provider in settings.providers.items()},
            budget=settings.budget,
            dry_run=settings.dry_run,
            channels=tuple(self.channels),
            zone=ZoneInfo(settings.timezone),
            views_expected=expected,
            max_age=timedelta(seconds=3 * slowest_s + 60),
            links={n: url for n in settings.providers if (url := providers.info(n).console_url) is not None},
            not_ready=self._not_ready,
        )

    def _station(self, name: str, adapter: Adapter) -> Station:
        provider, told = self.settings.providers[name], tuple(self.channels)
        watchman = Watchman(name, self.desk, told, new_id, real_now())
        station = Station(provider, self.history, watchman, Novelty(name, self.desk, told, new_id), real_now)
        mine = self._watches_at(name)
        hunter = Hunter(
            adapter.market, mine, provider.commission, self.evaluator, station.keep_hunt, self.stopping
        )
        sweeper = Sweeper(
            adapter.market, sweep_targets(mine, self.settings.record_gpus), station.keep_sweep, self.stopping
        )
        station.man(hunter if mine else None, sweeper)
        return station

    # --- launches -----------------------------------------------------------------------------------------------------

    def _not_ready(self, provider: str) -> str | None:
        """Nothing new is rented before what was rented is known (CONTRACT §4.1)."""
        if provider not in self._keys:
            return f"there is no key for {provider}"
        if provider in self._unreconciled:
            return f"what gpuwatch rented at {provider} before its start is still being looked up"
        return None

    def _start(self, start: Start) -> None:
        self._crew.submit(self._act, start)
        self.nudge("deliver")

    def _act(self, start: Start) -> None:
        try:
            self.actor.act(start.launch, start.watch, start.candidates, start.observed_at)
        except GpuwatchError as error:
            log.error("launch %s: %s", start.launch.launch_id, error)  # noqa: TRY400 the row says where it stands
        except Exception:
            log.exception("launch %s stopped in the middle; its row is taken up again", start.launch.launch_id)
        self.nudge("deliver")
