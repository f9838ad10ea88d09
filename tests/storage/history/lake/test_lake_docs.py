"""The queries of docs/lake.md, on a lake that the program has written."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuwatch.storage.history.lake.lake_place import open_place
from gpuwatch.storage.history.lake.lake_writer import write_lake
from gpuwatch.storage.history.queries.stored_prices import market_at
from gpuwatch.storage.setup.database import Database
from tests.checkout import ROOT
from tests.storage.aged_store import START, age

QUERIES = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "lake.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
def test_the_five_queries_answer_and_agree_with_the_store(sqlite_database: Database, tmp_path: Path) -> None:
    import duckdb

    age(sqlite_database, 0, 45)
    list(write_lake(sqlite_database, open_place(str(tmp_path)), START + timedelta(days=45)))
    with duckdb.connect(":memory:") as connection:
        answers = [connection.execute(text.replace("/srv/gpuwatch-lake", str(tmp_path))).fetchall() for text in QUERIES]
    lows, lifetimes, on_sale, by_hour, failures = answers
    assert {day.month for _, _, day, _ in lows} == {1}
    assert {provider for _, provider, *_ in lows} == {"vastai", "runpod"}
    assert {gpu for gpu, *_ in lifetimes} == {"H100 SXM", "RTX 4090"}
    stored = {
        (
            offer.gpu,
            offer.provider.partition(":")[0],
            offer.machine_id,
            offer.machine_microusd_hour / 1e6 / offer.gpu_count,
        )
        for offer in market_at(sqlite_database, datetime(2026, 1, 20, 12, tzinfo=UTC))
    }
    assert {(gpu, provider, machine, usd) for gpu, provider, machine, _, usd in on_sale} == stored != set()
    assert {hour for _, hour, _ in by_hour} == set(range(24))
    assert {month for _, month, *_ in failures} == {"2026-01", "2026-02"}
    assert all(0 < percent < 15 for *_, percent in failures)
