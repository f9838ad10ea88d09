"""A missing instance list is reported once for each silence, and its return once for each report."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from gpuwatch.engine.alerts.alert_reporter import AlertReporter
from gpuwatch.engine.launches.guarding.instance_lists import ALERT_AFTER_S, InstanceListMonitor
from gpuwatch.errors import ProviderDown
from gpuwatch.ports import AlertKind
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database
from tests.clocks import Clock
from tests.outbox import new_alerts

DOWN = ProviderDown("vastai: HTTP 502")
_IDS = itertools.count()
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class World:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = Clock()
        self.reported: list[AlertKind] = []
        reporter = AlertReporter(SqlLaunchRepository(database), lambda: f"a{next(_IDS)}")
        self.monitor = InstanceListMonitor(reporter, "vastai", self.clock)

    def at(self, minutes: float) -> datetime:
        self.clock.seconds = minutes * 60
        return NOON + timedelta(minutes=minutes)

    def is_silent(self, first: int, last: int) -> None:
        for minute in range(first, last + 1):
            now = self.at(minute)
            self.monitor.failed(DOWN, 1, now)

    def is_back(self, minute: int) -> None:
        self.monitor.list_succeeded(self.at(minute))

    @property
    def kinds(self) -> list[AlertKind]:
        self.reported += [alert.kind for alert in new_alerts(self.database)]
        return self.reported


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


def test_a_silence_is_reported_once_and_its_end_once(world: World) -> None:
    assert ALERT_AFTER_S == 600.0
    world.is_silent(0, 40)
    world.is_back(41)
    world.is_back(42)
    assert world.kinds == [AlertKind.BLIND, AlertKind.RECOVERED]


def test_a_list_that_comes_and_goes_is_reported_at_most_once_an_hour_and_its_end_as_often(world: World) -> None:
    for first in (0, 15, 30, 45):
        world.is_silent(first, first + 12)
        world.is_back(first + 13)
    assert world.kinds == [AlertKind.BLIND, AlertKind.RECOVERED]


def test_a_silence_that_begins_soon_after_another_one_is_reported_in_the_next_hour(world: World) -> None:
    world.is_silent(0, 12)
    world.is_back(13)
    world.is_silent(20, 59)
    assert world.kinds == [AlertKind.BLIND, AlertKind.RECOVERED]
    world.is_silent(60, 70)
    assert world.kinds == [AlertKind.BLIND, AlertKind.RECOVERED, AlertKind.BLIND]


def test_a_restart_says_the_end_of_what_was_said_before_it(world: World) -> None:
    world.is_silent(0, 12)
    restarted = World(world.database)
    restarted.is_back(20)
    restarted.is_back(21)
    World(world.database).is_back(22)  # another daemon, too
    assert world.kinds == [AlertKind.BLIND, AlertKind.RECOVERED]


def test_the_end_of_what_expired_long_ago_is_no_news(world: World) -> None:
    world.is_silent(0, 12)
    World(world.database).is_back(60 * 48)
    assert world.kinds == [AlertKind.BLIND]
