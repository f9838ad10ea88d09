"""Summing up an hour takes the memory of one GPU's offers, not of the whole market's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from sqlalchemy import Connection

from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.history.recording.hourly_aggregates import (
    EndedIntervalLog,
    aggregate_from_store,
    matching_segments,
    unfinished_hours,
)
from gpuwatch.storage.history.recording.open_prices import load_open_prices
from gpuwatch.storage.history.recording.recording import EndedInterval
from gpuwatch.storage.setup.database import Database
from tests.storage.stored_answers import NOON, an_answer, an_offer

GPUS = ("H100 SXM", "A100 SXM 80GB", "RTX 4090", "L40S")
EACH = 5
FIRST = int(NOON.timestamp()) // HOUR_S


class CountingConnection:
    """Notes how many intervals each query returned."""

    def __init__(self, connection: Connection) -> None:
        self.intervals: list[int] = []
        self._inner = connection

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        found = self._inner.execute(statement, parameters).freeze()
        if "price_interval" in str(statement):
            self.intervals.append(len(found().all()))
        return found()


def recorded(database: Database) -> None:
    offers = [an_offer(f"m{n}", 1.0 + n, gpu=gpu, gpu_family=gpu[:4]) for gpu in GPUS for n in range(EACH)]
    SqlHistoryRecorder(database).record(an_answer(*offers), lane="sweep")


def test_the_intervals_of_one_gpu_are_read_at_a_time(sqlite_database: Database) -> None:
    recorded(sqlite_database)
    with sqlite_database.read() as connection:
        counting = CountingConnection(connection)
        prices = load_open_prices(connection)
        hours = dict(aggregate_from_store(cast(Connection, counting), FIRST, FIRST + 1, prices))
    assert {segment[1]: row.offers for segment, row in hours[FIRST].items()} == dict.fromkeys(GPUS, EACH)
    assert counting.intervals == [EACH] * len(GPUS)


def test_the_running_hour_is_read_of_the_requested_gpu_alone(sqlite_database: Database) -> None:
    recorded(sqlite_database)
    with sqlite_database.read() as connection:
        counting = CountingConnection(connection)
        segments = matching_segments(connection, MarketFilter(gpus=("L40S",), spot=False))
        now_s = int((NOON + timedelta(minutes=30)).timestamp())
        found = unfinished_hours(cast(Connection, counting), segments, FIRST, now_s)
    assert [[row.offers for row in by_hour.values()] for by_hour in found.values()] == [[EACH]]
    assert counting.intervals == [EACH]


def test_the_log_forgets_what_ended_before_a_moment_and_keeps_the_rest() -> None:
    log = EndedIntervalLog(since_s=0)
    log.add(
        EndedInterval(
            segment_id=segment,
            series_id=segment * 10 + until,
            from_s=0,
            until_s=until,
            machine_microusd=5,
            disk_microusd=None,
        )
        for segment in (1, 2)
        for until in (100 * segment, 300)
    )
    log.add([EndedInterval(segment_id=3, series_id=9, from_s=0, until_s=50, machine_microusd=5, disk_microusd=None)])
    log.drop_before(150)
    assert {n: [interval.until_s for interval in log.segment_intervals(n)] for n in (1, 2, 3)} == {
        1: [300],
        2: [200, 300],
        3: [],
    }
