"""Pending decisions are reported once a day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.renting.reminders import send_reminders
from gpuwatch.storage.setup.database import Database
from tests.engine.launch_world import World, running

LAUNCH_ALERTS = LaunchAlerts(iter(f"id{n}" for n in range(1000)).__next__)


@pytest.fixture
def world(sqlite_database: Database) -> Iterator[World]:
    return World(sqlite_database)


def reported(world: World, keyed: set[str], days: int, words: str) -> int:
    """Return how many new alerts report it after this many more days, with a poll every hour."""
    for _ in range(days * 24):
        send_reminders(world.repository, LAUNCH_ALERTS, keyed, world.now)
        world.now += timedelta(hours=1)
    return sum(words in alert.headline for alert in world.alerts())


def test_a_held_launch_is_reported_every_day_until_it_is_settled(world: World) -> None:
    world.provider.on_create = ["lost"]
    held = world.repository.transition(world.rent(), LaunchState.HELD, "a test", world.now)
    assert reported(world, {"vastai"}, 2, "held") == 3  # from noon to noon: three dates
    world.repository.transition(held, LaunchState.FAILED, "a test", world.now, ended_at=world.now)
    assert reported(world, {"vastai"}, 1, "held") == 0


def test_what_runs_where_nobody_looks_is_reported_every_day(world: World) -> None:
    running(world)
    assert reported(world, {"vastai"}, 1, "can no longer manage it") == 0
    assert reported(world, set(), 1, "can no longer manage it") == 2
