"""Holds survive a restart if they can be stored, and never block anything else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from gpuwatch.errors import StoreError
from gpuwatch.ports.market import Hold
from gpuwatch.storage.market.provider_holds import CommandHolds, SqlHolds
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.migrate import upgrade
from tests.builders import NOON

HELD = Hold(
    provider="vastai", kind="search", set_at=NOON, until=NOON + timedelta(hours=1), reason="vastai: 429 quota",
    quota_resets_at=NOON + timedelta(hours=12),
)  # fmt: skip
LIMITED = Hold(
    provider="vastai", kind="list", set_at=NOON, until=NOON + timedelta(seconds=5), reason="vastai: 429 too many"
)


def test_the_newest_hold_of_a_class_is_kept(database: Database) -> None:
    holds = SqlHolds(database)
    for hold in (LIMITED, HELD, Hold(provider="runpod", kind="search", set_at=NOON, until=NOON, reason="x")):
        holds.save(hold)
    assert holds.load("vastai") == [LIMITED, HELD]
    later = Hold(provider="vastai", kind="search", set_at=NOON, until=NOON + timedelta(minutes=1), reason="again")
    holds.save(later)
    assert holds.load("vastai") == [LIMITED, later]
    assert list(holds.load("aws")) == []


def test_a_command_reads_what_the_daemon_kept_and_the_other_way_round(database: Database) -> None:
    SqlHolds(database).save(HELD)
    command = CommandHolds(database.url, may_write=True)
    assert command.load("vastai") == [HELD]
    command.save(LIMITED)
    assert SqlHolds(database).load("vastai") == [LIMITED, HELD]


def test_a_command_that_only_reads_keeps_nothing(database: Database) -> None:
    CommandHolds(database.url).save(HELD)
    assert list(SqlHolds(database).load("vastai")) == []


def test_without_a_database_there_is_no_hold_and_none_is_created(tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.db"
    holds = CommandHolds(f"sqlite:///{path}", may_write=True)
    holds.save(HELD)
    assert holds.load("vastai") == ()
    assert not path.exists()


def test_a_store_that_fails_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.db"
    path.write_bytes(b"not a database" * 100)
    command = CommandHolds(f"sqlite:///{path}", may_write=True)
    command.save(HELD)
    assert command.load("vastai") == ()


class BrokenDatabase:
    """Neither reads nor writes."""

    def read(self) -> None:
        raise StoreError("the disk is full")

    write = read


def test_a_daemon_whose_store_fails_polls_on() -> None:
    holds = SqlHolds(BrokenDatabase())  # type: ignore[arg-type]
    holds.save(HELD)
    assert holds.load("vastai") == ()


def test_an_older_schema_holds_nothing_and_stays_as_it_is(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/gpuwatch.db")
    upgrade(database)
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0005'")
        connection.exec_driver_sql("DROP TABLE provider_hold")
    database.close()
    command = CommandHolds(database.url, may_write=True)
    command.save(HELD)
    assert command.load("vastai") == ()
