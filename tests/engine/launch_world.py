"""A real database, an executor and a reconciler, with a provider that may lie."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from gpuwatch.domain.launches.instances.obligation import Obligation
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal, LaunchState
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.following.launch_reconciler import LaunchReconciler
from gpuwatch.engine.launches.guarding.guard import ProviderGuard
from gpuwatch.engine.launches.renting.candidate_loop import ProviderContext
from gpuwatch.engine.launches.renting.launch_executor import LaunchExecutor
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.ports import Alert, AlertKind, InstanceState
from gpuwatch.remote.ssh_probe import SshProbe
from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database
from tests.builders import a_match, a_watch, an_offer, seen_at
from tests.engine.lying_provider import LyingProvider
from tests.engine.uow_fakes import NOON, ScriptedMarket, an_answer
from tests.outbox import new_alerts
from tests.reserving import launch_or_refusal

S = LaunchState
RENTS = a_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=3600.0, ready_within_s=900.0))


class AnyAccount:
    """Every launch belongs to the only account, as in a simulation."""

    def identify(self, now: datetime) -> None:
        """Do nothing: there is nothing to find."""

    def own(self, launches: Sequence[Launch]) -> list[Launch]:
        """Return all launches."""
        return list(launches)

    def claimed(self, launches: Sequence[Launch], is_listed: Callable[[Launch], bool]) -> list[Launch]:
        """Return all launches."""
        return list(launches)

    def is_reached(self, launch: Launch) -> bool:
        """Return True."""
        return True

    @property
    def account_id(self) -> None:
        """None: there is only one account."""
        return

    def is_same(self, account_id: str | None) -> bool:
        """Return True."""
        return True


class World:
    """A real database, an executor and a reconciler, with a provider that may lie."""

    def __init__(self, store: Database, watch: Watch = RENTS, provider: LyingProvider | None = None) -> None:
        self.store = store
        self.watch = watch
        self.now = NOON
        self.tick_s = 0.0
        self.rents = False  # whether the settings allow real rents
        self.provider = provider or LyingProvider()
        self.market = ScriptedMarket(an_answer(an_offer()))
        self.for_rent = ScriptedMarket(an_answer())  # market for offers of missing instances
        self.ids = (f"{'a' * 9}{chr(97 + n // 26)}{chr(97 + n % 26)}b" for n in itertools.count())
        self.repository = SqlLaunchRepository(store)
        self.budget = Budget()
        self.freed: Callable[[Launch], None] = lambda launch: None
        self.open_obligations: list[Obligation] = []  # in the keeper's file
        self.obligations: Callable[[], Sequence[Obligation]] = lambda: tuple(self.open_obligations)
        self.generation = 0  # of the database
        self.start_process()

    def start_process(self) -> None:
        """Start a new process on the same database, with empty memory."""
        launch_alerts = LaunchAlerts(lambda: next(self.ids))
        self.slots = LaunchSlots()
        watches = {self.watch.name: self.watch}
        self.guard = ProviderGuard(
            self.repository,
            SqlUtilisationRepository(self.store),
            self.provider,
            SshProbe(),
            launch_alerts,
            watches=watches,
            budget=self.budget,
            zone=UTC,
        )
        self.follower = LaunchReconciler(
            self.repository,
            self.provider,
            launch_alerts,
            watches=watches,
            in_flight=self.slots.in_flight,
            monotonic=lambda: self.tick_s,
            freed=self.freed,
            guard=self.guard,
            market=self.for_rent,
            rents=lambda: self.rents,
            obligations=self.obligations,
            close_obligation=self.open_obligations.remove,
            generation=lambda: self.generation,
            owner=AnyAccount(),  # type: ignore[arg-type]
        )
        context = ProviderContext(self.provider, self.market, Commission("0.20"), reconciler=self.follower)
        self.executor = LaunchExecutor(
            self.repository, {"vastai": context}, launch_alerts, lambda: self.now, self.budget, self.slots
        )

    def reserve(self, *matches: Match, budget: Budget | None = None, dry_run: bool = False) -> Launch | LaunchRefusal:
        first, *others = matches or (a_match(),)
        intent = Intent(
            watch=self.watch, match=first, launch_id=next(self.ids), dry_run=dry_run, alternatives=tuple(others)
        )
        with self.store.write() as connection:
            return launch_or_refusal(connection, intent, budget or self.budget, self.now)

    def rent(self, *matches: Match) -> Launch:
        launch = self.reserve(*matches)
        assert isinstance(launch, Launch)
        return self.execute(launch, *(matches or (a_match(),)))

    def execute(self, launch: Launch, *matches: Match, seen_s_ago: float = 0.0) -> Launch:
        """Rent it; the prices were observed this long ago."""
        at = self.now - timedelta(seconds=seen_s_ago)
        return self.executor.execute(launch, self.watch, [seen_at(match, at) for match in matches])

    def look(self, times: int = 1, every_s: float = 5.0) -> None:
        for _ in range(times):
            self.pass_s(every_s)
            self.follower.reconcile(self.now)

    def pass_s(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.tick_s += seconds

    def state(self, launch: Launch) -> LaunchState:
        found = self.repository.get(launch.launch_id)
        assert found is not None
        return found.state

    def reported(self) -> list[AlertKind]:
        return [alert.kind for alert in self.alerts()]

    def alerts(self) -> list[Alert]:
        """Return the alerts since the last call."""
        return new_alerts(self.store)


def match_on(machine: str, offer_id: str, listed: float = 3.0) -> Match:
    return a_match(an_offer(machine_id=machine, offer_id=offer_id, quoted_usd_hour=listed))


def running(world: World) -> Launch:
    launch = world.rent()
    world.provider.turns(InstanceState.RUNNING)
    world.look()
    return launch


def stop(world: World, launch: Launch) -> None:
    found = world.repository.get(launch.launch_id)
    assert found is not None
    world.repository.transition(found, S.STOPPING, "stopped by the owner", world.now, end_reason="stopped by the owner")


def end(world: World, launch: Launch) -> None:
    stop(world, launch)
    world.look(5)
    assert world.state(launch) is S.ENDED
