"""Some hundred launches on a virtual clock: real ledger, actor, follower and outbox over a marketplace that lies."""

from __future__ import annotations

import itertools
import logging
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
from sqlalchemy import select

from gpuwatch.domain.launches.labels import LABEL_PREFIX, launch_id_in
from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchConflict, LaunchState
from gpuwatch.domain.market.pricing import Commission
from gpuwatch.domain.watches.watch import Action, BidSpec, Budget, LaunchSpec, Watch
from gpuwatch.engine.candidate_loop import ProviderContext
from gpuwatch.engine.launch_alerts import LaunchAlerts
from gpuwatch.engine.launch_executor import LaunchExecutor
from gpuwatch.engine.launch_reconciler import LaunchReconciler
from gpuwatch.engine.launch_slots import LaunchSlots
from gpuwatch.ports import Instance, InstanceState
from gpuwatch.storage.database import Database, open_database
from gpuwatch.storage.launch_repository import SqlLaunchRepository
from gpuwatch.storage.outbox import Outbox
from gpuwatch.storage.tables import alert, delivery, metadata
from tests.builders import NOON, a_match, a_watch, an_offer
from tests.engine.uow_fakes import ScriptedMarket, an_answer
from tests.reserving import launch_or_refusal
from tests.soak.lying_market import Died, LyingMarket

BUDGET = Budget(max_usd_hour=Decimal(13), max_instances=4)
LONGEST_USD_HOUR = 13.0
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a commit costs nothing there
PROMISES = ("doubles", "too many at once", "orphans", "lost alerts", "budget overruns", "never at rest")
S = LaunchState


def _watch(name: str, active: int, **spec: object) -> Watch:
    plain = {"max_active": active, "max_total": 0, "max_runtime_s": 7200.0, "ready_within_s": 900.0, "quote_ttl_s": 1e9}
    return a_watch(name=name, action=Action.LAUNCH, launch=LaunchSpec(**(plain | spec)))  # type: ignore[arg-type]


WATCHES = {
    watch.name: watch
    for watch in (
        _watch("one", 1),
        _watch("two", 2),
        _watch("again", 1, relaunch=True),
        _watch("bid", 1, relaunch=True, bid=BidSpec(max_usd_gpu_hour=Decimal("3.5"))),
    )
}


class Chapter:
    """One seeded run. `counts` says what happened; the keys of PROMISES must stay 0."""

    def __init__(self, store: Database, seed: int) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(PROMISES, 0))
        self._rng = random.Random(seed)
        self._store = store
        self._prices: dict[str, float] = {}
        self.market = LyingMarket(self._rng, self._prices)
        self._repository = SqlLaunchRepository(store)
        self._outbox = Outbox(store)
        self._now: datetime = NOON
        self._ids = ("".join(letters) for letters in itertools.product("abcdefghijklmnop", repeat=12))
        self._offers = itertools.count(1)
        self._reported: set[str] = set()
        self._watch_of: dict[str, str] = {}
        if self._rng.random() < 0.8:  # an account with somebody else's instance: absence can be proven
            self._foreign_instance("1", None)
        self._start()

    def play(self, launches: int) -> None:
        """Fire until so many launches were begun, then let everything come to rest."""
        while self.counts["launches"] < launches:
            self._fire()
            for _ in range(self._rng.randint(1, 4)):
                self._look(self._rng.choice((3.0, 10.0, 30.0, 300.0)))
            self._something_happens()
        self._rest()

    # --- gpuwatch -----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """A new process: nothing is left in memory."""
        launch_alerts = LaunchAlerts(lambda: next(self._ids))
        context = ProviderContext(self.market, ScriptedMarket(an_answer()), Commission("0.20"))
        slots = LaunchSlots()
        self._actor = LaunchExecutor(
            self._repository, {"vastai": context}, launch_alerts, lambda: self._now, BUDGET, slots
        )
        self._follower = LaunchReconciler(
            self._repository, self.market, launch_alerts, watches=WATCHES, in_flight=slots.in_flight,
            monotonic=lambda: self.market.tick_s,
        )  # fmt: skip

    def _fire(self) -> None:
        """A watch sees offers; the daemon rents only where it has looked before."""
        if not self._follower.reconciled:
            return
        watch = WATCHES[self._rng.choice(sorted(WATCHES))]
        spot = watch.launch is not None and watch.launch.bid is not None
        numbers = [str(next(self._offers)) for _ in range(3)]
        self._prices.update((number, self._rng.choice((1.0, 2.0, 2.9))) for number in numbers)
        matches = tuple(
            a_match(an_offer(offer_id=n, machine_id=n, spot=spot, min_bid_usd_hour=0.5 if spot else None,
                             quoted_usd_hour=self._prices[n], observed_at=self._now))
            for n in numbers
        )  # fmt: skip
        intent = Intent(watch=watch, match=matches[0], launch_id=next(self._ids), dry_run=False, others=matches[1:])
        with self._store.write() as connection:
            launch = launch_or_refusal(connection, intent, BUDGET, self._now)
        if not isinstance(launch, Launch):
            self.counts[f"refused: {launch.reason.value}"] += 1
            return
        self.counts["launches"] += 1
        self._watch_of[launch.label] = watch.name
        try:
            self._actor.execute(launch, watch, matches)
        except LaunchConflict:
            self.counts["moved"] += 1
        except Died:
            self._restart()
        self._audit()

    def _look(self, seconds: float) -> None:
        self._wait(seconds)
        self.market.turn()
        try:
            self._follower.reconcile(self._now)
        except Died:
            self._restart()
        self._deliver()
        self._audit()

    def _restart(self) -> None:
        self.counts["restarts"] += 1
        self._start()

    def _route(self) -> None:
        self._outbox.route({one.alert.alert_id: ("telegram",) for one in self._outbox.unrouted()}, self._now)

    def _deliver(self) -> None:
        """The channel takes what is due, and now and then the sender dies before or after."""
        self._route()
        for due in self._outbox.lease(self._now, 100, 60.0):
            lot = self._rng.random()
            if lot > 0.03:
                self.counts["alerts sent"] += 1
            if lot > 0.06:
                self._outbox.settle_sent(due, self._now)

    # --- the world ----------------------------------------------------------------------------------------------------

    def _something_happens(self) -> None:
        lot = self._rng.random()
        if lot < 0.05:
            self._restart()
        elif lot < 0.10:
            self._now += timedelta(hours=self._rng.choice((-1, 1)))
            self.counts["clock steps"] += 1
        elif lot < 0.15:
            self._owner_stops()
        elif lot < 0.17:
            self._foreign_instance(
                f"s{next(self._offers)}", LABEL_PREFIX + "z" * 10 + self._rng.choice(("aa", "bb", "cc"))
            )
        elif lot < 0.60:
            self._wait(self._rng.choice((60.0, 700.0, 3600.0)))
        self._owner_resolves()

    def _wait(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self.market.pass_s(seconds)

    def _owner_stops(self) -> None:
        alive = [one for one in self._repository.alive() if one.state is not S.STOPPING]
        if alive:
            reason = EndReason.STOPPED.text()
            self._repository.transition(self._rng.choice(alive), S.STOPPING, reason, self._now, end_reason=reason)

    def _owner_resolves(self) -> None:
        """After a true look, an hour later: nothing is on its way any more."""
        held = [launch for launch in self._repository.alive() if launch.state is S.HELD]
        if not held:
            return
        self.counts["held"] += len(held)
        self._wait(3600.0)
        for launch in held:
            found = [i for i, instance in self.market.alive.items() if instance.label == launch.label]
            if found:
                self._repository.transition(launch, S.STARTING, "adopted", self._now, instance_id=found[0])
            else:
                reason = EndReason.RESOLVED_ABSENT.text()
                self._repository.transition(launch, S.FAILED, reason, self._now, ended_at=self._now, end_reason=reason)

    def _foreign_instance(self, instance_id: str, label: str | None) -> None:
        self.market.alive[instance_id] = Instance(
            instance_id=instance_id, label=label, state=InstanceState.RUNNING, status="running"
        )

    def _rest(self) -> None:
        """The marketplace is honest again: everything is found and comes to its end, or is held."""
        self.market.honest = True
        for _ in range(60):  # what runs is ended by its `max_runtime` in that time, too
            self._look(300.0)
            if not self._repository.alive():
                break
        self._now += timedelta(hours=2)  # leases lapse
        self._deliver_all()
        left = [one for one in self._repository.alive() if one.state is not S.HELD]
        self.counts["never at rest"] += len(left)
        self._count_orphans()
        self._count_alerts()

    def _deliver_all(self) -> None:
        while self._outbox.unrouted():
            self._route()
        while dues := self._outbox.lease(self._now, 100, 60.0):
            for due in dues:
                self._outbox.settle_sent(due, self._now)

    # --- the promises -------------------------------------------------------------------------------------------------

    def _audit(self) -> None:
        made = Counter(self.market.made)
        self.counts["creates"] = len(self.market.made)
        self.counts["doubles"] = sum(count - 1 for count in made.values())
        ours = {i: one for i, one in self.market.alive.items() if one.label in self._watch_of}
        alive = Counter(self._watch_of[str(one.label)] for one in ours.values())
        for name, count in alive.items():
            spec = WATCHES[name].launch
            self.counts["too many at once"] += spec is not None and count > spec.max_active
        spent = sum(self.market.rented_usd[i] * 1.2 for i in ours)
        self.counts["budget overruns"] += spent > LONGEST_USD_HOUR or len(ours) > 4

    def _count_orphans(self) -> None:
        """What lives, carries our label and belongs to no living launch, without the owner knowing."""
        with self._store.read() as connection:
            bodies = connection.execute(select(alert.c.body).where(alert.c.kind == "orphan")).scalars().all()
        reported = {dict(msgspec.json.decode(body)["facts"])["Instance"] for body in bodies}
        for instance_id, instance in self.market.alive.items():
            if not (instance.label or "").startswith(LABEL_PREFIX):
                continue
            launch_id = launch_id_in(instance.label)
            launch = None if launch_id is None else self._repository.get(launch_id)
            if launch is None or launch.is_over:
                self.counts["reported foreign instances" if instance_id in reported else "orphans"] += 1

    def _count_alerts(self) -> None:
        with self._store.read() as connection:
            rows = connection.execute(select(delivery.c.alert_id, delivery.c.state)).all()
            written = connection.execute(select(alert.c.alert_id)).scalars().all()
        queued = {row.alert_id: row.state for row in rows}
        self.counts["alerts"] = len(written)
        self.counts["lost alerts"] = sum(queued.get(one) != "sent" for one in written)


@contextmanager
def chapter(seed: int) -> Iterator[Chapter]:
    """A fresh database, in memory where there is room for it."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        store = open_database(f"sqlite:///{folder}/soak.db")
        metadata.create_all(store.engine)
        try:
            yield Chapter(store, seed)
        finally:
            store.close()
            logging.disable(logging.NOTSET)


def played(seed: int, launches: int) -> tuple[Counter[str], dict[str, int]]:
    """The counts of one chapter, and the lies that were reported in it."""
    with chapter(seed) as one:
        one.play(launches)
        return one.counts, one.market.lies
