"""An answer that is empty against its own recent past is reported once, and its end once; a sold-out market is not."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import pytest

from gpuwatch.engine.market.empty_answers import EmptyAnswers, emptied
from gpuwatch.ports import HUNT, SWEEP, AlertKind, Query
from gpuwatch.ports.market import Hold
from tests.engine.uow_fakes import NOON, MemoryUnitOfWork

H100 = (SWEEP, "H100 SXM", False)
A100 = (SWEEP, "A100 SXM 80GB", False)
HUNTED = Query(gpus=("H100 SXM",), max_listed_usd_hour=2.0, limit=10)
IDS = (f"e{n}" for n in itertools.count())


class StoredHolds:
    """The holds that a unit of work saved."""

    def __init__(self, stored: MemoryUnitOfWork) -> None:
        self._stored = stored

    def load(self, provider: str) -> Sequence[Hold]:
        return [hold for (name, _), hold in self._stored.holds.items() if name == provider]

    def save(self, hold: Hold) -> None:
        raise NotImplementedError


class World:
    """The answers of one provider; `restart` loses everything but the store."""

    def __init__(self, sweeps: Iterable[tuple[str, bool, int, datetime]] = ()) -> None:
        self.stored = MemoryUnitOfWork()
        self.restart(sweeps)

    def restart(self, sweeps: Iterable[tuple[str, bool, int, datetime]] = (), filters: str = "all") -> None:
        holds = StoredHolds(self.stored)
        self.found: set[str] = set()
        self.answers = EmptyAnswers(
            "vastai", self.stored, holds, lambda: next(IDS), sweeps, self.found, filters=filters
        )

    def sees(self, query: object, *rows: int, from_s: float = 0.0, every_s: float = 30.0) -> None:
        lane = HUNT if isinstance(query, Query) else SWEEP
        for number, count in enumerate(rows):
            self.answers.note(lane, query, count, NOON + timedelta(seconds=from_s + number * every_s))  # type: ignore[arg-type]

    @property
    def reported(self) -> list[AlertKind]:
        return [alert.kind for alert, _ in self.stored.alerts]

    def is_empty_at(self, after_s: float) -> bool:
        return emptied(StoredHolds(self.stored).load("vastai"), NOON + timedelta(seconds=after_s)) is not None


def test_sixty_rows_and_then_none_for_minutes_are_reported_once_and_once_more_when_it_is_over() -> None:
    world = World()
    world.sees(H100, 60, 60, 60, 0, 0, 0, 0, every_s=300)
    assert world.reported == [AlertKind.BLIND]
    headline = world.stored.alerts[0][0].headline
    assert headline == "vastai lists no offers any more: its answers are empty, and had 60 rows before"
    assert world.is_empty_at(2000)
    assert world.found == {"vastai"}
    world.sees(H100, 55, 60, from_s=3000)
    assert world.reported == [AlertKind.BLIND, AlertKind.RECOVERED]
    assert not world.is_empty_at(3100)
    assert world.found == set()


def test_one_empty_answer_is_not_reported() -> None:
    world = World()
    world.sees(H100, 60, 60, 0, 60, every_s=300)
    assert world.reported == []


def test_several_models_that_become_empty_together_count_together() -> None:
    world = World()
    for from_s, rows in ((0, 12), (300, 12), (600, 0), (900, 0)):
        world.sees(H100, rows, from_s=from_s)
        world.sees(A100, rows, from_s=from_s + 6)
    assert world.reported == [AlertKind.BLIND]
    assert "24 rows before" in world.stored.alerts[0][0].headline


def test_one_model_that_sells_out_is_not_reported_while_another_has_rows() -> None:
    world = World()
    for from_s, rows in ((0, 60), (300, 60), (600, 0), (900, 0), (1200, 0)):
        world.sees(H100, rows, from_s=from_s)
        world.sees(A100, 3, from_s=from_s + 6)
    assert world.reported == []


@pytest.mark.parametrize("rows", [(3, 2, 1, 0, 0, 0), (19, 19, 19, 0, 0, 0), (60, 40, 25, 12, 4, 0, 0, 0)])
def test_a_narrow_market_and_one_that_drains_sell_out(rows: tuple[int, ...]) -> None:
    world = World()
    world.sees(H100, *rows, every_s=300)
    assert world.reported == []


def test_a_first_start_at_a_market_without_offers_is_not_reported() -> None:
    world = World()
    world.sees(H100, 0, 0, 0, 0, every_s=300)
    world.sees(HUNTED, *[0] * 20, from_s=1500)
    assert world.reported == []


def test_a_hunt_that_loses_its_offers_asks_for_a_sweep_first() -> None:
    """Prices may have risen above its limit: a sweep has none."""
    world = World()
    world.sees(HUNTED, 10, 10, 10, 0, 0, 0, 0, 0, 0, 0)
    assert (world.reported, world.answers.needs_sweep) == ([], True)
    world.sees(H100, 57, from_s=400)
    assert (world.reported, world.answers.needs_sweep) == ([], False)
    world.sees(HUNTED, *[0] * 20, from_s=430)
    assert (world.reported, world.answers.needs_sweep) == ([], False)


def test_a_hunt_and_a_sweep_that_are_empty_are_reported_after_minutes() -> None:
    world = World()
    world.sees(HUNTED, 10, 10, 10, 0)
    world.sees(H100, 0, from_s=95)
    assert (world.reported, world.answers.needs_sweep) == ([], False)
    world.sees(HUNTED, 0, 0, 0, 0, from_s=120)
    assert world.reported == [AlertKind.BLIND]


@pytest.mark.parametrize("rows", [(4, 4, 4), (10, 7, 2), (10, 10, 3)])
def test_a_hunt_with_few_rows_proves_nothing(rows: tuple[int, ...]) -> None:
    world = World()
    world.sees(HUNTED, *rows, *[0] * 20)
    world.sees(H100, 0, 0, from_s=900, every_s=300)
    assert (world.reported, world.answers.needs_sweep) == ([], False)


def test_another_limit_is_another_query() -> None:
    """The settings were changed: the new limit is under every offer."""
    world = World()
    world.sees(HUNTED, 10, 10, 10)
    world.sees(Query(gpus=("H100 SXM",), max_listed_usd_hour=1.0, limit=10), *[0] * 20, from_s=90)
    assert (world.reported, world.answers.needs_sweep) == ([], False)


def test_a_hunt_after_a_long_pause_of_its_own_proves_nothing() -> None:
    world = World()
    world.sees(HUNTED, 10, 10, 10, 0, 0, every_s=900)
    assert not world.answers.needs_sweep


def test_a_restart_knows_the_past_and_what_was_reported() -> None:
    past = [
        ("H100 SXM", False, rows, NOON - timedelta(minutes=number)) for number, rows in ((25, 60), (15, 60), (5, 0))
    ]
    world = World(past)
    world.sees(H100, 0, 0, every_s=300)
    assert world.reported == [AlertKind.BLIND]
    world.restart(past)
    world.sees(H100, 0, 0, from_s=900, every_s=300)
    assert world.reported == [AlertKind.BLIND]
    world.restart(past)
    assert world.found == {"vastai"}
    world.sees(H100, 60, from_s=1800)
    assert world.reported == [AlertKind.BLIND, AlertKind.RECOVERED]


def test_a_past_of_days_ago_is_no_recent_past() -> None:
    world = World([("H100 SXM", False, 60, NOON - timedelta(days=2))])
    world.sees(H100, 0, 0, every_s=300)
    assert world.reported == []


def test_a_clock_that_steps_back_delays_nothing() -> None:
    world = World()
    world.sees(H100, 60, 60, 0, every_s=300)
    world.sees(H100, 0, 0, from_s=-7200, every_s=300)
    assert world.reported == [AlertKind.BLIND]


def test_a_restart_with_other_options_of_the_provider_compares_nothing() -> None:
    """The owner has excluded the regions that had offers."""
    world = World()
    world.sees(H100, 60, 60, every_s=300)
    past = [("H100 SXM", False, 60, NOON + timedelta(seconds=after_s)) for after_s in (0, 300)]
    world.restart(past, filters="one region")
    world.sees(H100, 0, 0, 0, from_s=600, every_s=300)
    assert world.reported == []
    world.restart(past, filters="one region")
    world.sees(H100, 0, 0, 0, from_s=1800, every_s=300)
    assert world.reported == []
    world.restart(past, filters="all")
    world.sees(H100, 0, 0, 0, from_s=3600, every_s=300)
    assert world.reported == []
