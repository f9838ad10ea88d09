"""Backup, prune, stats and the daemon's lock."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from gpuwatch.errors import StoreError, StoreInUse, UsageError
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.history.queries.history_queries import kept_from
from gpuwatch.storage.history.queries.stored_prices import market_at
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.backup import backup, rebuild
from gpuwatch.storage.setup.daemon_lease import claim_daemon
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver
from gpuwatch.storage.setup.store_stats import read_store_stats
from tests.storage.stored_answers import NOON, an_answer, an_offer, machines

HOUR_S = 3600


def a_long_story(database: Database) -> None:
    """Ten days, a sweep every two hours; one machine stays, one is repriced, one comes and goes."""
    history = SqlHistoryRecorder(database)
    for step in range(120):
        offers = [an_offer("stands"), an_offer("moves", 1.0 + step % 5)]
        if step % 10 < 5:
            offers.append(an_offer("guest", 2.0))
        if step < 10:
            offers.append(an_offer("early", 4.0))
        history.record(an_answer(*offers, after_s=step * 2 * HOUR_S), lane="sweep")


def sums(database: Database) -> list[tuple[object, ...]]:
    with database.read() as connection:
        sql = "SELECT count(*), sum(min_microusd), sum(offer_seconds), sum(offers) FROM hourly"
        return [tuple(row) for row in connection.execute(text(sql))]


def test_prune_keeps_the_roll_ups_and_every_moment_within_the_days(database: Database) -> None:
    a_long_story(database)
    now = NOON + timedelta(hours=239)
    moments = [now - timedelta(hours=hours) for hours in (0, 1, 13, 30, 60, 71)]
    before = [machines(market_at(database, moment)) for moment in moments]
    pruned = NOON + timedelta(hours=20)
    whole = machines(market_at(database, pruned))
    prune(database, timedelta(days=400), now)  # aggregates the complete hours
    rolled = sums(database)
    done = prune(database, timedelta(days=3), now)
    assert done.intervals > 50
    assert done.polls > 70
    assert done.series == 1
    assert sums(database) == rolled
    assert [machines(market_at(database, moment)) for moment in moments] == before
    # what was pruned is not known: of an earlier moment only the prices that still stood later are left
    assert machines(market_at(database, pruned)).items() < whole.items()
    assert pruned < done.kept_from <= min(moments)
    assert kept_from(database) == done.kept_from


def test_a_second_prune_finds_nothing_to_do(database: Database) -> None:
    a_long_story(database)
    now = NOON + timedelta(hours=239)
    prune(database, timedelta(days=3), now)
    again = prune(database, timedelta(days=3), now)
    assert (again.intervals, again.series, again.polls) == (0, 0, 0)


def test_a_daemon_goes_on_after_a_prune(database: Database) -> None:
    a_long_story(database)
    daemon = SqlHistoryRecorder(database)
    last = an_answer(an_offer("stands"), an_offer("moves", 5.0), after_s=119 * 2 * HOUR_S + 60)
    daemon.record(last, lane="sweep")
    prune(database, timedelta(days=1), NOON + timedelta(hours=239))
    daemon.record(an_answer(an_offer("early", 4.0), after_s=240 * HOUR_S), lane="sweep")
    assert machines(market_at(database, NOON + timedelta(hours=240))) == {"early": 4_000_000}


def test_a_backup_is_whole_and_verified(sqlite_database: Database, tmp_path: Path) -> None:
    a_long_story(sqlite_database)
    report = backup(sqlite_database, tmp_path / "copy.db")
    assert report.rows["poll"] == 120
    copy = open_database(f"sqlite:///{tmp_path / 'copy.db'}")
    moment = NOON + timedelta(hours=100)
    assert market_at(copy, moment) == market_at(sqlite_database, moment)
    copy.close()
    assert [path.name for path in tmp_path.glob("copy.db*")] == ["copy.db"]


def test_a_backup_is_made_while_others_write(sqlite_database: Database, tmp_path: Path) -> None:
    a_long_story(sqlite_database)
    over = threading.Event()

    def go_on() -> None:
        history, step = SqlHistoryRecorder(sqlite_database), 0
        while not over.is_set():
            step += 1
            history.record(an_answer(an_offer("a", 1.0 + step % 7), after_s=1_000_000 + step * 60), lane="sweep")

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        for number in range(3):
            backup(sqlite_database, tmp_path / f"copy{number}.db")
    finally:
        over.set()
        writer.join()


def test_a_backup_never_replaces_a_file_unasked(sqlite_database: Database, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("precious")
    with pytest.raises(UsageError, match="--force"):
        backup(sqlite_database, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"
    assert backup(sqlite_database, tmp_path / "copy.db", force=True).bytes > 1000


def test_a_backup_onto_the_database_itself_is_refused(sqlite_database: Database) -> None:
    assert sqlite_database.path is not None
    with pytest.raises(UsageError, match="itself"):
        backup(sqlite_database, sqlite_database.path, force=True)


def test_a_damaged_database_gives_no_backup(sqlite_database: Database, tmp_path: Path) -> None:
    a_long_story(sqlite_database)
    sqlite_database.close()
    path = tmp_path / "gpuwatch.db"
    with path.open("rb+") as file:
        file.seek(path.stat().st_size // 4096 // 2 * 4096)
        file.write(b"\xff" * 8192)
    copy = tmp_path / "copy.db"
    copy.write_text("an older copy")
    with pytest.raises(StoreError, match=rf"the database ({path} )?is damaged"):
        backup(sqlite_database, copy, force=True)
    assert [(kept.name, kept.read_text()) for kept in tmp_path.glob("copy.db*")] == [("copy.db", "an older copy")]


def test_a_rewritten_file_has_the_same_rows_and_gives_pages_back(sqlite_database: Database, tmp_path: Path) -> None:
    a_long_story(sqlite_database)
    path = sqlite_database.path
    assert path is not None
    sqlite_database.close()
    driver = sqlite_driver()
    with closing(driver.connect(str(path))) as connection:  # as an older gpuwatch made it
        connection.execute("PRAGMA auto_vacuum=NONE")
        connection.execute("VACUUM")
        connection.execute("CREATE TABLE filler (x)")
        connection.execute("INSERT INTO filler VALUES (zeroblob(3000000))")
        connection.execute("DROP TABLE filler")
        connection.commit()
        before = connection.execute("SELECT * FROM price_interval ORDER BY 1, 2").fetchall()
        full = connection.execute("PRAGMA page_count").fetchone()[0] * 4096
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE history_state SET version = version")
        with pytest.raises(StoreError, match=r"use|lock"):
            rebuild(path, timeout_s=0.05)
        connection.rollback()
    assert rebuild(path) < full - 2_500_000
    with closing(driver.connect(str(path))) as connection:
        assert connection.execute("SELECT * FROM price_interval ORDER BY 1, 2").fetchall() == before
        assert connection.execute("PRAGMA auto_vacuum").fetchone()[0] == 2
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert not list(path.parent.glob("*.part"))


def _back_up(url: str, target: Path) -> None:
    database = open_database(url)
    while True:
        backup(database, target, force=True)


@pytest.mark.slow
def test_kill_9_in_a_backup_leaves_it_absent_or_whole(
    sqlite_database: Database, sqlite_url: str, tmp_path: Path
) -> None:
    a_long_story(sqlite_database)
    target = tmp_path / "copy.db"
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_back_up, args=(sqlite_url, target))
    process.start()
    while not target.exists():
        assert process.is_alive()
        process.join(0.02)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    process.close()
    copy = open_database(f"sqlite:///{target}")
    with copy.read() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
        assert connection.exec_driver_sql("SELECT count(*) FROM poll").scalar() == 120
    copy.close()


def test_postgresql_is_left_to_pg_dump(database: Database, tmp_path: Path) -> None:
    if database.is_sqlite:
        pytest.skip("SQLite has its own backup")
    with pytest.raises(StoreError, match="pg_dump"):
        backup(database, tmp_path / "copy.db")


def test_stats_tell_size_and_span(database: Database) -> None:
    a_long_story(database)
    found = read_store_stats(database)
    assert found.bytes > 50_000
    assert found.rows["poll"] == 120
    assert found.first_poll_at == NOON
    assert found.last_poll_at == NOON + timedelta(hours=238)
    assert found.on_offer == 2
    assert found.rows_received == sum(2 + (step % 10 < 5) + (step < 10) for step in range(120))


def test_stats_of_an_empty_history(database: Database) -> None:
    found = read_store_stats(database)
    assert found.bytes_per_offer_and_poll is None
    assert found.first_poll_at is None


def _hold(url: str, held: object, over: object) -> None:
    with claim_daemon(url):
        held.set()  # type: ignore[attr-defined]
        over.wait()  # type: ignore[attr-defined]


def test_a_second_daemon_on_one_sqlite_file_is_reported_who_holds_it(sqlite_url: str) -> None:
    context = multiprocessing.get_context("spawn")
    held, over = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(sqlite_url, held, over))
    process.start()
    assert held.wait(30)
    with pytest.raises(StoreInUse, match=rf"a daemon \(process {process.pid}\)"), claim_daemon(sqlite_url):
        pass
    process.kill()  # the kernel releases the lock of a killed process
    process.join()
    process.close()
    with claim_daemon(sqlite_url):
        pass


def test_several_daemons_may_share_a_postgresql() -> None:
    url = "postgresql+psycopg://here/gpuwatch"
    with claim_daemon(url), claim_daemon(url):
        pass
