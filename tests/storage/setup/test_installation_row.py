"""One installation per database: its id is created once, and is in every launch."""

from __future__ import annotations

import re

import msgspec

from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.account_rows import ensure_installation
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import installation
from tests.builders import NOON
from tests.storage.launches.test_launch_repository import race, renting, reserve, reserving


def _stored(database: Database) -> str:
    with database.write() as connection:
        return ensure_installation(connection, NOON).install_id


def test_it_is_made_once_and_stays(database: Database) -> None:
    first = _stored(database)
    assert re.fullmatch("[a-z2-7]{8}", first)
    assert _stored(database) == first
    with database.read() as connection:
        (row,) = connection.execute(installation.select())
    assert len(row.key_salt) == 32


def test_every_launch_carries_it_from_its_admission_on(database: Database) -> None:
    launch = reserve(database, renting(), "1", "a" * 12)
    assert launch.install_id == _stored(database)
    kept = msgspec.structs.replace(launch, account_id="7", watch_id="abcdefgh", terms="{}")
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE launch SET account_id = '7', watch_id = 'abcdefgh', terms = '{}'")
    assert SqlLaunchRepository(database).get("a" * 12) == kept


def test_two_that_start_together_agree(database: Database, database_url: str) -> None:
    jobs = [reserving(renting(f"w{n}"), str(n), letter * 12) for n, letter in enumerate("abcd")]
    found = race(database_url, jobs)
    assert {launch.install_id for launch in found} == {_stored(database)}
