"""A late run that ends between a file and its note: what is noted is still whole, and the next run continues."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.setup.history_keep import HistoryKeep
from gpuwatch.errors import StoreError
from gpuwatch.storage.history.lake import lake_writer
from gpuwatch.storage.history.lake.lake_place import FolderLake
from gpuwatch.storage.history.lake.lake_writer import write_lake
from gpuwatch.storage.history.prune import SqlPruner
from gpuwatch.storage.setup.database import Database
from tests.storage.aged_store import START, age
from tests.storage.history.lake.test_lake_writer import files_in, import_day, noted, rows_in

pytestmark = pytest.mark.slow
END = START + timedelta(days=14)


def fail(*_: Any) -> None:
    raise StoreError("the disk is full")


def test_a_month_that_is_written_but_not_noted_is_written_again(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = FolderLake(tmp_path / "lake")
    age(sqlite_database, 0, 14)
    list(write_lake(sqlite_database, place, END))
    list(SqlPruner(sqlite_database, HistoryKeep(intervals_s=86400.0), place.url).steps(START + timedelta(days=5)))
    rows = len(rows_in(sqlite_database, place, "intervals", tmp_path))
    import_day(sqlite_database, 10, "2.5", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(lake_writer, "replace_parts", fail)
        with pytest.raises(StoreError, match="the disk is full"):
            list(write_lake(sqlite_database, place, END))
    assert len(rows_in(sqlite_database, place, "intervals", tmp_path)) == rows
    list(write_lake(sqlite_database, place, END))
    assert len(rows_in(sqlite_database, place, "intervals", tmp_path)) == rows + 1  # the other price has not ended
    import_day(sqlite_database, 11, "2.5", tmp_path)
    list(write_lake(sqlite_database, place, END))
    assert noted(sqlite_database, place) == files_in(place)
