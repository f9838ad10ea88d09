"""A list that omits an active instance: a lookup by id comes before the instance counts as missing."""

from __future__ import annotations

import pytest

from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.errors import ProviderDown
from gpuwatch.ports import AlertKind, InstanceState
from gpuwatch.storage.setup.database import Database
from tests.builders import changed
from tests.engine.launch_world import RENTS, World, match_on, stop
from tests.engine.lying_provider import AskableProvider

S = LaunchState


@pytest.fixture
def provider() -> AskableProvider:
    return AskableProvider()


@pytest.fixture
def world(sqlite_database: Database, provider: AskableProvider) -> World:
    return World(sqlite_database, changed(RENTS, launch=LaunchSpec(max_active=2, max_total=0)), provider)


@pytest.fixture
def pair(world: World) -> tuple[Launch, Launch]:
    """Two running instances: the second is the canary of every list."""
    launches = world.rent(match_on("1", "11")), world.rent(match_on("2", "22"))
    world.provider.turns(InstanceState.RUNNING)
    world.look()
    return launches


def orphans(world: World) -> list[str]:
    return [alert.subject for alert in world.alerts() if alert.kind is AlertKind.ORPHAN]


def test_what_a_list_omits_is_alive_if_the_provider_says_so(
    world: World, provider: AskableProvider, pair: tuple[Launch, Launch]
) -> None:
    provider.omitted = {"9000"}
    world.look(60, every_s=30)
    assert [world.state(launch) for launch in pair] == [S.RUNNING, S.RUNNING]
    assert set(provider.asked) == {"9000"}  # nothing that a list shows


def test_what_neither_the_list_nor_its_id_finds_is_gone(
    world: World, provider: AskableProvider, pair: tuple[Launch, Launch]
) -> None:
    del provider.alive["9000"]
    world.look(30, every_s=30)
    assert [world.state(launch) for launch in pair] == [S.ENDED, S.RUNNING]


def test_nothing_is_gone_while_nobody_answers_for_it(
    world: World, provider: AskableProvider, pair: tuple[Launch, Launch]
) -> None:
    del provider.alive["9000"]
    provider.on_get = [ProviderDown("502")] * 60
    world.look(59, every_s=30)
    assert [world.state(launch) for launch in pair] == [S.RUNNING, S.RUNNING]


def test_an_end_is_ordered_though_nobody_answers_for_it(
    world: World, provider: AskableProvider, pair: tuple[Launch, Launch]
) -> None:
    provider.omitted = {"9000", "9001"}
    provider.on_get = [ProviderDown("502")] * 1000
    for launch in pair:
        stop(world, launch)
    world.look(2)
    assert provider.alive == {}


def test_what_was_ended_and_is_listed_again_is_ended_again(world: World, provider: AskableProvider) -> None:
    """A destroy is answered 404, the lists are empty for a while, and then the instance is back."""
    launch = world.rent()
    world.provider.turns(InstanceState.RUNNING)
    world.look()
    stop(world, launch)
    instance = provider.alive["9000"]
    world.look(5)
    assert world.state(launch) is S.ENDED
    provider.alive["9000"] = instance
    world.look()
    assert provider.alive == {}
    assert world.state(launch) is S.STOPPING  # it counts until its end is proven again
    world.look(5)
    assert world.state(launch) is S.ENDED
    assert orphans(world) == [launch.launch_id]


def test_what_comes_back_again_and_again_is_reported_once_a_day(world: World, provider: AskableProvider) -> None:
    launch = world.rent()
    world.provider.turns(InstanceState.RUNNING)
    world.look()
    stop(world, launch)
    instance = provider.alive["9000"]
    world.look(5)
    for _ in range(5):
        provider.alive["9000"] = instance
        world.look(1, every_s=6 * 3600)
        world.look(5)
    assert len(provider.destroys) == 1 + 5
    assert orphans(world) == [launch.launch_id] * 2


def test_a_list_that_lags_behind_an_end_is_no_return(world: World, provider: AskableProvider) -> None:
    launch = world.rent()
    world.provider.turns(InstanceState.RUNNING)
    world.look()
    stop(world, launch)
    instance = provider.alive["9000"]
    world.look(5)
    provider.stale = [instance]
    world.look(3)
    assert len(provider.destroys) == 1
    assert orphans(world) == []


def test_an_end_that_the_list_claims_and_its_id_denies_is_sent_again(
    world: World, provider: AskableProvider, pair: tuple[Launch, Launch]
) -> None:
    provider.omitted = {"9000"}
    provider.destroy_lies = True
    stop(world, pair[0])
    world.look(20, every_s=30)
    assert world.state(pair[0]) is S.STOPPING
    provider.destroy_lies = False
    world.look(5)
    assert world.state(pair[0]) is S.ENDED
    assert set(provider.alive) == {"9001"}


@pytest.mark.parametrize(("is_placed", "end"), [(True, EndReason.BROKEN), (False, EndReason.NO_CAPACITY)])
def test_a_start_that_the_provider_states_to_be_over_fails_at_once(
    world: World, provider: AskableProvider, is_placed: bool, end: EndReason
) -> None:
    """Whether any list ever showed it or not: the slot is free for the next offer within seconds."""
    launch = world.rent()
    provider.ends("9000", "terminated: Server.InternalError", is_placed=is_placed)
    world.look(5, every_s=3)
    found = world.repository.get(launch.launch_id)
    assert found is not None
    assert (found.state, found.counts) == (S.FAILED, False)
    assert found.end_reason == end.text("terminated: Server.InternalError")
    assert provider.destroys == ["9000"]  # repeating an end does no harm


def test_the_end_of_what_ran_is_still_proven_by_several_answers(
    world: World, provider: AskableProvider, pair: tuple[Launch, Launch]
) -> None:
    provider.ends("9000", "terminated")
    world.look(3, every_s=10)
    assert world.state(pair[0]) is S.RUNNING
    world.look(10, every_s=10)
    assert [world.state(launch) for launch in pair] == [S.ENDED, S.RUNNING]
    assert provider.destroys == []


def test_what_the_provider_deletes_before_it_starts_has_failed(world: World, provider: AskableProvider) -> None:
    launch = world.rent()
    provider.turns(InstanceState.ENDING, "deleting")
    world.look(5, every_s=3)
    assert world.state(launch) is S.FAILED


def test_what_the_provider_deletes_while_it_runs_is_left_to_it(
    world: World, provider: AskableProvider, pair: tuple[Launch, Launch]
) -> None:
    provider.turns(InstanceState.ENDING, "deleting")
    world.look(5, every_s=3)
    assert [world.state(launch) for launch in pair] == [S.RUNNING, S.RUNNING]
    assert provider.destroys == []
