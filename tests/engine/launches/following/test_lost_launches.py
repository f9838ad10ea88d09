"""Launches in the keeper's file that a restored database lacks block renting, whatever lists show."""

from __future__ import annotations

import msgspec
import pytest

from gpuwatch.domain.launches.instances.obligation import Obligation
from gpuwatch.domain.launches.launch import Launch, LaunchRefusal
from gpuwatch.errors import StoreError
from gpuwatch.ports import AlertKind, Order
from gpuwatch.storage.setup.database import Database
from tests.engine.launch_world import RENTS, World, running
from tests.engine.uow_fakes import NOON

LOST = Obligation(
    launch_id="q" * 12,
    watch="cheap",
    provider="vastai",
    account="another",
    label="gpuwatch-" + "q" * 12,
    instance_id="88",
    gpu="H100 SXM",
    gpu_count=1,
    price_microusd_hour=3_000_000,
    ordered_at=NOON,
)


@pytest.fixture
def world(sqlite_database: Database) -> World:
    made = World(sqlite_database, RENTS)
    made.provider.foreign("1")
    return made


def restarted(world: World, *obligations: Obligation) -> World:
    world.open_obligations = list(obligations)
    world.start_process()
    world.look()
    return world


def test_it_holds_renting_though_no_list_shows_it(world: World) -> None:
    restarted(world, LOST)
    assert "88" in (world.follower.not_ready() or "")
    assert isinstance(world.reserve(), LaunchRefusal)
    (alert,) = [one for one in world.alerts() if one.kind is AlertKind.ORPHAN]
    assert "launch qqqqqqqqqqqq of 'cheap', rented for $3.00 per hour" in alert.why
    world.look(20)
    assert world.reported() == []  # again on another day


def test_it_holds_over_another_start_without_the_file(world: World) -> None:
    restarted(restarted(world, LOST))
    assert "88" in (world.follower.not_ready() or "")


def test_the_keeper_ends_it_and_renting_goes_on(world: World) -> None:
    restarted(world, LOST)
    world.open_obligations.clear()
    world.look()
    assert world.follower.not_ready() is None
    assert isinstance(world.reserve(), Launch)


def test_the_owner_settles_it_once_for_all(world: World) -> None:
    restarted(world, LOST)
    world.repository.mark_foreign("vastai", "88", world.now)
    world.look()
    assert world.follower.not_ready() is None
    restarted(world, LOST)
    assert world.follower.not_ready() is None


def test_what_the_database_knows_holds_nothing(world: World) -> None:
    launch = running(world)
    known = Obligation(
        launch_id=launch.launch_id,
        watch=launch.watch,
        provider="vastai",
        label=launch.label,
        instance_id=launch.instance_id,
        gpu="H100 SXM",
        gpu_count=1,
        price_microusd_hour=1,
        ordered_at=NOON,
    )
    restarted(world, known)
    assert world.follower.not_ready() is None


def test_a_file_that_cannot_be_read_holds_nothing_up(world: World) -> None:
    def unreadable() -> tuple[Obligation, ...]:
        raise StoreError("obligations.jsonl cannot be read")

    world.obligations = unreadable
    world.start_process()
    world.look()
    assert world.follower.not_ready() is None


# --- the database goes back while the daemon runs: a standby was promoted ---------------------------------------------


def test_after_commits_were_lost_nothing_is_rented_before_the_instances_are_listed_again(world: World) -> None:
    """And not by a list of the first minute: another host's order may still be under way."""
    world.look()
    assert world.follower.not_ready() is None
    world.generation += 1
    assert "the database went back" in (world.follower.not_ready() or "")
    world.look(11)
    assert "the database went back" in (world.follower.not_ready() or "")
    world.look(2)
    assert world.follower.not_ready() is None


def test_what_was_lost_while_the_daemon_ran_is_recalled(world: World) -> None:
    world.look()
    world.open_obligations.append(LOST)
    world.look()
    assert world.follower.not_ready() is None
    world.generation += 1
    world.look(20)
    assert "88" in (world.follower.not_ready() or "")
    assert isinstance(world.reserve(), LaunchRefusal)  # the same in every other process


def test_an_unreadable_file_holds_renting_after_commits_were_lost(world: World) -> None:
    def unreadable() -> list[Obligation]:
        raise StoreError("cannot read obligations.jsonl")

    world.obligations = unreadable
    world.start_process()
    world.look()
    assert world.follower.not_ready() is None  # at a start, nothing speaks for a loss
    world.generation += 1
    world.look(20)
    assert "could not be read" in (world.follower.not_ready() or "")


ORDERED = msgspec.structs.replace(LOST, instance_id=None)


def test_an_order_without_an_instance_holds_until_its_label_is_listed(world: World) -> None:
    restarted(world, ORDERED)
    assert "but the database lost it" in (world.follower.not_ready() or "")
    world.provider.create(Order(offer_id="1", label=ORDERED.label, image="x", disk_gb=10.0))
    world.look()
    assert "but the database lost it" not in (world.follower.not_ready() or "but the database lost it")
    assert isinstance(world.reserve(), LaunchRefusal)


def test_an_order_that_no_list_shows_for_half_an_hour_created_nothing(world: World) -> None:
    restarted(world, ORDERED)
    world.look(20, every_s=60.0)
    assert world.follower.not_ready() is not None
    world.look(12, every_s=60.0)
    assert (world.follower.not_ready(), world.open_obligations) == (None, [])
