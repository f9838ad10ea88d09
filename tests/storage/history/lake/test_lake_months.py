"""A month that is over becomes one file: with all rows, also for who reads meanwhile, and after a kill in between."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.errors import StoreError
from gpuwatch.storage.history.lake.lake_place import FolderLake, checksum_of
from gpuwatch.storage.history.lake.lake_query import LakeQuery
from gpuwatch.storage.history.lake.lake_reader import open_with_lake
from gpuwatch.storage.history.lake.lake_schema import DATASETS
from gpuwatch.storage.history.lake.lake_source import sort_key
from gpuwatch.storage.history.lake.lake_writer import write_lake
from gpuwatch.storage.history.queries.stored_prices import read_market_history
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.testing.suite import case
from tests.storage.aged_store import START, age
from tests.storage.history.lake.test_lake_writer import files_in, noted, prune_to, rows_in, rows_of_store
from tests.upgraded_store import open_upgraded

pytestmark = pytest.mark.slow
DAY = timedelta(days=1)
DAYS = (10, 20, 28)  # runs in January, whose last days are written with the first run in February
OVER = START + 31 * DAY + timedelta(hours=2)


@pytest.fixture(scope="module")
def january(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a lake, in files of some days each: its January is over, and not yet written to its end."""
    folder = tmp_path_factory.mktemp("january")
    with closing(open_upgraded(f"sqlite:///{folder}/gpuwatch.db")) as database:
        age(database, 0, 31)
        for days in DAYS:
            list(write_lake(database, FolderLake(folder / "lake"), START + days * DAY))
    return folder


@pytest.fixture
def store(january: Path, tmp_path: Path) -> Iterator[Database]:
    """A copy; the lake keeps its place, which is its name in the store."""
    (tmp_path / "gpuwatch.db").write_bytes((january / "gpuwatch.db").read_bytes())
    subprocess.run(["cp", "-a", january / "lake", tmp_path / "kept"], check=True)
    with closing(open_database(f"sqlite:///{tmp_path}/gpuwatch.db")) as database:
        yield database
    subprocess.run(["rm", "-r", january / "lake"], check=True)
    subprocess.run(["mv", tmp_path / "kept", january / "lake"], check=True)


@pytest.fixture
def place(january: Path) -> FolderLake:
    return FolderLake(january / "lake")


def check_all_rows(store: Database, place: FolderLake, until: datetime, folder: Path) -> None:
    for dataset in DATASETS:
        with case(dataset):
            assert rows_in(store, place, dataset, folder) == rows_of_store(store, dataset, until)


def test_a_month_that_is_over_is_one_file_of_each_kind_and_provider(
    store: Database, place: FolderLake, tmp_path: Path
) -> None:
    from pyarrow import parquet

    assert len(noted(store, place)) == 3 * 2 * len(DAYS)
    written = list(write_lake(store, place, OVER))
    months = [part for part in written if part.name.endswith("/part-2026-01-01--2026-01-31.parquet")]
    assert len(months) == 3 * 2
    assert noted(store, place) == files_in(place)
    assert {name.split("/")[1] for name in noted(store, place)} == {"month=2026-01", "month=2026-02"}
    assert sum("month=2026-01" in name for name in noted(store, place)) == 3 * 2
    check_all_rows(store, place, OVER, tmp_path)
    for part in months:
        assert part.checksum == checksum_of(Path(place.url) / part.name)
        with parquet.ParquetFile(Path(place.url) / part.name) as file:
            rows = file.read().to_pylist()
        cells = [tuple(row[column.name] for column in DATASETS[part.dataset].columns) for row in rows]
        assert cells == sorted(cells, key=sort_key(part.dataset))
    assert list(write_lake(store, place, OVER)) == []


def test_a_month_that_is_not_over_keeps_its_files(store: Database, place: FolderLake) -> None:
    before = set(noted(store, place))
    list(write_lake(store, place, START + 28.5 * DAY))
    assert before <= set(noted(store, place))


KILLED = """
import os, signal, sys
from datetime import datetime
from pathlib import Path
from gpuwatch.storage.history.lake import lake_writer
from gpuwatch.storage.history.lake.lake_place import FolderLake
from gpuwatch.storage.setup.database import open_database

folder, lake, owner, name, at = sys.argv[1:]
where = {"lake_writer": lake_writer, "FolderLake": FolderLake}[owner]
plain = getattr(where, name)

def killed(*arguments, **options):
    if any("01--2026-01-31" in str(one) for one in arguments) or name == "delete":
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(*arguments, **options)

setattr(where, name, killed)
database = open_database(f"sqlite:///{folder}/gpuwatch.db")
list(lake_writer.write_lake(database, FolderLake(Path(lake)), datetime.fromisoformat(at)))
"""


def test_a_kill_in_the_middle_loses_no_row_and_doubles_none(store: Database, place: FolderLake, tmp_path: Path) -> None:
    """While the file is checked; when it has its name, and is not noted; when it is noted, and the days are there."""
    for owner, name in (("lake_writer", "verify_part"), ("lake_writer", "replace_parts"), ("FolderLake", "delete")):
        words = [sys.executable, "-c", KILLED, tmp_path, place.url, owner, name, OVER.isoformat()]
        with case(name):
            assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
            check_all_rows(store, place, OVER, tmp_path)
    assert noted(store, place) != files_in(place)
    list(write_lake(store, place, OVER))
    assert noted(store, place) == [name for name in files_in(place) if not name.endswith(".part")]
    check_all_rows(store, place, OVER, tmp_path)


def test_who_reads_while_files_are_replaced_has_each_row_once(
    store: Database, place: FolderLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    span = START - DAY, START + 28 * DAY

    def answer() -> Any:
        with open_with_lake(store, place.url, MarketFilter(), *span) as history:
            found = read_market_history(history, MarketFilter(), *span)
        return found.listings, list(found.intervals), list(found.polls)

    whole = answer()
    prune_to(store, START + 27 * DAY, 5)
    read, runs = LakeQuery.rows, [OVER]

    def replaced_first(query: LakeQuery, parts: Any, *rest: Any) -> Any:
        if runs:
            list(write_lake(store, place, runs.pop()))
        return read(query, parts, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(LakeQuery, "rows", replaced_first)
        assert answer() == whole
    assert not runs


def test_a_day_that_is_not_what_was_written_is_neither_joined_nor_deleted(store: Database, place: FolderLake) -> None:
    name = next(name for name in files_in(place) if name.startswith("hourly"))
    path = Path(place.url) / name
    whole = path.read_bytes()
    path.write_bytes(whole[:999] + bytes([whole[999] ^ 1]) + whole[1000:])
    with pytest.raises(StoreError, match="is not what was written; restore it"):
        list(write_lake(store, place, OVER))
    assert path.exists()
    assert name in noted(store, place)
