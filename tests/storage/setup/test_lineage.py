"""A database that went back is noticed: newest rows that are gone, or another database under the same name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.conftest import Postgres
from tests.storage.launches.test_launch_repository import renting, reserve


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    url = postgres.upgraded()
    opened = open_database(url)
    yield opened
    opened.close()
    postgres.give_back(url)


def decide(database: Database) -> int:
    """Open a transaction that may rent; return the generation that it sees."""
    with SqlDecisionStore(database).open():
        return database.generation


def test_rows_that_are_gone_are_noticed_before_anything_is_decided(database: Database) -> None:
    reserve(database, renting(), "1", "a" * 12)
    assert [decide(database), decide(database)] == [0, 0]
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM launch_event")
    assert [decide(database), decide(database)] == [1, 1]
    reserve(database, renting("other"), "2", "b" * 12)
    SqlLaunchRepository(database).update_obligations()
    assert decide(database) == 1


def test_a_server_without_these_functions_is_compared_by_its_rows(database: Database) -> None:
    with database.write() as connection:
        connection.exec_driver_sql("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        connection.exec_driver_sql("CREATE ROLE lineage_guest LOGIN")
        connection.exec_driver_sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO lineage_guest")
    guest = open_database(database.url.replace("postgres:", "lineage_guest:", 1), read_only=True)
    try:
        with guest.read() as connection:
            guest.check_lineage(connection)
            guest.check_lineage(connection)
        assert guest.generation == 0
    finally:
        guest.close()
        with database.write() as connection:
            connection.exec_driver_sql("DROP OWNED BY lineage_guest; DROP ROLE lineage_guest")
            connection.exec_driver_sql("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")


def test_sqlite_asks_nothing(sqlite_database: Database) -> None:
    assert decide(sqlite_database) == 0
