"""The store of a year that `python -m benchmarks.year` measures is one that gpuwatch could have recorded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import delete, func, select, update

from benchmarks.year.market import Year
from benchmarks.year.store import build
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.history.recording.hourly_aggregates import aggregate_hours
from gpuwatch.storage.history.recording.poll_writer import pack_days
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.tables import history_state, hourly, poll_day, price_interval, segment, series

NOW = datetime(2026, 8, 1, 12, 20, tzinfo=UTC)
_YEAR = Year(seed=3, until_s=int(NOW.timestamp()), days=20, intervals=4_000, part=0.03)


def test_hourly_rows_equal_the_roll_up_s_own(tmp_path: Path) -> None:
    rows = build(f"sqlite:///{tmp_path / 'year.db'}", _YEAR)
    database = open_database(f"sqlite:///{tmp_path / 'year.db'}")
    with database.read() as connection:
        columns = select(segment.c.id, segment.c.provider, segment.c.gpu, segment.c.gpu_count, segment.c.spot)
        segments = {number: tuple(key) for number, *key in connection.execute(columns)}
        end_hour = connection.execute(select(history_state.c.next_hour)).scalar_one()
        hours = range(_YEAR.start_s // HOUR_S, end_hour)
        found = aggregate_hours(connection, hours, segments, end_hour * HOUR_S)
        stored = {(row.hour, row.segment_id): tuple(row)[2:] for row in connection.execute(select(hourly))}
    numbers = {key: number for number, key in segments.items()}
    expected = {(hour, numbers[key]): tuple(row) for hour, rows in found.items() for key, row in rows.items()}
    assert stored == expected
    assert rows["hourly"] == len(stored) > 5_000
    database.close()


def test_packed_polls_equal_the_daemon_s_own(tmp_path: Path) -> None:
    build(f"sqlite:///{tmp_path / 'year.db'}", _YEAR)
    database = open_database(f"sqlite:///{tmp_path / 'year.db'}")
    with database.write() as connection:
        packed = {tuple(row) for row in connection.execute(select(poll_day))}
        state = connection.execute(select(history_state.c.packed_to_day)).scalar_one()
        connection.execute(delete(poll_day))
        connection.execute(update(history_state).values(packed_to_day=None))
    pack_days(database, _YEAR.until_s)
    with database.read() as connection:
        assert {tuple(row) for row in connection.execute(select(poll_day))} == packed
        assert connection.execute(select(history_state.c.packed_to_day)).scalar_one() == state
    database.close()


def test_the_recorder_goes_on_where_the_store_ends(tmp_path: Path) -> None:
    build(f"sqlite:///{tmp_path / 'year.db'}", _YEAR)
    database = open_database(f"sqlite:///{tmp_path / 'year.db'}")
    SqlHistoryRecorder(database).roll_up(NOW + timedelta(hours=2))
    with database.read() as connection:
        is_open = select(func.count()).select_from(price_interval).where(price_interval.c.ended_s.is_(None))
        on_offer = select(func.count()).select_from(series).where(series.c.on_offer == 1)
        assert connection.execute(is_open).scalar_one() == connection.execute(on_offer).scalar_one() > 0
        newest = connection.execute(select(func.max(hourly.c.hour))).scalar_one()
    assert newest == (int(NOW.timestamp()) + 2 * HOUR_S - 300) // HOUR_S - 1
    database.close()
