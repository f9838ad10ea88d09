"""An ended launch whose instance is listed again: it runs, it is billed, and it is ours."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.renting.reminders import send_reminders
from gpuwatch.errors import OutcomeUnknown
from gpuwatch.ports import AlertKind, Instance, InstanceState
from gpuwatch.storage.setup.database import Database
from tests.builders import changed
from tests.engine.launch_world import RENTS, World, match_on, running, stop
from tests.engine.lying_provider import AskableProvider

S = LaunchState
LONG = changed(RENTS, launch=LaunchSpec(max_active=1, max_total=0, max_runtime_s=30 * 86400.0, ready_within_s=900.0))


@pytest.fixture
def provider() -> AskableProvider:
    return AskableProvider()


@pytest.fixture
def world(sqlite_database: Database, provider: AskableProvider) -> World:
    return World(sqlite_database, LONG, provider)


def gone(world: World, provider: AskableProvider) -> tuple[Launch, Instance]:
    """One that ran, and that lists and lookups denied for long enough."""
    launch = running(world)
    [instance] = provider.alive.values()
    provider.alive.clear()
    world.look(12, every_s=10.0)
    assert world.state(launch) is S.ENDED
    world.alerts()
    return launch, instance


def back(provider: AskableProvider, instance: Instance) -> None:
    provider.alive[instance.instance_id] = instance


def as_stored(world: World, launch: Launch) -> Launch:
    found = world.repository.get(launch.launch_id)
    assert found is not None
    return found


def test_what_is_back_under_a_label_of_its_owner_is_known_by_its_id(world: World, provider: AskableProvider) -> None:
    launch, instance = gone(world, provider)
    back(provider, changed(instance, label="my own name"))
    world.look()
    assert world.state(launch) is S.RUNNING


def test_what_was_disowned_is_not_taken_back(world: World, provider: AskableProvider) -> None:
    launch, instance = gone(world, provider)
    world.repository.mark_foreign("vastai", instance.instance_id, world.now)
    back(provider, changed(instance, label="my own name"))
    world.look()
    assert world.state(launch) is S.ENDED


def test_what_was_called_gone_and_runs_is_followed_again(world: World, provider: AskableProvider) -> None:
    """S2: it ran on without `max_runtime`, counted nowhere, and was reported only once."""
    launch, instance = gone(world, provider)
    back(provider, instance)
    world.look()
    found = as_stored(world, launch)
    assert (found.state, found.ended_at, found.end_reason) == (S.RUNNING, None, None)
    assert found.running_at is not None
    [alert] = world.alerts()
    assert (alert.kind, alert.subject, "Cost so far" in dict(alert.facts)) == (AlertKind.ORPHAN, launch.launch_id, True)
    world.look(1, every_s=31 * 86400.0)
    assert provider.alive == {}  # its `max_runtime` holds again


def test_it_counts_at_once(world: World, provider: AskableProvider) -> None:
    _, instance = gone(world, provider)
    back(provider, instance)
    world.look()
    refused = world.reserve(match_on("2", "22"))
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.MAX_ACTIVE


def test_it_counts_beside_the_one_that_replaced_it(world: World, provider: AskableProvider) -> None:
    """Its slot and its offer were taken; both launches are active, and nothing more is rented."""
    launch, instance = gone(world, provider)
    second = world.rent()
    back(provider, instance)
    world.look()
    found = as_stored(world, launch)
    assert (found.state, found.slot, found.offer_slot) == (S.RUNNING, 1, 1)
    assert world.state(second) is S.STARTING
    assert isinstance(world.reserve(match_on("2", "22")), LaunchRefusal)


def test_what_was_to_end_is_ended_again_and_counts_until_it_is_gone(world: World, provider: AskableProvider) -> None:
    launch = running(world)
    [instance] = provider.alive.values()
    stop(world, launch)
    world.look(5)
    back(provider, instance)
    world.look()
    assert (world.state(launch), provider.alive) == (S.STOPPING, {})
    assert isinstance(world.reserve(match_on("2", "22")), LaunchRefusal)
    world.look(5)
    found = as_stored(world, launch)
    assert (found.state, found.ended_because(EndReason.STOPPED)) == (S.ENDED, True)


def test_an_order_that_takes_effect_after_its_absence_was_proven_is_followed(
    world: World, provider: AskableProvider
) -> None:
    provider.balance_usd = 100.0
    world.provider.foreign("1")
    world.look()
    provider.alive["1"] = changed(provider.alive["1"], listed_usd_hour=0.0)
    provider.on_create = [OutcomeUnknown("502")]
    launch = world.rent()
    world.look(40, every_s=60.0)
    assert world.state(launch) is S.FAILED
    back(provider, Instance(instance_id="77", label=launch.label, state=InstanceState.STARTING, status="loading"))
    world.look()
    found = as_stored(world, launch)
    assert (found.state, found.instance_id) == (S.STARTING, "77")
    provider.turns(InstanceState.RUNNING)
    world.look()
    assert world.state(launch) is S.RUNNING  # its time to get ready counts from its return


def test_a_list_that_shows_what_its_id_denies_reopens_nothing_and_is_reported_if_it_lasts(
    world: World, provider: AskableProvider
) -> None:
    launch, instance = gone(world, provider)
    provider.stale = [instance]
    world.look(5)
    assert (world.state(launch), world.reported()) == (S.ENDED, [])
    world.look(30, every_s=30.0)
    assert (world.state(launch), world.reported()) == (S.ENDED, [AlertKind.BLIND])


def test_a_week_after_its_end_it_is_an_unknown_instance(world: World, provider: AskableProvider) -> None:
    launch, instance = gone(world, provider)
    world.pass_s(timedelta(days=7, hours=1).total_seconds())
    back(provider, instance)
    world.look()
    assert (world.state(launch), world.reported()) == (S.ENDED, [AlertKind.ORPHAN])
    assert world.follower.not_ready() is not None


def test_it_is_reported_daily_until_it_is_over(world: World, provider: AskableProvider) -> None:
    launch, instance = gone(world, provider)
    back(provider, instance)
    days = []
    for _ in range(8):
        world.look(1, every_s=6 * 3600.0)
        send_reminders(world.repository, LaunchAlerts(lambda: next(world.ids)), {"vastai"}, world.now)
        days += [alert.subject for alert in world.alerts() if alert.kind is AlertKind.ORPHAN]
    assert days == [launch.launch_id] * 3
    stop(world, launch)
    world.look(5)
    assert world.repository.reopened() == []
