"""The gate blocks while every rent would lack something, reports it once, and opens by itself after the fix."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from gpuwatch.engine.launches.renting.prerequisite_gate import RENTING, PrerequisiteGate, why_held
from gpuwatch.errors import ProviderDown
from gpuwatch.ports import AlertKind, OutboxAlert
from gpuwatch.ports.market import Hold
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from tests.builders import NOON

MINUTE = timedelta(minutes=1)
QUOTA = Prerequisite(
    name=PrerequisiteName.QUOTA, met=False, text="0 vCPUs", mend="ask for more", place="east", offer_ids=("a",)
)
MET = msgspec.structs.replace(QUOTA, met=True, mend="")
UNKNOWN = msgspec.structs.replace(QUOTA, met=None, mend="")


class Holds:
    """Holds like the store's: one of each kind."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Hold] = {}

    def load(self, provider: str) -> Sequence[Hold]:
        return [hold for (name, _), hold in self.kept.items() if name == provider]

    def save(self, hold: Hold) -> None:
        self.kept[hold.provider, hold.kind] = hold


class World:
    """A provider that can be fixed, and a gate over it."""

    def __init__(self, *found: Prerequisite, holds: Holds | None = None) -> None:
        self.found: Sequence[Prerequisite] | ProviderDown = found
        self.offer_ids: tuple[str, ...] = ("a",)
        self.looks = 0
        self.alerts: list[OutboxAlert] = []
        self.holds = holds or Holds()
        self.gate = PrerequisiteGate("cloud", self._look, self.holds, self.alerts.append, lambda: "id")

    def _look(self) -> tuple[Sequence[Prerequisite], Sequence[str]]:
        self.looks += 1
        if isinstance(self.found, ProviderDown):
            raise self.found
        return self.found, self.offer_ids

    @property
    def kinds(self) -> list[AlertKind]:
        return [alert.alert.kind for alert in self.alerts]


def test_before_the_first_look_nothing_is_rented() -> None:
    assert "being checked" in (World().gate.why_not() or "")


def test_what_is_missing_refuses_with_its_mend_and_is_reported_once() -> None:
    world = World(QUOTA)
    for minute in range(5):
        world.gate.run_if_due(NOON + minute * MINUTE)
    assert world.gate.why_not() == "cloud: quota (east): 0 vCPUs → ask for more"
    assert world.kinds == [AlertKind.REFUSED]
    assert "ask for more" in world.alerts[0].alert.can_do


def test_what_is_mended_clears_itself_and_is_reported_once() -> None:
    world = World(QUOTA)
    world.gate.run_if_due(NOON)
    world.found = (MET,)
    world.gate.run_if_due(NOON + MINUTE)
    world.gate.run_if_due(NOON + timedelta(hours=2))
    assert world.gate.why_not() is None
    assert world.kinds == [AlertKind.REFUSED, AlertKind.RECOVERED]


def test_a_restart_reports_nothing_twice() -> None:
    first = World(QUOTA)
    first.gate.run_if_due(NOON)
    second = World(QUOTA, holds=first.holds)
    second.gate.run_if_due(NOON + MINUTE)
    assert second.kinds == []
    assert second.gate.why_not() is not None
    assert why_held(first.holds, "cloud", NOON + MINUTE).startswith("cloud: quota")
    third = World(MET, holds=first.holds)
    third.gate.run_if_due(NOON + 2 * MINUTE)
    assert third.kinds == [AlertKind.RECOVERED]
    assert why_held(first.holds, "cloud", NOON + 3 * MINUTE) == ""


def test_what_is_unknown_refuses_nothing() -> None:
    world = World(UNKNOWN)
    world.gate.run_if_due(NOON)
    assert (world.gate.why_not(), world.kinds) == (None, [])


def test_without_an_answer_the_verdict_of_before_stands() -> None:
    world = World(QUOTA)
    world.gate.run_if_due(NOON)
    world.found = ProviderDown("cloud: 502")
    world.gate.run_if_due(NOON + MINUTE)
    assert world.gate.why_not() is not None
    later = World(holds=world.holds)
    later.found = ProviderDown("cloud: 502")
    later.gate.run_if_due(NOON + 2 * MINUTE)
    assert later.gate.why_not() is not None
    fresh = World()
    fresh.found = ProviderDown("cloud: 502")
    fresh.gate.run_if_due(NOON)
    assert fresh.gate.why_not() is None


def test_an_offer_that_lacks_nothing_keeps_the_provider_open() -> None:
    world = World(QUOTA)
    world.offer_ids = ("a", "b")
    world.gate.run_if_due(NOON)
    assert world.gate.why_not() is None


def test_it_is_looked_at_every_minute_while_something_is_missing_and_every_hour_after() -> None:
    world = World(QUOTA)
    for second in range(0, 120, 15):
        world.gate.run_if_due(NOON + timedelta(seconds=second))
    assert world.looks == 2
    world.found = (MET,)
    for minute in range(2, 62):
        world.gate.run_if_due(NOON + minute * MINUTE)
    assert world.looks == 3
    assert next(iter(world.holds.load("cloud"))).kind == RENTING


def test_no_answer_to_the_question_is_no_mend() -> None:
    world = World(QUOTA)
    world.gate.run_if_due(NOON)
    world.found = (UNKNOWN,)
    world.gate.run_if_due(NOON + MINUTE)
    assert world.gate.why_not() is not None
    other = msgspec.structs.replace(UNKNOWN, name=PrerequisiteName.TERMS, place="spot")
    world.found = (MET, other)
    world.gate.run_if_due(NOON + 2 * MINUTE)
    assert world.gate.why_not() is None
    assert world.kinds == [AlertKind.REFUSED, AlertKind.RECOVERED]


KEY = Prerequisite(name=PrerequisiteName.KEY_PAIR, met=False, text="no SSH key", mend="add one")
BALANCE = Prerequisite(name=PrerequisiteName.BALANCE, met=False, text="0 $", mend="add credit")


def test_a_job_is_refused_only_for_what_every_rent_needs() -> None:
    """It brings its own key pair, and may accept other offers than the watches."""
    for found in ((KEY,), (QUOTA,)):
        world = World(*found)
        assert world.gate.why_not(is_job=True) is not None, "before the first look nothing is known"
        world.gate.run_if_due(NOON)
        assert (world.gate.why_not() is None, world.gate.why_not(is_job=True)) == (False, None)
        assert why_held(world.holds, "cloud", NOON, is_job=True) == ""
    world = World(KEY, BALANCE)
    world.gate.run_if_due(NOON)
    said = "cloud: balance: 0 $ → add credit"
    assert world.gate.why_not(is_job=True) == why_held(world.holds, "cloud", NOON, is_job=True) == said
    later = World(holds=world.holds)
    later.found = ProviderDown("cloud: 502")
    later.gate.run_if_due(NOON + MINUTE)
    assert later.gate.why_not(is_job=True) == said
