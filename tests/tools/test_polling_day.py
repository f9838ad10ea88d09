"""Hours of polling on the virtual clock: what the daemon asks of a marketplace with vast.ai's spacing and quota."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.polling_day import Day, Scenario, early, missed, simulate

Lived = Callable[[Scenario], Day]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """What a scenario brought; each is simulated once."""
    known: dict[str, Day] = {}

    def live(scenario: Scenario) -> Day:
        if scenario.title not in known:
            known[scenario.title] = simulate(scenario, 1, tmp_path_factory.mktemp("day"))
        return known[scenario.title]

    return live


CROWDED = Scenario(title="20 watches", watches=20, rows_per_day=0, refusals_a_day=240, hours=1.0)
FEW = Scenario(title="2 watches", watches=2, hours=0.5)


def test_no_search_is_sent_before_the_spacing_is_over(lived: Lived) -> None:
    searches = lived(CROWDED).searches
    assert len(searches) > 300
    assert early(searches) == 0


def test_the_history_holds_every_answer_that_came_over_the_wire(tmp_path: Path) -> None:
    day = simulate(FEW, 1, tmp_path)
    with sqlite3.connect(tmp_path / "gpuwatch.db") as connection:
        stored = dict(connection.execute("SELECT lane, sum(rows) FROM poll GROUP BY lane").fetchall())
    assert stored == {
        lane: sum(one.rows for one in day.searches if one.task == lane and one.answered_s < FEW.hours * 3600)
        for lane in ("hunt", "sweep")
    }


def test_the_same_seed_is_the_same_day(tmp_path: Path) -> None:
    days = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        days.append(simulate(FEW, 7, tmp_path / name))
    assert days[0].searches == days[1].searches
    assert days[0].bargains == days[1].bargains


def test_a_bargain_that_stays_is_seen_and_reported(lived: Lived) -> None:
    day = lived(FEW)
    assert all(one.vanishes_s - one.appears_s < 120 for one in missed(day))
    assert {one.gpu for one in day.bargains} <= set(day.watched)
    assert day.alerts > 0 or not day.bargains


def test_the_day_ends_at_its_hour(lived: Lived) -> None:
    ends_s = FEW.hours * 3600
    assert ends_s - 60 < max(one.sent_s for one in lived(FEW).searches) < ends_s
