"""Access to the database: transactions, and every error as one line."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from gpuwatch.errors import StoreError
from gpuwatch.storage.setup.database import Database, SessionLimits, open_database, wal_is_safe
from gpuwatch.storage.setup.migrate import upgrade
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver
from tests.conftest import Postgres

NOTE = "INSERT INTO quota_day (provider, day, rows) VALUES ('vastai', {}, 1)"


def days(database: Database) -> list[int]:
    with database.read() as connection:
        return [row[0] for row in connection.exec_driver_sql("SELECT day FROM quota_day ORDER BY day")]


def test_a_write_is_kept_as_a_whole(database: Database) -> None:
    with database.write() as connection:
        connection.exec_driver_sql(NOTE.format(1))
        connection.exec_driver_sql(NOTE.format(2))
    assert days(database) == [1, 2]


def test_an_error_within_a_write_undoes_all_of_it(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.write() as connection:
        print(connection.exec_driver_sql(NOTE.format(1)).rowcount / 0)
    assert days(database) == []
    with database.write() as connection:  # the next one is not blocked
        connection.exec_driver_sql(NOTE.format(2))
    assert days(database) == [2]


def test_a_lost_race_for_a_unique_row_is_the_callers_answer(database: Database) -> None:
    with database.write() as connection:
        connection.exec_driver_sql(NOTE.format(1))
    with pytest.raises(IntegrityError), database.write() as connection:
        connection.exec_driver_sql(NOTE.format(1))


def test_when_every_connection_waits_it_is_the_database_that_does_not_answer(database: Database) -> None:
    """Like a silent PostgreSQL: more tasks than connections are not a defect of gpuwatch."""
    database.engine.pool._timeout = 0.1  # type: ignore[attr-defined]
    with contextlib.ExitStack() as held:
        for _ in range(15):
            held.enter_context(database.read())
        with pytest.raises(StoreError, match="does not answer: all connections are waiting"), database.read():
            pass
        assert database.fault
    with database.read():
        assert database.fault is None


def test_a_reader_cannot_write(database: Database) -> None:
    with pytest.raises(StoreError, match=r"cannot be written|read-only"), database.read() as connection:
        connection.exec_driver_sql(NOTE.format(1))
    assert days(database) == []


def test_a_reader_sees_one_moment(database: Database) -> None:
    if database.is_sqlite and not wal_is_safe():
        pytest.skip("with a rollback journal the writer waits for the reader instead")
    with database.read() as reading:
        before = reading.exec_driver_sql("SELECT count(*) FROM quota_day").scalar()
        with database.write() as writing:
            writing.exec_driver_sql(NOTE.format(1))
        assert reading.exec_driver_sql("SELECT count(*) FROM quota_day").scalar() == before


def test_two_threads_that_read_and_then_write_lose_nothing(database: Database) -> None:
    """A transaction that reads first and writes later would fail at once on SQLite."""
    with database.write() as connection:
        connection.exec_driver_sql(NOTE.format(1))

    def count_up() -> None:
        for _ in range(30):
            with database.write() as connection:
                lock = "" if database.is_sqlite else " FOR UPDATE"
                rows = connection.exec_driver_sql(f"SELECT rows FROM quota_day WHERE day = 1{lock}").scalar()
                connection.exec_driver_sql(f"UPDATE quota_day SET rows = {rows} + 1 WHERE day = 1")

    threads = [threading.Thread(target=count_up) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT rows FROM quota_day").scalar() == 91


def test_a_write_inside_a_write_is_a_mistake_and_not_a_deadlock(database: Database) -> None:
    with database.write(), pytest.raises(RuntimeError, match="inside"), database.write():
        pass


def test_money_is_synced_and_the_journal_is_a_safe_one(sqlite_database: Database) -> None:
    with sqlite_database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
    assert journal == ("wal" if wal_is_safe() else "truncate")


@pytest.mark.parametrize(
    ("version", "safe"),
    [((3, 40, 1), False), ((3, 51, 2), False), ((3, 51, 3), True), ((3, 52, 0), False), ((3, 53, 0), True)],
)
def test_wal_is_used_where_it_is_free_of_the_reset_fault(version: tuple[int, ...], safe: bool) -> None:
    assert wal_is_safe(version) is safe


def test_reading_a_database_that_is_not_there_makes_none(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'none.db'}")
    with pytest.raises(StoreError, match=r"no database .*none\.db yet"), database.read():
        pass
    assert list(tmp_path.iterdir()) == []
    database.close()


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'no' / 'gpuwatch.db'}")
    with pytest.raises(StoreError, match="folder exists"):
        upgrade(database)
    database.close()


def test_the_folder_of_the_default_place_is_made(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'state' / 'gpuwatch' / 'gpuwatch.db'}")
    upgrade(database)
    database.close()
    assert (tmp_path / "state" / "gpuwatch").stat().st_mode & 0o777 == 0o700


def test_a_file_that_is_no_database_is_reported_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.db"
    path.write_bytes(b"dear diary, " * 1000)
    database = open_database(f"sqlite:///{path}")
    with pytest.raises(StoreError, match="is not a database"):
        upgrade(database)
    database.close()
    assert path.read_bytes().startswith(b"dear diary")


def test_a_damaged_page_is_reported(sqlite_url: str, tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.db"
    database = open_database(sqlite_url)
    with database.write() as connection:
        for day in range(3000):
            connection.exec_driver_sql(NOTE.format(day))
    database.close()
    with path.open("rb+") as file:
        file.seek(path.stat().st_size // 4096 // 2 * 4096)
        file.write(b"\xff" * (path.stat().st_size // 2))
    with pytest.raises(StoreError, match=r"is damaged; replace it with a backup"):
        days(database)
    database.close()


def test_a_lock_held_for_too_long_is_reported(sqlite_url: str, tmp_path: Path) -> None:
    other = sqlite_driver().connect(str(tmp_path / "gpuwatch.db"))
    other.execute("BEGIN IMMEDIATE")
    database = open_database(sqlite_url)
    with database.engine.connect() as connection:  # with a shorter wait than in production
        connection.connection.driver_connection.execute("PRAGMA busy_timeout=50")  # type: ignore[union-attr]
    with pytest.raises(StoreError, match="locked by another program"), database.write():
        pass
    other.close()
    with database.write() as connection:
        connection.exec_driver_sql(NOTE.format(1))
    database.close()


def test_a_full_disk_is_reported_and_once_there_is_room_it_goes_on(sqlite_database: Database) -> None:
    def fill(limit: str) -> None:
        with sqlite_database.write() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count={limit}")
            for day in range(5000):
                connection.exec_driver_sql(NOTE.format(day))

    with pytest.raises(StoreError, match="the disk is full"):
        fill("80")
    assert days(sqlite_database) == []
    fill("100000")
    assert len(days(sqlite_database)) == 5000


def _write_until_too_big(url: str, pipe: object) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    database = open_database(url)
    kept = 0
    try:
        for day in range(100_000):
            with database.write() as connection:
                for part in range(100):
                    connection.exec_driver_sql(NOTE.format(day * 100 + part))
            kept = day * 100 + 100
    except StoreError as error:
        pipe.send((kept, str(error)))  # type: ignore[attr-defined]
    database.close()


def test_a_write_that_the_disk_refuses_is_reported_and_nothing_acknowledged_is_lost(sqlite_url: str) -> None:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_write_until_too_big, args=(sqlite_url, theirs))
    process.start()
    assert mine.poll(60)
    kept, said = mine.recv()
    process.join()
    mine.close()
    theirs.close()
    assert kept > 0
    assert "\n" not in said
    database = open_database(sqlite_url)
    assert days(database) == list(range(kept))
    database.close()


def test_a_file_deleted_under_us_is_reported(sqlite_database: Database) -> None:
    with sqlite_database.write() as connection:
        connection.exec_driver_sql(NOTE.format(1))
    assert sqlite_database.path is not None
    sqlite_database.path.unlink()
    with pytest.raises(StoreError, match="moved, deleted or replaced"), sqlite_database.write():
        pass


def test_a_read_only_file_is_reported(sqlite_url: str, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    (tmp_path / "gpuwatch.db").chmod(0o444)
    database = open_database(sqlite_url)
    with pytest.raises(StoreError, match="cannot be written"), database.write() as connection:
        connection.exec_driver_sql(NOTE.format(1))
    database.close()


def test_an_old_schema_is_reported_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "gpuwatch.db").touch()
    database = open_database(f"sqlite:///{tmp_path / 'gpuwatch.db'}")
    with pytest.raises(StoreError, match="gpuwatch store upgrade"):
        days(database)
    database.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://", "in-memory"),
        ("sqlite:///:memory:", "in-memory"),
        ("gpuwatch.db", "not a valid URL"),
        ("mysql://me@here/db", "unknown driver 'mysql'"),
        ("", "not a valid URL"),
    ],
)
def test_an_address_that_cannot_be_meant_is_reported(url: str, said: str) -> None:
    with pytest.raises(StoreError, match=said):
        open_database(url)


def test_a_postgresql_that_does_not_answer_is_reported_without_the_password() -> None:
    database = open_database("postgresql://me:s3cret@127.0.0.1:9/gpuwatch")
    with pytest.raises(StoreError, match="does not answer") as caught, database.read():
        pass
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    database.close()


def test_a_writer_that_sleeps_in_its_transaction_does_not_block_the_others(postgres: Postgres) -> None:
    """M03: a daemon was stopped (SIGSTOP, a suspended machine) between two statements: its locks would remain."""
    database_url = postgres.upgraded()
    sleeper, other = open_database(database_url, limits=SessionLimits(idle_s=0.3)), open_database(database_url)
    asleep = pytest.raises(StoreError, match="idle-in-transaction")
    with asleep, sleeper.write() as connection:
        connection.exec_driver_sql(NOTE.format(1))
        with other.write() as another:
            another.exec_driver_sql(NOTE.format(1))  # waits for the sleeper's row
        connection.exec_driver_sql(NOTE.format(2))
    assert days(other) == days(sleeper) == [1]
    for each in (sleeper, other):
        each.close()
    postgres.drop(database_url)


def test_a_commit_is_on_disk_even_if_the_server_is_set_to_answer_before(postgres: Postgres) -> None:
    """Its restart would forget a launch whose order was sent, and nothing tells that: the timeline stays."""
    database_url = postgres.upgraded()
    hasty = open_database(f"{database_url}{'&' if '?' in database_url else '?'}options=-c%20synchronous_commit%3Doff")
    with hasty.read() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "off"
    with hasty.write() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
    hasty.close()
    postgres.drop(database_url)


def test_a_server_that_drops_the_connection_is_survived(postgres: object, database_url: str) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("there is no server")
    database = open_database(database_url)
    other = open_database(database_url)
    with pytest.raises(StoreError), database.write() as connection:  # noqa: PT012 - the fault strikes in the middle
        _end_all_others(other)
        connection.exec_driver_sql(NOTE.format(2))
    other.close()
    with database.write() as connection:
        connection.exec_driver_sql(NOTE.format(3))
    assert days(database) == [3]
    database.close()


def _end_all_others(database: Database) -> None:
    with database.read() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def _write_for_ever(url: str, acknowledged: str) -> None:
    database = open_database(url)
    with open(acknowledged, "a", buffering=1) as done:
        day = 1 + max(days(database), default=0)
        while True:
            with database.write() as connection:
                connection.exec_driver_sql(NOTE.format(day))
            done.write(f"{day}\n")
            day += 1


@pytest.mark.slow
def test_kill_9_in_a_write_loop_keeps_every_acknowledged_row(sqlite_url: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    acknowledged = tmp_path / "acknowledged"
    acknowledged.touch()
    for after_s in (0.05, 0.11, 0.07, 0.13, 0.03, 0.09):
        process = context.Process(target=_write_for_ever, args=(sqlite_url, str(acknowledged)))
        process.start()
        known = acknowledged.stat().st_size
        until = time.monotonic() + 30
        while acknowledged.stat().st_size == known and time.monotonic() < until:  # it may start late on a busy machine
            time.sleep(0.005)
        time.sleep(after_s)
        process.kill()
        process.join()
        process.close()
        database = open_database(sqlite_url)
        reported = {int(line) for line in acknowledged.read_text().splitlines()}
        assert reported <= set(days(database))
        with database.read() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
        database.close()
    assert acknowledged.read_text()


def test_the_newer_of_the_two_drivers_is_used() -> None:
    assert sqlite_driver().sqlite_version_info >= sqlite3.sqlite_version_info
    assert sys.version_info >= (3, 11)


def test_a_file_that_is_gone_is_a_fault_for_readers_too_until_it_is_back(sqlite_database: Database) -> None:
    """Nobody may write for a while: then the readers' errors alert the owner."""
    with sqlite_database.write():
        pass
    assert sqlite_database.path is not None
    away = sqlite_database.path.rename(sqlite_database.path.with_name("away.db"))
    with pytest.raises(StoreError, match="moved, deleted or replaced"), sqlite_database.read():
        pass
    assert "moved, deleted or replaced" in (sqlite_database.fault or "")
    away.rename(sqlite_database.path)
    with sqlite_database.read():
        pass
    assert sqlite_database.fault is None
