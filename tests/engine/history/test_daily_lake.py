"""The daemon brings its lake up to date once a day."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuwatch.engine.history.daily_lake import DailyLake
from gpuwatch.errors import StoreError
from gpuwatch.storage.history.lake.lake_notes import lake_verified_until_s
from gpuwatch.storage.history.lake.lake_place import FolderLake
from gpuwatch.storage.history.lake.lake_writer import write_lake
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.storage.aged_store import START, age
from tests.storage.stored_answers import an_answer, an_offer

MORNING = datetime(2026, 1, 9, 0, 59, tzinfo=UTC)


def test_a_day_is_written_once_an_hour_after_its_end(sqlite_database: Database, tmp_path: Path) -> None:
    runs: list[datetime] = []
    lake = DailyLake(sqlite_database, str(tmp_path), lambda: runs.append(MORNING))
    lake.run_if_due(MORNING - timedelta(hours=2))
    for minutes in range(0, 24 * 60, 10):
        lake.run_if_due(MORNING + timedelta(minutes=minutes))
    assert len(runs) == 2


def test_a_day_waits_until_its_last_hour_is_aggregated(sqlite_database: Database, tmp_path: Path) -> None:
    age(sqlite_database, 0, 1)
    runs: list[datetime] = []
    lake = DailyLake(sqlite_database, str(tmp_path), lambda: runs.append(MORNING))
    after = datetime(2026, 1, 5, 1, 10, tzinfo=UTC)
    lake.run_if_due(after - timedelta(days=1))
    assert len(runs) == 1  # the day of the first polls
    lake.run_if_due(after)
    assert len(runs) == 1  # the roll-up is late
    SqlHistoryRecorder(sqlite_database).roll_up(after)
    lake.run_if_due(after)
    assert len(runs) == 2


def test_a_late_poll_is_in_the_lake_after_the_next_run(sqlite_database: Database, tmp_path: Path) -> None:
    """One of an hour that is aggregated, and of a day that the lake has."""
    age(sqlite_database, 0, 3)
    place, after = FolderLake(tmp_path / "lake"), START + timedelta(days=3)
    list(write_lake(sqlite_database, place, after))
    late = START + timedelta(days=1)
    offer = an_offer("late", 1.5, provider="lambda")
    answer = an_answer(offer, provider="lambda", observed_at=late, rows=1)
    SqlHistoryRecorder(sqlite_database).record(answer, lane="sweep")
    with sqlite_database.read() as connection:
        verified_s = lake_verified_until_s(connection, place.url)
    assert verified_s == int(START.replace(day=1, hour=0, minute=0).timestamp())  # pruning waits for its month
    SqlHistoryRecorder(sqlite_database).roll_up(after)
    written = list(write_lake(sqlite_database, place, after))
    # its price applies still; its poll counts for three hours, which begin in one and end in the fourth
    assert {part.dataset: part.rows for part in written if part.provider == "lambda"} == {"hourly": 4, "polls": 1}


def test_a_failure_is_an_error_of_the_task_and_is_tried_again(sqlite_database: Database, tmp_path: Path) -> None:
    failures = ["no space left", None]
    lake = DailyLake(sqlite_database, str(tmp_path), lambda: failures.pop(0))
    with pytest.raises(StoreError, match="was not written: no space left"):
        lake.run_if_due(MORNING)
    lake.run_if_due(MORNING)
    assert failures == []


def test_what_the_command_wrote_is_not_due_after_a_restart(sqlite_database: Database, tmp_path: Path) -> None:
    """And the command needs nothing but what the daemon hands it."""
    age(sqlite_database, 0, 3)
    config = tmp_path / "gpuwatch.toml"
    config.write_text(f'database_url = "{sqlite_database.url}"\n')

    def export() -> str | None:
        argv = [sys.executable, "-m", "gpuwatch", "store", "export", "--lake", str(tmp_path / "lake")]
        done = subprocess.run([*argv, "--config", str(config)], capture_output=True, text=True, check=False)
        return done.stderr or None

    end = datetime(2026, 1, 5, 12, tzinfo=UTC)
    DailyLake(sqlite_database, str(tmp_path / "lake"), export).run_if_due(end)
    assert list((tmp_path / "lake").rglob("provider=vastai/*.parquet"))
    DailyLake(sqlite_database, str(tmp_path / "lake"), lambda: "it is run again").run_if_due(end)
