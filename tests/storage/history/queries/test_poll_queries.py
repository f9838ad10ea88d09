"""The last sweep of the market, and its rows."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.ports import Completeness
from gpuwatch.storage.history.queries.poll_queries import (
    FormatChange,
    LastPoll,
    LastSweep,
    format_changes,
    last_not_understood,
    last_polls,
    last_polls_by_lane,
    last_sweeps,
    rows_used,
)
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.builders import changed
from tests.storage.stored_answers import NOON, an_answer


def test_never_swept_is_none(database: Database) -> None:
    SqlHistoryRecorder(database).record(an_answer(rows=5), lane="hunt")
    assert last_sweeps(database) == {}


def test_the_last_sweep_is_the_sum_of_its_searches(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    history.record(an_answer(rows=900), lane="sweep", gpu="A40")
    for day in (2, 3):
        history.record(an_answer(rows=50 + day, after_s=day * 86_400), lane="sweep", gpu="H100 SXM")
        history.record(an_answer(rows=20, after_s=day * 86_400 + 9), lane="sweep", gpu="H100 SXM", spot=True)
    history.record(
        an_answer(rows=1, after_s=4 * 86_400, completeness=Completeness.PARTIAL), lane="sweep", gpu="H100 SXM"
    )
    expected = LastSweep(at=NOON + timedelta(days=3, seconds=9), rows=73)
    history.record(changed(an_answer(rows=4, after_s=9), provider="runpod"), lane="sweep", gpu="H100 SXM")
    assert last_sweeps(database) == {"vastai": expected, "runpod": LastSweep(at=NOON + timedelta(seconds=9), rows=4)}


def test_the_last_poll_is_the_newest_that_was_answered_and_counts_what_was_understood(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    assert last_polls(database) == {}
    history.record(changed(an_answer(rows=9, after_s=30), skipped={"no price": 2}), lane="hunt", gpu="A40")
    history.record(an_answer(rows=1, after_s=60, completeness=Completeness.PARTIAL), lane="hunt")
    at = NOON + timedelta(seconds=30)
    hunt = LastPoll(at=at, offers=7, skipped=2, gpu="A40", lane="hunt")
    assert last_polls(database) == {"vastai": hunt}
    history.record(an_answer(rows=3, after_s=90), lane="sweep", gpu="H100 SXM")
    history.record(changed(an_answer(rows=4, after_s=9), provider="runpod"), lane="hunt")
    sweep = LastPoll(at=NOON + timedelta(seconds=90), offers=3, skipped=0, gpu="H100 SXM", lane="sweep")
    other = LastPoll(at=NOON + timedelta(seconds=9), offers=4, skipped=0, gpu="", lane="hunt")
    assert last_polls(database) == {"vastai": sweep, "runpod": other}
    lanes = {("vastai", "hunt"): hunt, ("vastai", "sweep"): sweep, ("runpod", "hunt"): other}
    assert last_polls_by_lane(database) == lanes


def test_rows_are_counted_by_provider_and_utc_day(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    history.record(an_answer(rows=9), lane="hunt")
    history.record(an_answer(rows=2, after_s=86_400), lane="sweep")
    history.record(changed(an_answer(rows=4, after_s=9), provider="runpod"), lane="hunt")
    assert rows_used(database, NOON) == {"vastai": 9, "runpod": 4}
    assert rows_used(database, NOON + timedelta(days=1)) == {"vastai": 2}


def test_changes_of_a_format_are_reported_oldest_first_and_other_words_are_none(database: Database) -> None:
    with SqlDecisionStore(database).open() as page:
        page.record_new_value("vastai", "field", "field gone: b", NOON + timedelta(hours=1))
        page.record_new_value("vastai", "field", "new field: a", NOON)
        page.record_new_value("vastai", "gpu", "H9000", NOON)
        page.record_new_value("runpod", "field", "new field: c", NOON)
    found = format_changes(database)
    assert found["runpod"] == [FormatChange(text="new field: c", first_seen_at=NOON)]
    assert found["vastai"] == [
        FormatChange(text="new field: a", first_seen_at=NOON),
        FormatChange(text="field gone: b", first_seen_at=NOON + timedelta(hours=1)),
    ]


def test_what_the_last_poll_did_not_understand_is_kept_by_reason_most_first(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    history.record(changed(an_answer(rows=9), skipped={"no price": 2, "no plan: x": 5}), lane="hunt", gpu="A40")
    assert list(last_not_understood(database)["vastai"].items()) == [("no plan: x", 5), ("no price", 2)]
    many = {f"name {n}": n + 1 for n in range(50)}
    history.record(changed(an_answer(rows=9, after_s=30), skipped=many), lane="hunt", gpu="A40")
    found = last_not_understood(database)["vastai"]
    assert (len(found), next(iter(found.items()))) == (12, ("name 49", 50))
    history.record(an_answer(rows=9, after_s=60), lane="hunt", gpu="A40")
    assert last_not_understood(database) == {}
