"""Hours of polling on the virtual clock: the daemon's queries at a marketplace with vast.ai's spacing and quota."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks.day_market import Bargain, models
from benchmarks.polling_day import MIDNIGHT, UPLINK_S, Day, Scenario, Search, early, simulate

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


# --- what a day shows -------------------------------------------------------------------------------------------------


def despite_refusal(searches: Sequence[Search]) -> int:
    """Searches sent earlier than a refusal allowed; a used-up quota is counted separately."""
    held_until, found = 0.0, 0
    answers = sorted(
        (search.answered_s, search) for search in searches if search.retry_after_s and not search.quota_spent
    )
    for one in sorted(searches, key=lambda search: search.sent_s):
        while answers and answers[0][0] <= one.sent_s:
            answered_s, refused = answers.pop(0)
            held_until = max(held_until, answered_s + (refused.retry_after_s or 0.0))
        found += one.sent_s < held_until - 0.001
    return found


def after_spent_quota(searches: Sequence[Search]) -> tuple[int, float]:
    """Searches after the first answer with a used-up quota, and for how many hours that lasted."""
    spent = [search for search in searches if search.quota_spent]
    if not spent:
        return 0, 0.0
    later = [search.sent_s for search in searches if search.sent_s > spent[0].answered_s]
    return len(later), (max(later, default=spent[0].answered_s) - spent[0].answered_s) / 3600


def unread_s(day: Day, gpu: str) -> list[float]:
    """The times of a day without a reading of a GPU for the history, in seconds; their sum is the day."""
    moments = [0.0, *day.covered_s[gpu], day.scenario.hours * 3600]
    return [after - before for before, after in itertools.pairwise(moments)]


def longest_unasked_s(day: Day, gpu: str) -> float:
    """The longest time without a hunt for a watched GPU."""
    wire = models()[gpu].name
    asked = [search.sent_s for search in day.searches if search.task == "hunt" and wire in search.gpu.split(",")]
    moments = [0.0, *asked, day.scenario.hours * 3600]
    return max(after - before for before, after in itertools.pairwise(moments))


def missed(day: Day) -> list[Bargain]:
    """Bargains that were gone before a hunt saw them."""
    ends_s = day.scenario.start.timestamp() + day.scenario.hours * 3600
    return [bargain for bargain in day.bargains if bargain.seen_s is None and bargain.vanishes_s < ends_s]


def overlooked(day: Day) -> list[Bargain]:
    """Return the missed bargains whose GPU was successfully hunted while they existed."""
    start_s, known = day.scenario.start.timestamp(), models()
    hunts = [search for search in day.searches if search.task == "hunt" and search.status == 200]

    def was_asked(bargain: Bargain) -> bool:
        wire, from_s, to_s = known[bargain.gpu].name, bargain.appears_s - start_s, bargain.vanishes_s - start_s
        return any(from_s <= hunt.sent_s + UPLINK_S < to_s and wire in hunt.gpu.split(",") for hunt in hunts)

    return [one for one in missed(day) if was_asked(one)]
