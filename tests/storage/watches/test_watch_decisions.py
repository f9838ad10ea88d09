"""Decisions as rows: bounded per watch, found by time, renamed with their watch, pruned with the history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gpuwatch.domain.launches.past_decision import PastDecision
from gpuwatch.domain.setup.history_keep import HistoryKeep
from gpuwatch.storage.history.prune import SqlPruner
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.watches import watch_decisions
from gpuwatch.storage.watches.watch_decisions import (
    decisions_since,
    newest_decisions,
    next_decision_at,
    record_decision,
)
from gpuwatch.storage.watches.watch_identities import rename_watch

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def _record(database: Database, watch: str, *minutes: int) -> None:
    with database.write() as connection:
        for minute in minutes:
            at = NOON + timedelta(minutes=minute)
            record_decision(connection, watch, PastDecision(at=at, reason=f"r{minute}", text=f"because {minute}"))


def _reasons(database: Database, watch: str, since: int, until: int) -> list[str]:
    span = NOON + timedelta(minutes=since), NOON + timedelta(minutes=until)
    return [one.reason for one in decisions_since(database, watch, *span)]


def test_a_decision_holds_until_the_next_one(database: Database) -> None:
    _record(database, "a", 0, 10, 20)
    _record(database, "b", 5)
    assert _reasons(database, "a", 12, 12) == ["r10"]
    assert _reasons(database, "a", 10, 10) == ["r10"]
    assert _reasons(database, "a", -1, -1) == []
    assert _reasons(database, "a", -5, 12) == ["r0", "r10"]
    assert _reasons(database, "a", 12, 90) == ["r10", "r20"]
    assert next_decision_at(database, "a", NOON + timedelta(minutes=12)) == NOON + timedelta(minutes=20)
    assert next_decision_at(database, "a", NOON + timedelta(minutes=20)) is None
    with database.read() as connection:
        assert {watch: one.reason for watch, one in newest_decisions(connection).items()} == {"a": "r20", "b": "r5"}


def test_of_a_watch_no_more_than_the_newest_stay(database: Database) -> None:
    most = watch_decisions.MAX_PER_WATCH
    _record(database, "other", 0)
    _record(database, "a", *range(most + 3))
    assert len(_reasons(database, "a", 0, 10 * most)) == most
    assert _reasons(database, "a", 2, 2) == []
    assert _reasons(database, "other", 1, 1) == ["r0"]


def test_they_keep_their_watch_when_it_is_renamed(database: Database) -> None:
    _record(database, "old", 0, 10)
    with database.write() as connection:
        rename_watch(connection, "old", "new", NOON)
    assert _reasons(database, "new", 0, 10) == ["r0", "r10"]


def test_they_end_with_the_history_but_not_what_was_in_force_when_it_begins(database: Database) -> None:
    day = 24 * 60
    _record(database, "a", 0, day, 20 * day)
    _record(database, "steady", 0)
    keep = HistoryKeep(polls_s=86400.0, intervals_s=7 * 86400.0, hourly_s=30 * 86400.0)
    list(SqlPruner(database, keep).steps(NOON + timedelta(days=21)))
    assert _reasons(database, "a", 0, 30 * day) == [f"r{day}", f"r{20 * day}"]
    assert _reasons(database, "steady", day, day) == ["r0"]
