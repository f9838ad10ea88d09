"""PostgreSQL behind a network that drops packets: nothing arrives, and no connection is reset."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from gpuwatch.storage.setup.database import Database, SessionLimits, open_database
from tests.black_hole import black_hole
from tests.conftest import Postgres
from tests.storage.setup.test_database import NOTE, days


def test_a_network_that_swallows_every_packet_is_reported_and_holds_nobody_up_for_ever(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = SessionLimits(connect_s=2, statement_s=1.0)
    monkeypatch.setattr("gpuwatch.storage.setup.database.WRITER", limits)
    database_url = postgres.upgraded()
    hole, url = black_hole(database_url)
    database = open_database(url, limits=limits)
    with database.write() as connection:
        connection.exec_driver_sql(NOTE.format(1))
    hole.swallows.set()
    with ThreadPoolExecutor(2) as pool:
        failures = [pool.submit(_write_note, database, day) for day in (2, 3)]
        said = [str(each.exception(timeout=30)) for each in failures]
    assert any("does not answer" in each for each in said), said
    assert all("does not answer" in each or "for too long" in each for each in said), said
    assert database.fault
    hole.swallows.clear()
    _write_note(database, 4)
    assert days(database) == [1, 4]
    assert database.fault is None
    database.close()
    hole.close()
    postgres.drop(database_url)


def _write_note(database: Database, day: int) -> None:
    with database.write() as connection:
        connection.exec_driver_sql(NOTE.format(day))
