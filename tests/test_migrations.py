"""One head; an upgraded empty database equals tables.py; concurrent or interrupted starts upgrade once."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event, inspect

from gpuwatch.errors import StoreError, StoreTooNew
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import alembic_config, newest_schema, require_head, revision, upgrade
from gpuwatch.storage.setup.tables import metadata


def test_there_is_one_head_and_the_program_knows_it() -> None:
    assert ScriptDirectory.from_config(alembic_config()).get_heads() == [newest_schema()]


def test_an_empty_database_upgraded_is_what_tables_says(empty_database_url: str) -> None:
    database = open_database(empty_database_url)
    assert upgrade(database)[-1] == newest_schema()
    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
    database.close()


def test_indexes_and_checks_are_the_same_as_in_tables(empty_database_url: str) -> None:
    """What Alembic does not compare: conditions of partial indexes, check constraints, tables without row ids."""
    database = open_database(empty_database_url)
    upgrade(database)
    with database.write() as connection:
        if not database.is_sqlite:
            connection.exec_driver_sql("CREATE SCHEMA again")
            connection.exec_driver_sql("SET LOCAL search_path TO again")
            metadata.create_all(connection)
            sql = "SELECT replace(indexdef, 'again.', 'public.') FROM pg_indexes WHERE schemaname = '{}'"
            sides = [
                {row[0] for row in connection.exec_driver_sql(sql.format(name)) if "alembic" not in row[0]}
                for name in ("public", "again")
            ]
            sql = "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = '{}'::regnamespace"
            checks = [
                {tuple(row) for row in connection.exec_driver_sql(sql.format(name)) if row[0].startswith("ck_")}
                for name in ("public", "again")
            ]
            assert sides[0] == sides[1]
            assert checks[0] == checks[1]
            return
        found = _sqlite_schema(connection)
    database.close()
    again = open_database(empty_database_url.replace("gpuwatch.db", "again.db"))
    with again.write() as connection:
        metadata.create_all(connection)
        assert found == _sqlite_schema(connection)
    again.close()


def _sqlite_schema(connection: object) -> dict[str, str]:
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")  # type: ignore[attr-defined]
    return {name: _in_order(sql) for name, sql in rows if "alembic" not in name}


def _in_order(sql: str) -> str:
    """The order of constraints does not matter."""
    columns, *constraints = " ".join(sql.replace('"', "").split()).split(", CONSTRAINT ")
    return columns + "".join(sorted(part.removesuffix(" )") for part in constraints))


def test_a_second_upgrade_does_nothing(empty_database_url: str) -> None:
    database = open_database(empty_database_url)
    upgrade(database)
    assert upgrade(database) == []
    assert revision(database) == newest_schema()
    database.close()


def test_down_and_up_again(empty_database_url: str) -> None:
    database = open_database(empty_database_url)
    upgrade(database)
    with database.write() as connection:
        command.downgrade(alembic_config(connection), "base")
    with database.read() as connection:
        assert set(inspect(connection).get_table_names()) == {"alembic_version"}
    assert upgrade(database)[-1] == newest_schema()
    database.close()


def test_a_newer_database_is_refused_and_left_alone(empty_database_url: str) -> None:
    database = open_database(empty_database_url)
    upgrade(database)
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreTooNew, match="newer gpuwatch"):
        upgrade(database)
    with pytest.raises(StoreTooNew, match="newer gpuwatch"):
        require_head(database)
    assert revision(database) == "9999"
    database.close()


def test_a_database_of_somebody_else_is_refused(empty_database_url: str) -> None:
    database = open_database(empty_database_url)
    with database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE diary (day INTEGER)")
    with pytest.raises(StoreError, match="contains tables of another program"):
        upgrade(database)
    database.close()


def _upgrade(url: str, start: object, found: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    database = open_database(url)
    try:
        found.put(upgrade(database))  # type: ignore[attr-defined]
    finally:
        database.close()


def test_two_that_start_together_upgrade_once(empty_database_url: str) -> None:
    context = multiprocessing.get_context("spawn")
    start, found = context.Barrier(3), context.Queue()
    processes = [context.Process(target=_upgrade, args=(empty_database_url, start, found)) for _ in range(3)]
    for process in processes:
        process.start()
    steps = sorted(found.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
        process.close()
    found.close()
    found.join_thread()
    assert steps[:2] == [[], []]
    assert steps[2][-1] == newest_schema()


def _upgrade_and_die(url: str, statements: int) -> None:
    import os
    import signal

    database = open_database(url)
    left = [statements]

    @event.listens_for(database.engine, "before_cursor_execute")
    def count(*_: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    upgrade(database)


@pytest.mark.slow
@pytest.mark.parametrize("statements", [3, 8, 17, 30])
def test_kill_9_within_a_migration_leaves_nothing_half_done(empty_database_url: str, statements: int) -> None:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_upgrade_and_die, args=(empty_database_url, statements))
    process.start()
    process.join()
    assert process.exitcode == -9
    process.close()
    database = open_database(empty_database_url)
    with database.write() as connection:
        assert inspect(connection).get_table_names() == []
    assert upgrade(database)[-1] == newest_schema()
    database.close()


def test_a_password_with_a_percent_sign_is_no_trouble(tmp_path: Path) -> None:
    folder = tmp_path / "100%s sure"
    folder.mkdir()
    database = open_database(f"sqlite:///{folder / 'gpuwatch.db'}")
    assert upgrade(database)[-1] == newest_schema()
    database.close()
    assert (folder / "gpuwatch.db").stat().st_size > 0
