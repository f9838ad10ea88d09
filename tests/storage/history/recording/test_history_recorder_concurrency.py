"""Several recorders on one database, and a disk that fills up while recording."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from gpuwatch.domain.setup.durations import DAY_S
from gpuwatch.domain.setup.history_keep import HistoryKeep
from gpuwatch.errors import StoreError
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.history.queries.stored_prices import market_at
from gpuwatch.storage.history.recording.history_recorder import RecordedCounts, SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database, open_database
from tests.storage.stored_answers import NOON, an_answer, an_offer, machines


def test_a_clock_that_another_recorder_put_back_is_noticed(database: Database, database_url: str) -> None:
    """The new row is identified by its new time: closed by the old one, it would stay open beside the next."""
    other = open_database(database_url)
    try:
        first, second = SqlHistoryRecorder(database), SqlHistoryRecorder(other)
        first.record(an_answer(an_offer("m1", 1.0), after_s=7200), lane="hunt")
        second.record(an_answer(an_offer("m1", 1.0), after_s=0), lane="hunt")  # moves it, and changes nothing else
        first.record(an_answer(an_offer("m1", 2.0), after_s=7210), lane="hunt")
    finally:
        other.close()
    with database.read() as connection:
        is_open = connection.exec_driver_sql("SELECT seen_to_s IS NULL FROM price_interval ORDER BY seen_from_s")
        assert [bool(scalar) for scalar in is_open.scalars()] == [False, True]


def test_recorders_of_several_processes_take_turns(database: Database, database_url: str) -> None:
    faults: list[BaseException] = []

    def watch(first: int) -> None:
        mine = open_database(database_url)
        try:
            history = SqlHistoryRecorder(mine)
            for step in range(first, 60, 3):
                shown = [an_offer(f"m{number}", 1.0 + (number + step) % 4) for number in range(step % 5 + 1)]
                history.record(an_answer(*shown, after_s=step * 10), lane="sweep" if step % 2 else "hunt")
        except BaseException as fault:
            faults.append(fault)
        finally:
            mine.close()

    threads = [threading.Thread(target=watch, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    with database.read() as connection:
        sql = "SELECT count(*) FROM price_interval WHERE seen_to_s IS NULL GROUP BY series_id HAVING count(*) > 1"
        assert connection.exec_driver_sql(sql).fetchall() == []
        sql = """SELECT count(*) FROM price_interval a JOIN price_interval b ON a.series_id = b.series_id
 AND a.seen_from_s < b.seen_from_s AND (a.seen_to_s IS NULL OR a.seen_to_s > b.seen_from_s)"""
        assert connection.exec_driver_sql(sql).scalar() == 0


def test_after_a_full_disk_the_history_goes_on(sqlite_database: Database) -> None:
    history = SqlHistoryRecorder(sqlite_database)
    history.record(an_answer(an_offer("a")), lane="sweep")
    many = [an_offer(f"m{number}") for number in range(5000)]
    with sqlite_database.engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        pages = driver.execute("PRAGMA page_count").fetchone()[0]
        driver.execute(f"PRAGMA max_page_count={pages + 3}")
    with pytest.raises(StoreError, match="the disk is full"):
        history.record(an_answer(*many, after_s=60), lane="sweep")
    assert machines(market_at(sqlite_database, NOON + timedelta(seconds=61))) == {"a": 3_000_000}
    with sqlite_database.engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute("PRAGMA max_page_count=100000")
    assert history.record(an_answer(*many, after_s=120), lane="sweep") == RecordedCounts(new=5000, delisted=1)


def test_a_clock_of_1970_does_not_pull_months_of_history_back(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    for hour in range(60):
        history.record(an_answer(an_offer(), after_s=hour * 3600), lane="sweep")
    with pytest.raises(StoreError, match="the clock is"):
        history.record(an_answer(an_offer(), after_s=-1_700_000_000), lane="sweep")
    assert machines(market_at(database, NOON)) == {"m1": 3_000_000}
    assert history.record(an_answer(an_offer(), after_s=61 * 3600), lane="sweep") == RecordedCounts()


def test_polls_without_rows_do_not_let_a_clock_of_1970_pull_them_back(database: Database) -> None:
    history, days = SqlHistoryRecorder(database), 5
    for step in range(days * 12):
        history.record(an_answer(an_offer(usd_hour=3.0 + step % 5), after_s=step * 7200), lane="sweep")
    now = NOON + timedelta(days=days)
    assert prune(database, HistoryKeep(polls_s=1.0 * DAY_S), now).polls > 0
    past = market_at(database, NOON + timedelta(days=1))
    with pytest.raises(StoreError, match="the clock is or was wrong: the history reaches to"):
        history.record(an_answer(an_offer(), after_s=-1_700_000_000), lane="sweep")
    assert market_at(database, NOON + timedelta(days=1)) == past
    assert machines(past)
