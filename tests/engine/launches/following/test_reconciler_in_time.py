"""No instance outlives its time, whatever fails; and none is ended early."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpuwatch.domain.launches.instances.end_rules import EndCause
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.errors import PartlyDone, ProviderDown, StoreError
from gpuwatch.ports import Instance, InstanceState, OutboxAlert
from gpuwatch.storage.setup.database import Database
from tests.builders import changed
from tests.engine.launch_world import RENTS, World, match_on, running, stop

S = LaunchState
TWO = changed(RENTS, launch=LaunchSpec(max_active=2, max_total=0, max_runtime_s=3600.0))


@pytest.fixture
def world(sqlite_database: Database) -> Iterator[World]:
    return World(sqlite_database)


class Slow:
    """A guard that does not know yet whether the instance matches its offer."""

    def fault(self, launch: Launch, instance: Instance, now: datetime) -> EndCause | None:
        return None

    def due(self, launch: Launch, now: datetime) -> EndCause | None:
        return None

    def verified(self, launch: Launch, instance: Instance, now: datetime) -> bool | EndCause:
        return False


class Broken(Slow):
    """A guard that fails for one launch."""

    def __init__(self, launch_id: str, error: Exception) -> None:
        self.launch_id = launch_id
        self.error = error

    def fault(self, launch: Launch, instance: Instance, now: datetime) -> EndCause | None:
        return self.due(launch, now)

    def due(self, launch: Launch, now: datetime) -> EndCause | None:
        if launch.launch_id == self.launch_id:
            raise self.error
        return None

    def verified(self, launch: Launch, instance: Instance, now: datetime) -> bool | EndCause:
        return True


def test_the_time_to_boot_is_not_counted_twice_while_it_is_verified(world: World) -> None:
    launch = world.rent()
    world.follower._guard = Slow()
    world.look()
    world.pass_s(480)
    world.provider.turns(InstanceState.RUNNING)
    world.look(3)
    assert (world.state(launch), world.provider.destroys) == (S.STARTING, [])


@pytest.mark.parametrize("error", [StoreError("the disk is full"), ValueError("a rule of ours is wrong")])
@pytest.mark.parametrize("listing", ["shows it", "empty", "down"])
def test_a_guard_that_breaks_holds_no_end_up(world: World, error: Exception, listing: str) -> None:
    launch = running(world)
    world.follower._guard = Broken(launch.launch_id, error)
    world.provider.on_list = {"shows it": [], "empty": ["empty"], "down": [ProviderDown("502")]}[listing]
    world.look(1, every_s=3600)
    assert (world.state(launch), world.provider.alive) == (S.STOPPING, {})


def test_trouble_with_one_launch_keeps_no_other_from_its_end(world: World) -> None:
    world.watch = TWO
    first, second = world.rent(match_on("1", "11")), world.rent(match_on("2", "22"))
    world.provider.turns(InstanceState.RUNNING)
    world.look()
    get = world.provider.destroy

    def odd(instance_id: str) -> None:
        if instance_id == "9000":
            raise RuntimeError("cannot start a thread")
        get(instance_id)

    world.provider.destroy = odd  # type: ignore[method-assign]
    world.look(2, every_s=3600)
    assert (world.state(first), world.state(second)) == (S.STOPPING, S.STOPPING)
    assert "9001" not in world.provider.alive


def test_what_came_to_life_while_nobody_looked_ends_at_the_moment_that_its_instance_was_reported(world: World) -> None:
    """The machine slept for eight hours, or the daemon was down: it may have run meanwhile."""
    launch = world.rent()
    world.look()
    world.provider.turns(InstanceState.RUNNING)
    world.pass_s(8 * 3600)
    world.look()
    assert (world.state(launch), world.provider.alive) == (S.STOPPING, {})
    found = world.repository.get(launch.launch_id)
    assert found is not None
    assert found.ended_because(EndReason.MAX_RUNTIME)


def test_without_a_list_what_never_was_seen_running_ends_at_its_deadline(world: World) -> None:
    launch = world.rent()
    world.look()
    world.provider.turns(InstanceState.RUNNING)
    world.provider.on_list = [ProviderDown("502")] * 100
    world.look(44, every_s=100)
    assert (world.state(launch), world.provider.destroys) == (S.STARTING, [])
    world.look(2, every_s=100)
    assert (world.state(launch), world.provider.alive) == (S.STOPPING, {})


def test_a_store_that_cannot_be_read_lets_nothing_run_longer(world: World) -> None:
    launch = running(world)
    world.look()
    read = world.repository.alive

    def broken(provider: str | None = None) -> list[Launch]:
        raise StoreError("the server is gone")

    world.repository.alive = broken  # type: ignore[method-assign]
    for _ in range(6):
        world.pass_s(499)
        with pytest.raises(StoreError):
            world.follower.run_if_due(world.now)
    assert world.provider.destroys == []
    world.pass_s(601)
    with pytest.raises(StoreError):
        world.follower.run_if_due(world.now)
    assert world.provider.alive == {}
    world.repository.alive = read  # type: ignore[method-assign]
    world.look(5)
    found = world.repository.get(launch.launch_id)
    assert found is not None
    assert (found.state, found.ended_because(EndReason.MAX_RUNTIME)) == (S.ENDED, True)


def unread(world: World, times: int, every_s: float = 10.0) -> None:
    """Polls while the rows cannot be read."""

    def broken(provider: str | None = None) -> list[Launch]:
        raise StoreError("the server is gone")

    world.repository.alive = broken  # type: ignore[method-assign]
    for _ in range(times):
        world.pass_s(every_s)
        with pytest.raises(StoreError):
            world.follower.run_if_due(world.now)


def test_an_end_that_was_begun_goes_on_while_the_store_cannot_be_read(world: World) -> None:
    launch = running(world)
    stop(world, launch)
    world.provider.destroy_works = False
    world.look()
    world.provider.destroy_works = True
    unread(world, 1)
    assert world.provider.alive == {}


def test_without_the_store_what_is_back_after_its_destroy_is_destroyed_again(world: World) -> None:
    running(world)
    [instance] = world.provider.alive.values()
    unread(world, 8, every_s=600)
    assert world.provider.alive == {}
    world.provider.alive[instance.instance_id] = instance
    unread(world, 4)
    assert world.provider.alive == {}


def test_a_defect_that_keeps_one_launch_from_its_update_is_raised_when_the_others_have_theirs(
    sqlite_database: Database,
) -> None:
    world = World(sqlite_database, TWO)
    broken, sound = world.rent(), world.rent(match_on("60002", "28000002"))
    move = world.repository.transition

    def defective(launch: Launch, *args: Any, **changes: Any) -> Launch:
        if launch.launch_id == broken.launch_id:
            raise ValueError("by design")
        return move(launch, *args, **changes)

    world.repository.transition = defective  # type: ignore[method-assign]
    world.pass_s(3700)
    steps = world.follower.steps
    with pytest.raises(PartlyDone, match=f"launch {broken.launch_id}: by design"):
        world.follower.run_if_due(world.now)
    assert world.follower.steps == steps + 2
    assert world.state(sound) is S.STOPPING
    with pytest.raises(PartlyDone):  # a quiet run would count as a success, and nobody would hear of the defect
        world.follower.run_if_due(world.now + timedelta(seconds=1))
    world.repository.transition = move  # type: ignore[method-assign]
    world.pass_s(20)
    assert world.follower.run_if_due(world.now)


def test_a_clock_that_was_far_ahead_when_it_came_to_life_does_not_lengthen_it_by_a_restart(world: World) -> None:
    launch = world.rent()
    world.look()
    world.now += timedelta(days=30)
    world.provider.turns(InstanceState.RUNNING)
    running_at_the_wrong_time = world.repository.get(launch.launch_id)
    assert running_at_the_wrong_time is not None
    world.repository.transition(running_at_the_wrong_time, S.RUNNING, "running", world.now, running_at=world.now)
    world.now -= timedelta(days=30)
    for _ in range(3):
        world.start_process()
        world.look(2, every_s=1000)
    assert (world.state(launch), world.provider.alive) == (S.STOPPING, {})


def test_a_slow_end_that_cannot_be_reported_is_asked_for_all_the_same(world: World) -> None:
    launch = running(world)
    stop(world, launch)
    world.provider.destroy_works = False
    world.look(2, every_s=200)

    def full(outbox_alert: OutboxAlert) -> bool:
        raise StoreError("the disk is full")

    world.repository.enqueue = full  # type: ignore[method-assign]
    world.provider.destroy_works = True
    world.look(1, every_s=200)
    assert world.provider.alive == {}


def due_after(world: World, *seconds: float) -> list[bool]:
    """Return whether it reconciles after each of these times."""
    found = []
    for one in seconds:
        world.pass_s(one)
        found.append(world.follower.run_if_due(world.now))
    return found


def test_while_everything_runs_it_reconciles_every_ten_seconds(world: World) -> None:
    running(world)
    assert due_after(world, 5, 9.9, 0.1, 9.9, 0.1) == [True, False, True, False, True]


def test_it_reconciles_at_the_moment_at_which_what_runs_must_end(world: World) -> None:
    launch = running(world)
    assert launch.max_runtime_s is not None
    assert due_after(world, launch.max_runtime_s - 4, 3.9, 0.1) == [True, False, True]
    assert world.state(launch) is S.STOPPING


def test_it_reconciles_at_the_moment_until_which_what_starts_must_run(world: World) -> None:
    launch = world.rent()
    assert launch.ready_within_s is not None
    assert due_after(world, launch.ready_within_s - 2, 1.9, 0.1, 3) == [True, False, True, True]
    assert world.state(launch) is S.STOPPING
