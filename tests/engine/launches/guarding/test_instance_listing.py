"""A listing compared with the table: which launch has an instance, and which instances are unknown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.errors import OutcomeUnknown, ProviderDown
from gpuwatch.ports import AlertKind, Instance, InstanceState
from gpuwatch.storage.setup.database import Database
from tests.builders import changed
from tests.engine.launch_world import World, end, running

S = LaunchState


@pytest.fixture
def world(sqlite_database: Database) -> Iterator[World]:
    return World(sqlite_database)


def test_nothing_is_reconciled_before_a_whole_list_came(world: World) -> None:
    world.provider.on_list = [ProviderDown("502")]
    world.look()
    assert not world.follower.reconciled
    world.look()
    assert world.follower.reconciled


def test_what_an_account_holds_that_never_says_it_is_reported_once_and_its_return(world: World) -> None:
    """Until then nothing is rented, however long it takes: its owner must get an alert about that."""
    world.rents = True
    world.provider.on_list = [ProviderDown("HTTP 500 at users/current")] * 2000
    world.look(20)
    assert world.reported() == [], "a restart of the provider's server takes less"
    world.look(1000)
    (alert,) = world.alerts()
    assert alert.kind is AlertKind.REFUSED
    assert "gpuwatch does not rent at vastai" in alert.headline
    assert dict(alert.facts)["Last error"] == "HTTP 500 at users/current"
    assert world.follower.not_ready() is not None
    world.provider.on_list = []
    world.look(3)
    assert world.reported() == [AlertKind.RECOVERED]
    assert world.follower.not_ready() is None


def test_where_nothing_would_be_rented_it_is_no_news(world: World) -> None:
    world.provider.on_list = [ProviderDown("502")] * 2000
    world.look(1000)
    assert world.reported() == []


def test_once_a_list_came_the_next_lists_may_be_missing(world: World) -> None:
    world.rents = True
    world.look()
    world.provider.on_list = [ProviderDown("502")] * 2000
    world.look(1000)
    assert world.reported() == []


def test_a_second_instance_with_the_label_of_a_launch_is_reported(world: World) -> None:
    launch = running(world)
    world.provider.foreign("9999", label=launch.label)
    world.look(3)
    orphan = [alert for alert in world.alerts() if alert.kind is AlertKind.ORPHAN]
    assert len(orphan) == 1
    assert "second" in orphan[0].why
    assert f"Take it over: gpuwatch launches adopt {dict(orphan[0].facts)['Instance']}" in orphan[0].can_do
    assert world.provider.destroys == []


def test_an_instance_of_a_launch_that_is_over_is_reported_and_not_destroyed(world: World) -> None:
    launch = running(world)
    end(world, launch)
    destroys = len(world.provider.destroys)
    world.provider.foreign("9001", label=launch.label)
    world.look(3)
    assert AlertKind.ORPHAN in world.reported()
    assert len(world.provider.destroys) == destroys


@pytest.mark.parametrize("label", ["gpuwatch-", "gpuwatch-AAAAAAAAAAAA", "gpuwatch-abcdefghijkl2", "gpuwatch-x\ny"])
def test_what_is_labelled_like_ours_is_reported_and_never_touched(world: World, label: str) -> None:
    world.provider.foreign("5", label=label)
    world.look(3)
    assert world.reported() == [AlertKind.ORPHAN]
    assert world.provider.destroys == []


def test_after_a_lost_database_every_labelled_instance_is_reported_at_the_first_look(world: World) -> None:
    for n in range(3):
        world.provider.foreign(str(n), label=f"gpuwatch-{'abc'[n] * 12}")
    world.look()
    assert world.reported() == [AlertKind.ORPHAN] * 3


@pytest.mark.parametrize("label", [None, "my own", "gpuwatch-" + "c" * 12])
def test_an_answer_that_names_what_was_there_before_is_not_believed(world: World, label: str | None) -> None:
    """Otherwise a foreign instance would count as ours, and be ended by `max_runtime`."""
    world.provider.foreign("5", label=label)
    world.look()
    world.repository.mark_foreign("vastai", "5", world.now)  # a labelled one would hold renting
    create = world.provider.create
    world.provider.create = lambda order: changed(create(order), instance_id="5")  # type: ignore[method-assign]
    launch = world.rent()
    assert (launch.state, launch.instance_id) == (S.UNKNOWN, None)
    world.provider.turns(InstanceState.RUNNING)
    world.look()
    found = world.repository.get(launch.launch_id)
    assert found is not None
    assert (found.state, found.instance_id) == (S.RUNNING, "9000")
    world.look(1, every_s=3600)
    assert world.provider.destroys == ["9000"]


def test_a_lost_answer_that_names_what_was_there_before_is_not_believed(world: World) -> None:
    world.provider.foreign("5")
    world.look()
    world.provider.on_create = [OutcomeUnknown("an answer that is not understood", "5")]
    launch = world.rent()
    assert (launch.state, launch.instance_id) == (S.UNKNOWN, None)


def test_adopted_is_the_first_of_two_and_the_other_is_reported(world: World) -> None:
    world.provider.on_create = ["lost"]
    launch = world.rent()
    world.provider.foreign("9999", label=launch.label)
    world.look(2)
    found = world.repository.get(launch.launch_id)
    assert found is not None
    assert found.instance_id == "9000"
    assert AlertKind.ORPHAN in world.reported()


def test_a_new_database_beside_labelled_instances_rents_nothing_until_they_are_settled(world: World) -> None:
    """A lost database (L30): its rents would be repeated."""
    world.provider.alive["1"] = Instance(
        instance_id="1", label="gpuwatch-" + "c" * 12, state=InstanceState.RUNNING, status="running"
    )
    assert world.follower.not_ready() is not None
    world.look()
    assert world.follower.reconciled
    refused = world.follower.not_ready()
    assert refused is not None
    assert "gpuwatch launches adopt" in refused
    del world.provider.alive["1"]
    world.look()
    assert world.follower.not_ready() is not None, "one list that omits it proves nothing"
    world.repository.mark_foreign("vastai", "1", world.now)
    world.look()
    assert world.follower.not_ready() is None


def test_nothing_is_rented_beside_instances_of_another_installation_until_they_are_settled(world: World) -> None:
    """S6: an old backup, or a second installation on the account, exceeded `max_active`; reported after the rent."""
    world.rent()
    world.provider.foreign("1", label="gpuwatch-" + "c" * 12)
    world.look()
    reason = world.follower.not_ready()
    assert reason is not None
    assert "gpuwatch launches adopt INSTANCE --not-mine" in reason
    world.repository.mark_foreign("vastai", "1", world.now)
    world.look()
    assert world.follower.not_ready() is None


def test_an_installation_is_disowned_once_for_all(world: World) -> None:
    world.rent()
    world.provider.foreign("1", label=f"gpuwatch-{'c' * 12}-otherone-watch222")
    world.provider.foreign("2", label=f"gpuwatch-{'d' * 12}-otherone")
    world.provider.foreign("3", label=f"gpuwatch-{'e' * 12}-thirdone-watch222")
    world.look()
    world.repository.mark_foreign("vastai", "1", world.now, "otherone")
    world.look()
    reason = world.follower.not_ready()
    assert reason is not None
    assert "(3)" in reason
    world.repository.mark_foreign("vastai", "3", world.now, "thirdone")
    world.look()
    assert world.follower.not_ready() is None


def test_ones_own_installation_is_never_disowned_as_a_whole(world: World) -> None:
    """A restored backup: later instances have this installation's id."""
    launch = world.rent()
    assert launch.install_id is not None
    for number, letter in (("1", "c"), ("2", "d")):
        label = f"gpuwatch-{letter * 12}-{launch.install_id}"
        world.provider.foreign(number, label=label)
    world.look()
    world.repository.mark_foreign("vastai", "1", world.now, launch.install_id)
    world.look()
    reason = world.follower.not_ready()
    assert reason is not None
    assert "(2)" in reason


def test_what_is_unknown_is_reported_every_day_until_it_is_settled(world: World) -> None:
    world.provider.foreign("1", label="gpuwatch-" + "c" * 12)
    world.look(16, every_s=4 * 3600.0)
    assert world.reported() == [AlertKind.ORPHAN] * 4  # from noon on, 64 hours
    world.repository.mark_foreign("vastai", "1", world.now)
    world.look(12, every_s=4 * 3600.0)
    assert world.reported() == []
