"""While an instance exists: late, overdue, idle, unlisted; and an end that is repeated until it is real."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.errors import (
    GpuwatchError,
    KeyRejected,
    OrderRefused,
    OutcomeUnknown,
    ProviderDown,
    RefusalKind,
    StoreError,
)
from gpuwatch.ports import Alert, AlertKind, InstanceState
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import alert as alerts
from tests.builders import changed
from tests.engine.launch_world import RENTS, World, match_on, running, stop
from tests.engine.lying_provider import AskableProvider

S = LaunchState


@pytest.fixture
def world(sqlite_database: Database) -> Iterator[World]:
    return World(sqlite_database)


def test_a_provider_that_is_down_ends_nothing_that_runs(world: World) -> None:
    launch = running(world)
    world.provider.on_list = [ProviderDown("502")] * 100
    world.look(100, every_s=30)
    assert (world.state(launch), world.provider.destroys) == (S.RUNNING, [])


def test_what_is_in_no_list_for_long_is_reported_and_never_destroyed(world: World) -> None:
    """A falsely empty list must not cost the owner a day's work."""
    launch = running(world)
    world.provider.on_list = ["empty"] * 40
    world.look(40, every_s=30)
    assert (world.state(launch), world.provider.destroys) == (S.RUNNING, [])
    assert world.reported() == [AlertKind.RENT, AlertKind.HELD]


def test_what_is_gone_while_others_are_listed_is_over(sqlite_database: Database) -> None:
    watch = changed(RENTS, launch=LaunchSpec(max_active=2, max_total=0))
    world = World(sqlite_database, watch, AskableProvider())
    first, second = world.rent(match_on("1", "11")), world.rent(match_on("2", "22"))
    world.provider.turns(InstanceState.RUNNING)
    world.look()
    del world.provider.alive["9000"]
    world.look(30, every_s=30)
    found = world.repository.get(first.launch_id)
    assert found is not None
    assert (found.state, found.ended_because(EndReason.GONE)) == (S.ENDED, True)
    assert world.state(second) is S.RUNNING


def test_a_launch_of_another_owner_is_ended_only_when_its_hosts_should_have_done_it_long_ago(world: World) -> None:
    """Nothing outlives its end by more than that while any host reaches its account."""
    world.watch = changed(RENTS, name="lab::h100", launch=LaunchSpec(max_active=1, max_total=0, max_runtime_s=3600.0))
    world.store.owner = "lab"
    launch = running(world)
    world.store.owner = ""
    world.look(1, every_s=3600 + 240)
    assert (world.state(launch), world.provider.destroys) == (S.RUNNING, [])
    world.look(1, every_s=90)
    assert (world.state(launch), world.provider.alive) == (S.STOPPING, {})


def test_max_runtime_ends_what_the_list_does_not_show(world: World) -> None:
    launch = running(world)
    world.provider.on_list = ["empty"]
    world.look(1, every_s=3600)
    assert (world.state(launch), world.provider.alive) == (S.STOPPING, {})


def test_ready_within_ends_what_the_list_does_not_show(world: World) -> None:
    launch = world.rent()
    world.provider.on_list = ["empty"]
    world.look(1, every_s=901)
    assert (world.state(launch), world.provider.alive) == (S.STOPPING, {})


def test_a_clock_that_steps_back_lets_nothing_run_longer(world: World) -> None:
    launch = running(world)
    world.now -= timedelta(hours=5)
    world.look(13, every_s=300)
    assert world.state(launch) is S.STOPPING
    assert world.provider.alive == {}


def test_running_at_the_first_look_after_ready_within_is_in_time(world: World) -> None:
    launch = world.rent()
    world.provider.turns(InstanceState.RUNNING)
    world.look(1, every_s=901)
    assert world.state(launch) is S.RUNNING


def test_a_full_disk_does_not_let_an_overdue_instance_run_on(world: World) -> None:
    running(world)
    move = world.repository.transition

    def full(*_: Any, **__: Any) -> Launch:
        raise StoreError("the disk is full")

    world.repository.transition = full  # type: ignore[method-assign]
    world.look(1, every_s=3600)
    assert world.provider.alive == {}
    world.repository.transition = move  # type: ignore[method-assign]
    world.look(5)
    assert [launch.state for launch in world.repository.all()] == [S.ENDED]


def test_an_end_is_asked_for_again_after_a_restart(world: World) -> None:
    launch = running(world)
    world.provider.destroy_works = False
    stop(world, launch)
    world.look()
    world.start_process()
    world.provider.destroy_works = True
    world.look(5)
    assert world.state(launch) is S.ENDED


def test_an_end_that_is_acknowledged_and_not_true_is_asked_for_again(world: World) -> None:
    launch = running(world)
    stop(world, launch)
    world.provider.destroy_lies = True
    world.look(20)
    assert world.state(launch) is S.STOPPING
    assert len(world.provider.destroys) == 20


def test_a_slow_end_is_reported_once_an_hour(world: World) -> None:
    launch = running(world)
    world.provider.destroy_works = False
    stop(world, launch)
    world.look(60, every_s=60)
    held = [alert for alert in world.alerts() if alert.kind is AlertKind.HELD]
    assert len(held) == 2  # from 12:05 on, and in the hour after


@pytest.mark.parametrize("error", [OrderRefused("lab: 401 bad key", RefusalKind.KEY), KeyRejected("lab: 401 bad key")])
def test_a_refused_end_is_reported_at_once_and_once_an_hour(world: World, error: GpuwatchError) -> None:
    launch = running(world)
    world.provider.destroy_error = error
    stop(world, launch)
    world.look()
    (held,) = [alert for alert in world.alerts() if alert.kind is AlertKind.HELD]
    assert "refuses to end it" in held.headline
    assert "401 bad key" in held.why
    world.look(60, every_s=60)
    assert len([alert for alert in world.alerts() if alert.kind is AlertKind.HELD]) == 1


def test_an_end_that_was_not_sent_is_no_refusal(world: World) -> None:
    launch = running(world)
    world.provider.destroy_error = OrderRefused("lab: not sent", RefusalKind.NOT_SENT)
    stop(world, launch)
    world.look(3)
    assert not [alert for alert in world.alerts() if alert.kind is AlertKind.HELD]


def test_the_slot_of_what_failed_is_free_at_once(world: World) -> None:
    freed: list[Launch] = []
    world.freed = freed.append
    world.start_process()
    world.rent()
    world.look(1, every_s=901)
    world.look(3)
    assert [launch.state for launch in freed] == [S.FAILED]
    assert isinstance(world.reserve(match_on("2", "22")), Launch)


def test_a_stop_of_what_is_looked_for_ends_it_when_it_is_found(world: World) -> None:
    world.provider.on_create = ["lost"]
    launch = world.rent()
    stop(world, launch)
    world.look(5)
    assert world.provider.alive == {}
    assert world.state(launch) is S.ENDED


def test_what_was_stopped_before_any_list_shows_it_is_not_believed_gone_before_it_could_be_listed(world: World) -> None:
    """A list and an end by id may both lag behind an order: a new instance also gives "no such instance"."""
    launch = world.rent()
    late = dict(world.provider.alive)
    world.provider.alive.clear()
    stop(world, launch)
    world.look(6)
    assert world.state(launch) is S.STOPPING
    world.provider.alive.update(late)
    world.look(8)
    assert world.provider.alive == {}
    assert world.state(launch) is S.ENDED


def test_a_stop_outlasts_that_it_was_held(world: World) -> None:
    world.provider.on_create = [OutcomeUnknown("timeout")]
    launch = world.rent()
    stop(world, launch)
    world.look(60, every_s=30)
    assert world.state(launch) is S.HELD
    world.provider.foreign("77", label=launch.label)
    world.look(5)
    assert "77" not in world.provider.alive
    assert world.state(launch) is S.ENDED


def test_a_request_of_another_daemon_is_left_alone_while_it_may_be_on_its_way(world: World) -> None:
    world.look()
    launch = world.reserve()
    assert isinstance(launch, Launch)
    world.look(10, every_s=20)
    assert world.state(launch) is S.REQUESTED
    world.look(10, every_s=20)
    assert world.state(launch) is S.UNKNOWN


def test_a_lost_answer_goes_to_the_owner_even_if_no_list_ever_comes(world: World) -> None:
    world.provider.on_create = [OutcomeUnknown("timeout")]
    launch = world.rent()
    world.provider.on_list = [ProviderDown("410")] * 100
    world.look(70, every_s=30)
    assert world.state(launch) is S.HELD
    assert AlertKind.HELD in world.reported()


def test_what_is_held_is_adopted_when_it_turns_up(world: World) -> None:
    world.provider.on_create = [OutcomeUnknown("timeout")]
    launch = world.rent()
    world.look(60, every_s=30)
    assert world.state(launch) is S.HELD
    world.provider.foreign("77", label=launch.label)
    world.look(2)
    assert world.state(launch) is S.RUNNING


def test_a_label_that_the_owner_edits_does_not_lose_the_instance(world: World) -> None:
    launch = running(world)
    world.provider.alive["9000"] = changed(world.provider.alive["9000"], label="my training")
    world.look(5)
    assert world.state(launch) is S.RUNNING


def test_one_launch_in_trouble_does_not_keep_the_others_from_their_end(world: World) -> None:
    world.watch = changed(RENTS, launch=LaunchSpec(max_active=2, max_total=0, max_runtime_s=3600.0))
    world.rent(match_on("1", "11"))
    world.rent(match_on("2", "22"))
    world.provider.turns(InstanceState.RUNNING)
    world.look()
    tell = world.repository.transition

    def first_is_broken(launch: Launch, *args: Any, **changes: Any) -> Launch:
        if launch.instance_id == "9000":
            raise StoreError("a corrupted row")
        return tell(launch, *args, **changes)

    world.repository.transition = first_is_broken  # type: ignore[method-assign]
    world.look(1, every_s=3600)
    assert world.provider.alive == {}


def test_a_provider_that_lists_nothing_while_something_runs_there_is_reported_once_and_when_it_is_back(
    world: World,
) -> None:
    """A key that can search but not list leaves the hunt healthy: no other check would report it."""
    running(world)
    world.alerts()
    world.provider.on_list = [KeyRejected("403 not_authorized")] * 40
    world.look(40, every_s=30)
    world.look(2)
    reported = world.reported()
    assert reported.count(AlertKind.BLIND) == 1
    assert reported.count(AlertKind.RECOVERED) == 1


def test_a_short_outage_or_one_with_nothing_rented_is_no_news(world: World) -> None:
    world.provider.on_list = [ProviderDown("502")] * 40
    world.look(41, every_s=30)
    running(world)
    world.provider.on_list = [ProviderDown("502")] * 10
    world.look(11, every_s=30)
    assert not {AlertKind.BLIND, AlertKind.RECOVERED} & set(world.reported())


def headlines(world: World) -> list[str]:
    """Return all reports."""
    with world.store.read() as connection:
        bodies = connection.execute(select(alerts.c.body)).scalars()
        return [msgspec.json.decode(body, type=Alert).headline.removeprefix("h100: ") for body in bodies]


@pytest.mark.parametrize("spot", [False, True])
def test_what_flaps_floods_nobody(world: World, spot: bool) -> None:
    """A marketplace with another price or status at every poll: every step is stored, and reported sometimes."""
    launch = running(world)
    for n in range(60):
        if spot:
            world.provider.turns(InstanceState.RUNNING if n % 2 else InstanceState.STOPPED)
        else:
            world.provider.turns(InstanceState.RUNNING, listed_usd_hour=4.0 - n % 2)
        world.look(1, every_s=10)
    found = world.repository.get(launch.launch_id)
    assert found is not None
    assert len(found.spans) >= 60
    assert 3 <= len(headlines(world)) <= 6


def test_a_price_that_rises_and_rises_is_reported_each_time(world: World) -> None:
    running(world)
    for dollars in (3.3, 3.6, 4.0, 5.0):
        world.provider.turns(InstanceState.RUNNING, listed_usd_hour=dollars)
        world.look(1, every_s=10)
    assert headlines(world) == ["running"] + ["its price rose"] * 4
