"""Samples of GPU use: kept over a restart, unknown values stay unknown, old ones are deleted."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import update

from gpuwatch.domain.launches.instances.instance_checks import UtilisationSample
from gpuwatch.domain.launches.launch import Intent, Launch
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.storage.history.prune import SqlPruner
from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import history_state
from tests.builders import NOON, a_match, a_watch
from tests.reserving import launch_or_refusal

MINUTE = timedelta(minutes=1)
RENTS = a_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=3600.0))


@pytest.fixture
def launch_id(database: Database) -> str:
    intent = Intent(watch=RENTS, match=a_match(), launch_id="a" * 12, dry_run=False)
    with database.write() as connection:
        reserved = launch_or_refusal(connection, intent, Budget(), NOON)
    assert isinstance(reserved, Launch)
    return reserved.launch_id


def test_samples_outlive_the_process_in_their_order(database: Database, launch_id: str) -> None:
    for minute, percent in ((2, 5.5), (0, 97.0), (1, None)):
        SqlUtilisationRepository(database).add(launch_id, UtilisationSample(NOON + minute * MINUTE, percent))
    again = SqlUtilisationRepository(database)
    assert again.samples_since(launch_id, NOON + MINUTE) == [
        UtilisationSample(NOON + MINUTE, None),
        UtilisationSample(NOON + 2 * MINUTE, 5.5),
    ]
    assert again.samples_since("another", NOON) == []


def test_unknown_is_no_part_of_the_mean(database: Database, launch_id: str) -> None:
    uses = SqlUtilisationRepository(database)
    assert uses.mean(launch_id) is None
    for minute, percent in enumerate((10.0, None, 20.0)):
        uses.add(launch_id, UtilisationSample(NOON + minute * MINUTE, percent))
    assert uses.mean(launch_id) == 15.0


def test_a_second_sample_of_one_moment_takes_its_place(database: Database, launch_id: str) -> None:
    uses = SqlUtilisationRepository(database)
    uses.add(launch_id, UtilisationSample(NOON, None))
    uses.add(launch_id, UtilisationSample(NOON, 3.0))
    assert uses.samples_since(launch_id, NOON) == [UtilisationSample(NOON, 3.0)]


def test_what_is_old_is_deleted(database: Database, launch_id: str) -> None:
    """Also in a store whose owner has not decided how long the history stays."""
    with database.write() as connection:
        connection.execute(update(history_state).values(kept_by_default=0))
    uses = SqlUtilisationRepository(database)
    for minute in range(4):
        uses.add(launch_id, UtilisationSample(NOON + minute * MINUTE, 1.0))
    SqlPruner(database, None).run(NOON + timedelta(days=90) + 2 * MINUTE)
    assert len(uses.samples_since(launch_id, NOON)) == 2
