"""Leases belong to a process and a generation: SQLite's only daemon takes over those of the process before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gpuwatch.storage.alerts.chat_inbox import ChatInbox
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.daemon_lease import release_leases
from gpuwatch.storage.setup.database import Database, open_database
from tests.conftest import Postgres
from tests.storage.alerts.test_outbox import ids, lease, reported

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_the_next_process_takes_over_at_once_what_a_kill_interrupted(sqlite_database: Database) -> None:
    box = reported(sqlite_database, "a1", "a2")
    lease(box)
    assert ChatInbox(sqlite_database, "bot", "killed").lease(NOON, 40.0) is not None
    release_leases(sqlite_database)
    assert ids(lease(box)) == ["a1", "a2"]
    assert ChatInbox(sqlite_database, "bot", "next").lease(NOON, 40.0) is not None


def test_a_new_generation_of_a_process_leaves_what_the_one_before_is_sending(sqlite_database: Database) -> None:
    """Both build an outbox; only the process releases leases."""
    lease(reported(sqlite_database, "a1"))
    assert lease(Outbox(sqlite_database)) == ()


def test_on_postgresql_the_leases_of_living_daemons_stay(postgres: Postgres) -> None:
    database = open_database(postgres.upgraded())
    box = reported(database, "a1")
    lease(box)
    assert ChatInbox(database, "bot", "living").lease(NOON, 40.0) is not None
    release_leases(database)
    assert lease(box) == ()
    assert ChatInbox(database, "bot", "other").lease(NOON, 40.0) is None
    database.close()


@pytest.mark.parametrize("step", [timedelta(days=-1), timedelta(days=1)])
def test_a_lease_to_poll_does_not_outlast_a_step_of_the_clock(database: Database, step: timedelta) -> None:
    assert ChatInbox(database, "bot", "dead").lease(NOON, 40.0) is not None
    assert ChatInbox(database, "bot", "other").lease(NOON + timedelta(seconds=1), 40.0) is None
    assert ChatInbox(database, "bot", "other").lease(NOON + step, 40.0) is not None
