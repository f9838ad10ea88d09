"""The daemon's pruning: an older store is reported, to the owner's channels once, and left alone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import update

from gpuwatch.domain.alerts.alert import AlertKind, Severity
from gpuwatch.domain.setup.history_keep import HistoryKeep
from gpuwatch.engine.history.retention import Retention
from gpuwatch.storage.alerts.outbox import Outbox
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
    outbox = Outbox(database)
    undecided = Retention(database, SqlPruner(database, None), outbox.enqueue)
    for minute in range(5):
        undecided.run(NOON + timedelta(days=600, minutes=minute))
    (line,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("[history] keep is not set")
    assert "7 rows of price_interval" in line
    caplog.clear()
    history.record(an_answer(an_offer(usd_hour=1.0), after_s=598.5 * 86_400), lane="sweep")  # yesterday was polled
    decided = Retention(database, SqlPruner(database, HistoryKeep()), outbox.enqueue)
    for minute in range(5):
        decided.run(NOON + timedelta(days=600, minutes=minute))
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert stored_prices(database) == 2  # the last one of then ended yesterday


def test_an_older_store_is_one_alert_over_all_starts(database: Database) -> None:
    """With what would be deleted, how much, the two ways of a copy, and the line that decides."""
    an_old_store(database)
    outbox = Outbox(database)
    for day in (600, 601, 650):
        Retention(database, SqlPruner(database, None), outbox.enqueue).run(NOON + timedelta(days=day))
    (one,) = outbox.unrouted()
    shown = one.alert
    assert (shown.kind, shown.severity) == (AlertKind.DAEMON, Severity.INFO)
    assert "7 rows of price_interval" in dict(shown.facts)["Would be deleted"]
    said = "\n".join(shown.can_do)
    for words in (
        "gpuwatch store backup FILE",
        "[history] lake = ",
        '[history] keep = { polls = "30d", intervals = "400d"',
    ):
        assert words in said


def test_a_new_store_or_one_that_is_decided_is_no_alert(database: Database) -> None:
    an_old_store(database)
    outbox = Outbox(database)
    Retention(database, SqlPruner(database, HistoryKeep()), outbox.enqueue).run(NOON + timedelta(days=600))
    with database.write() as connection:
        connection.execute(update(history_state).values(kept_by_default=1))
    Retention(database, SqlPruner(database, None), outbox.enqueue).run(NOON + timedelta(days=600))
    assert not outbox.unrouted()


def stored_prices(database: Database) -> int:
    with database.read() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM price_interval").scalar_one())
