"""The owner's pause against an order in flight: L28 of the fault catalogue, with the real store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuwatch.domain.launches.instances.machines_and_places import MachineNote, MachineVerdict
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchRefusal, LaunchState
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.errors import OfferGone
from gpuwatch.ports import Created, Order
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.launches.renting_blocks import SqlMachineNoteRepository
from gpuwatch.storage.setup.database import Database
from tests.builders import a_match
from tests.engine.launch_world import World, match_on


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    return World(database)


def reserved(world: World) -> Launch:
    launch = world.reserve()
    assert isinstance(launch, Launch)
    return launch


def pause(world: World) -> None:
    SqlPauseRepository(world.store).pause(Pause(watch=None, at=world.now, why="holiday"))


def test_a_pause_after_the_intent_sends_nothing_and_frees_the_slot(world: World) -> None:
    launch = reserved(world)
    pause(world)
    ended = world.execute(launch, a_match())
    assert (world.provider.orders, ended.state) == ([], LaunchState.FAILED)
    assert ended.ended_because(EndReason.PAUSED)
    assert isinstance(world.reserve(), LaunchRefusal)
    SqlPauseRepository(world.store).resume(None, world.now, "back")
    assert isinstance(world.reserve(), Launch)


def test_a_machine_blocked_after_the_intent_is_not_rented(world: World) -> None:
    launch = reserved(world)
    note = MachineNote(provider="vastai", machine_id="77", verdict=MachineVerdict.BLOCKED, at=world.now)
    SqlMachineNoteRepository(world.store).note(note)
    ended = world.execute(launch, a_match())
    assert (world.provider.orders, ended.state) == ([], LaunchState.FAILED)
    assert "you blocked machine" in (ended.end_reason or "")


def test_a_pause_while_an_order_is_on_its_way_resolves_that_and_sends_no_other(world: World) -> None:
    asked_there = world.provider.create

    def paused_meanwhile(order: Order) -> Created:
        pause(world)
        return asked_there(order)

    world.provider.create = paused_meanwhile  # type: ignore[method-assign]
    world.provider.on_create = [OfferGone("no_such_ask")]
    launch = world.rent(match_on("1", "11"), match_on("2", "22"))
    assert [order.offer_id for order in world.provider.orders] == ["11"]
    assert launch.ended_because(EndReason.PAUSED)
