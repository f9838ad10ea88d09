"""The daemon's pruning: an older store is reported once a start, and left alone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import update

from gpuwatch.domain.setup.history_keep import HistoryKeep
from gpuwatch.engine.history.retention import Retention
from gpuwatch.storage.history.prune import SqlPruner
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import history_state
from tests.storage.stored_answers import NOON, an_answer, an_offer


def an_old_store(database: Database) -> SqlHistoryRecorder:
    history = SqlHistoryRecorder(database)
    for hour in range(0, 48, 6):
        history.record(an_answer(an_offer(usd_hour=1.0 + hour), after_s=hour * 3600), lane="sweep")
    history.roll_up(NOON + timedelta(days=600))
    with database.write() as connection:
        connection.execute(update(history_state).values(kept_by_default=0))
    return history


def test_what_an_older_store_would_lose_is_logged_once(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    history = an_old_store(database)
    undecided = Retention(database, SqlPruner(database, None))
    for minute in range(5):
        undecided.run(NOON + timedelta(days=600, minutes=minute))
    (line,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("[history] keep is not set")
    assert "7 rows of price_interval" in line
    caplog.clear()
    history.record(an_answer(an_offer(usd_hour=1.0), after_s=598.5 * 86_400), lane="sweep")  # yesterday was polled
    decided = Retention(database, SqlPruner(database, HistoryKeep()))
    for minute in range(5):
        decided.run(NOON + timedelta(days=600, minutes=minute))
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert stored_prices(database) == 2  # the last one of then ended yesterday


def stored_prices(database: Database) -> int:
    with database.read() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM price_interval").scalar_one())
