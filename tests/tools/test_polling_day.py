"""Hours of polling on the virtual clock: the daemon's queries at a marketplace with vast.ai's spacing and quota."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks.polling_day import simulate
from benchmarks.polling_table import (
    MIDNIGHT,
    Day,
    Scenario,
    after_spent_quota,
    despite_refusal,
    early,
    longest_unasked_s,
    missed,
    overlooked,
    unread_s,
)

Lived = Callable[[Scenario], Day]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """The results of a scenario; each is simulated once."""
    known: dict[str, Day] = {}

    def live(scenario: Scenario) -> Day:
        if scenario.title not in known:
            known[scenario.title] = simulate(scenario, 1, tmp_path_factory.mktemp("day"))
        return known[scenario.title]

    return live


CROWDED = Scenario(title="20 watches", watches=20, rows_per_day=0, refusals_a_day=240, hours=1.0)
FEW = Scenario(title="2 watches", watches=2, hours=0.5)
BUSY = Scenario(title="20 watches and a quota", watches=20, hours=2.0)
SPENT = Scenario(title="spent", watches=5, granted_rows=600, hours=3.0, start=MIDNIGHT + timedelta(hours=20))


def test_no_search_is_sent_before_the_spacing_is_over(lived: Lived) -> None:
    searches = lived(CROWDED).searches
    assert len(searches) > 300
    assert early(searches) == 0


def test_the_history_holds_every_answer_that_came_over_the_wire(tmp_path: Path) -> None:
    day = simulate(FEW, 1, tmp_path)
    with sqlite3.connect(tmp_path / "gpuwatch.db") as connection:
        stored = dict(connection.execute("SELECT lane, sum(rows) FROM poll GROUP BY lane").fetchall())
    assert stored == {
        lane: sum(
            search.rows for search in day.searches if search.task == lane and search.answered_s < FEW.hours * 3600
        )
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
    assert {bargain.gpu for bargain in day.bargains} <= set(day.watched)
    assert day.alerts > 0 or not day.bargains


def test_the_day_ends_at_its_hour(lived: Lived) -> None:
    ends_s = FEW.hours * 3600
    assert ends_s - 60 < max(search.sent_s for search in lived(FEW).searches) < ends_s


# --- the promises of fair polling -------------------------------------------------------------------------------------


def test_the_sweep_gets_its_share_of_the_turns_beside_20_watches(lived: Lived) -> None:
    searches = lived(CROWDED).searches
    assert sum(search.task == "sweep" for search in searches) >= 0.15 * len(searches)


def test_beside_20_watches_every_recorded_gpu_is_read_again_and_again(lived: Lived) -> None:
    day = lived(CROWDED)
    assert {gpu: len(read) for gpu, read in day.covered_s.items() if gpu in day.recorded and len(read) < 2} == {}
    assert max(max(unread_s(day, gpu)) for gpu in day.recorded) < 40 * 60


def test_no_search_is_sent_before_a_refusals_retry_after_is_over(lived: Lived) -> None:
    day = lived(CROWDED)
    assert sum(search.status == 429 for search in day.searches) >= 5  # the marketplace was busy
    assert despite_refusal(day.searches) == 0


@pytest.mark.parametrize("scenario", [BUSY, CROWDED], ids=["quota", "refusals"])
def test_no_watch_starves_among_twenty(lived: Lived, scenario: Scenario) -> None:
    """A round takes two minutes, two and a half beside a sweep; a busy marketplace adds two more."""
    day = lived(scenario)
    assert max(longest_unasked_s(day, gpu) for gpu in day.watched) < (5 if scenario is BUSY else 8) * 60


@pytest.mark.slow
def test_no_hunt_overlooks_a_bargain_that_is_there(lived: Lived) -> None:
    assert len(lived(BUSY).bargains) > 30
    assert overlooked(lived(BUSY)) == []


def test_a_spent_quota_is_silence_but_for_one_probe_an_hour(lived: Lived) -> None:
    day = lived(SPENT)
    probes, hours = after_spent_quota(day.searches)
    assert any(search.quota_spent for search in day.searches)
    assert probes <= hours + 1
