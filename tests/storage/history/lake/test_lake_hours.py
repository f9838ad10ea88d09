"""Hourly prices that a store still has are read there, beside a copy with what it has dropped."""

from __future__ import annotations

from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.price_series import PeriodLength
from gpuwatch.storage.history.lake.lake_place import FolderLake
from gpuwatch.storage.history.lake.lake_reader import open_with_lake
from gpuwatch.storage.history.lake.lake_writer import write_lake
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.history.queries.history_queries import SqlHourlyLows, read_price_periods
from gpuwatch.storage.history.queries.market_overview import read_gpu_price_history
from gpuwatch.storage.setup.database import Database
from tests.storage.aged_store import START, age

SPAN = START - timedelta(days=1), START + timedelta(days=12)
H100 = MarketFilter(gpus=("H100 SXM",))


def test_hours_of_the_store_are_read_beside_the_copy(database: Database, tmp_path: Path) -> None:
    age(database, 0, 12)
    place = FolderLake(tmp_path / "lake")
    copies: list[bool] = []

    def answers(*, needs_prices: bool) -> tuple[Any, ...]:
        with open_with_lake(database, place.url, H100, *SPAN, needs_prices=needs_prices) as history:
            copies.append(history is not database)
            periods = read_price_periods(history, H100, SPAN, spans=(PeriodLength.HOUR, UTC), rates={"vastai": 1.1})
            lows = SqlHourlyLows(history).hourly_lows(H100.gpus, *SPAN)
            (gpu,) = read_gpu_price_history(history, H100, *SPAN, {})
            return periods.points, periods.series.lows, periods.series.polled, lows, gpu.series.lows, gpu.series.polled

    expected = answers(needs_prices=True)
    list(write_lake(database, place, SPAN[1]))
    assert prune(database, timedelta(days=3), SPAN[1]).intervals > 10
    assert answers(needs_prices=True) == expected
    assert answers(needs_prices=False) == expected
    assert copies == [False, True, True]
