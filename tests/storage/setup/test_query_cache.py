"""Rarely changing data is read again only after a write: a daemon queries the same every second."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from gpuwatch.engine.alerts.alert_delivery import AlertDelivery
from gpuwatch.errors import StoreError
from gpuwatch.ports import Alert, AlertKind
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.hook_runs import SqlHookQueue
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver
from gpuwatch.storage.setup.stored_values import QueryCache
from tests.engine.scripted_channels import Scripted
from tests.outbox import outbox_alert

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
DAY = "INSERT INTO quota_day (provider, day, rows) VALUES ('vastai', {}, 1)"


class Days(QueryCache[list[int]]):
    """Return the stored days, and how often they were read."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, self.read_days)
        self.reads = 0

    def read_days(self, connection: Connection) -> list[int]:
        self.reads += 1
        return [row[0] for row in connection.exec_driver_sql("SELECT day FROM quota_day ORDER BY day")]


def write(database: Database, day: int) -> None:
    with database.write() as connection:
        connection.exec_driver_sql(DAY.format(day))


@contextmanager
def counted_reads(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    reads: list[None] = []
    read = database.read

    def counted() -> object:
        reads.append(None)
        return read()

    with monkeypatch.context() as patched:
        patched.setattr(database, "read", counted)
        yield reads


def test_everybodys_writes_are_seen_at_once(database: Database) -> None:
    """Also on PostgreSQL, where each call reads."""
    write(database, 1)
    days = Days(database)
    assert [days.get() for _ in range(5)] == [[1]] * 5
    write(database, 2)
    assert days.get() == [1, 2], "what this process wrote"
    other = open_database(database.url)
    write(other, 3)
    assert days.get() == [1, 2, 3], "what another connection wrote"
    other.close()
    for day in range(4, 40):
        write(database, day)
        assert days.get()[-1] == day


def test_nothing_is_read_again_while_nobody_writes(sqlite_database: Database) -> None:
    write(sqlite_database, 1)
    days = Days(sqlite_database)
    for _ in range(50):
        days.get()
    assert days.reads <= 2, "the first call, and the one from which on its version is known"
    with pytest.raises(ZeroDivisionError), sqlite_database.write() as connection:
        print(connection.exec_driver_sql(DAY.format(2)).rowcount / 0)
    days.get()
    assert days.reads <= 2, "what was rolled back is no write"


def test_the_write_of_another_process_is_seen(sqlite_database: Database) -> None:
    write(sqlite_database, 1)
    days = Days(sqlite_database)
    assert [days.get() for _ in range(3)] == [[1]] * 3
    program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"
    subprocess.run([sys.executable, "-c", program, str(sqlite_database.path), DAY.format(2)], check=True)
    assert days.get() == [1, 2]


def test_a_file_that_was_replaced_is_an_error_and_not_the_last_answer(sqlite_database: Database) -> None:
    write(sqlite_database, 1)
    days, path = Days(sqlite_database), sqlite_database.path
    assert path is not None
    assert [days.get() for _ in range(3)] == [[1]] * 3
    os.rename(path, path.with_suffix(".away"))
    with pytest.raises(StoreError, match="moved, deleted or replaced"):
        days.get()
    Path(path).touch()
    with pytest.raises(StoreError, match="moved, deleted or replaced"):
        days.get()


def test_after_a_fault_the_next_question_is_a_read(sqlite_database: Database) -> None:
    """Only a successful read shows that it is over: fault reports depend on that."""
    write(sqlite_database, 1)
    days = Days(sqlite_database)
    assert [days.get() for _ in range(3)] == [[1]] * 3
    with pytest.raises(StoreError), sqlite_database.read():
        raise OperationalError("SELECT 1", {}, sqlite_driver().OperationalError("disk I/O error"))
    assert sqlite_database.fault is not None
    assert days.get() == [1]
    assert sqlite_database.fault is None


def test_a_command_that_asks_once_opens_no_second_connection(sqlite_database: Database) -> None:
    write(sqlite_database, 1)
    Days(sqlite_database).get()
    assert sqlite_database._version_connection is None


def test_an_idle_daemon_asks_the_database_nothing(sqlite_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = AlertDelivery(Outbox(sqlite_database), {"telegram": Scripted("telegram")})
    hooks, jobs = SqlHookQueue(sqlite_database), SqlJobRepository(sqlite_database)
    launches = SqlLaunchRepository(sqlite_database)

    def tick(seconds: int) -> None:
        delivery.send_due(NOON + timedelta(seconds=seconds))
        hooks.lease(NOON + timedelta(seconds=seconds), 4, 60.0)
        jobs.open_jobs()
        launches.alive()
        launches.alive("vastai")

    write(sqlite_database, 1)
    for seconds in (0, 1, 20):
        tick(seconds)
    with counted_reads(sqlite_database, monkeypatch) as reads:
        for seconds in range(21, 80):  # also during checks for stalled channels
            tick(seconds)
    assert not reads


def test_an_alert_is_sent_by_the_next_look_whoever_wrote_it(database: Database) -> None:
    channel = Scripted("telegram")
    delivery = AlertDelivery(Outbox(database), {"telegram": channel}, patience_s=5.0)
    for seconds in range(3):
        assert delivery.send_due(NOON + timedelta(seconds=seconds)) == 0
    other = open_database(database.url)
    alert = Alert(alert_id="a1", kind=AlertKind.MATCH, created_at=NOON, headline="H100 at $3.48")
    Outbox(other).enqueue(outbox_alert(alert, (), NOON + timedelta(hours=1)))
    other.close()
    assert delivery.send_due(NOON + timedelta(seconds=3)) == 1
    assert delivery.close()


def test_a_locked_database_is_waited_for_once(sqlite_database: Database) -> None:
    """By the read alone: a query for the version would double the time that a task hangs."""
    write(sqlite_database, 1)
    days = Days(sqlite_database)
    assert [days.get() for _ in range(3)] == [[1]] * 3
    timeout = sqlite_database._version_connection.execute("PRAGMA busy_timeout").fetchall()
    assert timeout == [(0,)]
