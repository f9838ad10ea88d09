"""An order that the keeper does not know is not sent; before_stop starts early enough for the keeper."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuwatch.domain.launches.instances.end_rules import hook_must_begin
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.launch_spec import HookSpec, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.renting.candidate_loop import ProviderContext
from gpuwatch.engine.launches.renting.launch_executor import LaunchExecutor
from gpuwatch.errors import StoreError
from gpuwatch.ports.store import NoObligationLog
from gpuwatch.storage.setup.database import Database
from tests.builders import a_match, a_watch, changed, seen_at
from tests.engine.launch_world import World
from tests.engine.uow_fakes import NOON


class Recorder(NoObligationLog):
    """The recorded obligations, each with the number of orders sent before it."""

    def __init__(self, world: World, error: StoreError | None = None) -> None:
        self.world = world
        self.error = error
        self.orders_before: list[int] = []

    def record_order(self, launch: Launch, hook_s: float) -> None:
        self.orders_before.append(len(self.world.provider.orders))
        if self.error:
            raise self.error


def rent(world: World, recorder: Recorder) -> Launch:
    context = ProviderContext(world.provider, world.market, Commission("0.20"), obligations=recorder)
    executor = LaunchExecutor(
        world.repository, {"vastai": context}, LaunchAlerts(lambda: next(world.ids)), lambda: world.now
    )
    launch = world.reserve()
    assert isinstance(launch, Launch)
    return executor.execute(launch, world.watch, [seen_at(a_match(), world.now)])


def test_an_order_is_written_down_before_it_is_sent(database: Database) -> None:
    world = World(database)
    recorder = Recorder(world)
    assert rent(world, recorder).state is LaunchState.STARTING
    assert recorder.orders_before == [0]


def test_an_order_that_cannot_be_written_down_is_not_sent(database: Database) -> None:
    world = World(database)
    launch = rent(world, Recorder(world, StoreError("cannot write obligations.jsonl: No space left on device")))
    assert world.provider.orders == []
    assert launch.state is LaunchState.FAILED
    assert "No space left" in (launch.end_reason or "")


def a_hooked(timeout_s: float) -> Watch:
    hook = HookSpec(command="save")
    return a_watch(
        action=Action.LAUNCH,
        launch=LaunchSpec(max_runtime_s=3600.0, ready_within_s=900.0, before_stop=hook, hook_timeout_s=timeout_s),
    )


@pytest.mark.parametrize(
    ("timeout_s", "early_s"),
    [(30.0, None), (50.0, None), (300.0, 250.0)],
    ids=["short: at the end", "a minute: at the end", "long: early"],
)
def test_a_hook_is_over_a_minute_after_the_end_however_long_it_takes(
    database: Database, timeout_s: float, early_s: float | None
) -> None:
    launch = changed(World(database).rent(), state=LaunchState.RUNNING, running_at=NOON)
    watch, end = a_hooked(timeout_s), NOON + timedelta(hours=1)
    if early_s is None:
        assert hook_must_begin(launch, watch, end) is None
        return
    begins = end - timedelta(seconds=early_s)
    assert hook_must_begin(launch, watch, begins - timedelta(seconds=1)) is None
    cause = hook_must_begin(launch, watch, begins)
    assert cause is not None
    assert cause[0] is EndReason.MAX_RUNTIME
