"""A database opened for reading: nothing can be written to it, and nothing is created."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from gpuwatch.engine.alerts.alert_delivery import AlertDelivery
from gpuwatch.errors import StoreMissing
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.daemon_lease import release_leases
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import open_read_only, revision
from gpuwatch.storage.setup.sqlite_driver import connect_read_only, sqlite_driver
from tests.engine.scripted_channels import Scripted


def test_a_read_only_database_cannot_be_written(database_url: str) -> None:
    with open_read_only(database_url) as database:
        with database.read() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM launch").scalar() == 0
        with pytest.raises(RuntimeError, match="reading only"), database.write():
            pass
        with pytest.raises(DBAPIError), database.engine.connect() as connection:
            connection.exec_driver_sql("INSERT INTO quota_day VALUES ('p', 1, 1)")


def test_an_empty_database_is_not_filled_by_a_reader(empty_database_url: str) -> None:
    database = open_database(empty_database_url)
    if database.is_sqlite:
        sqlite_driver().connect(database.path).close()
    with pytest.raises(StoreMissing, match="create it with `gpuwatch run`"), open_read_only(empty_database_url):
        pass
    assert revision(database) is None
    database.close()


_CHANGE_AND_DIE = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size=5")
connection.execute("BEGIN")
connection.execute("UPDATE t SET x = 'y' || x")
os.kill(os.getpid(), 9)
"""


def test_a_reader_recovers_what_a_killed_writer_left_behind(tmp_path: Path) -> None:
    """A hot rollback journal: a read-only connection must not roll it back, and cannot read without that."""
    path = tmp_path / "killed.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode=TRUNCATE")
        made.execute("CREATE TABLE t (x)")
        made.executemany("INSERT INTO t VALUES (?)", [("x" * 500,)] * 2000)
        made.commit()
    subprocess.run([sys.executable, "-c", _CHANGE_AND_DIE, str(path)], check=False)
    assert path.with_name("killed.db-journal").stat().st_size > 0
    with closing(connect_read_only(path)) as connection:
        assert connection.execute("SELECT count(*), min(x) FROM t").fetchone() == (2000, "x" * 500)


def test_what_the_daemon_builds_reads_only(sqlite_url: str) -> None:
    """What earlier processes left is taken over in a step of its own."""
    with open_read_only(sqlite_url) as database:
        AlertDelivery(Outbox(database), {"telegram": Scripted("telegram")})
        with pytest.raises(RuntimeError, match="reading only"):
            release_leases(database)
