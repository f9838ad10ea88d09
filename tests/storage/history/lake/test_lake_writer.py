"""What is over is in a lake once, as the store has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, insert, select, update

from gpuwatch.domain.history.market_history import MarketFilter, MarketHistory
from gpuwatch.domain.setup.history_keep import HistoryKeep
from gpuwatch.errors import StoreError
from gpuwatch.storage.history.imports.price_import import import_file
from gpuwatch.storage.history.lake.lake_files import verify_part, write_part
from gpuwatch.storage.history.lake.lake_notes import lake_parts, lake_verified_until_s
from gpuwatch.storage.history.lake.lake_place import FolderLake, checksum_of, open_place
from gpuwatch.storage.history.lake.lake_query import LakeQuery
from gpuwatch.storage.history.lake.lake_reader import open_with_lake
from gpuwatch.storage.history.lake.lake_schema import DATASETS, INTERVALS, PartSpan, part_name
from gpuwatch.storage.history.lake.lake_source import LakeSource, sort_key
from gpuwatch.storage.history.lake.lake_writer import write_lake
from gpuwatch.storage.history.prune import SqlPruner, prune
from gpuwatch.storage.history.queries.stored_prices import read_market_history
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.side_tables import installation, lake, lake_part
from gpuwatch.storage.setup.tables import history_state, hourly, poll_day, price_interval, segment, series
from gpuwatch.testing.suite import case
from tests.storage.aged_store import END, PROVIDERS, START, age
from tests.upgraded_store import open_upgraded

pytestmark = pytest.mark.slow
DAY = timedelta(days=1)
SEVEN_WEEKS = START + 49 * DAY


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("aged") / "gpuwatch.db"
    database = open_upgraded(f"sqlite:///{path}")
    age(database, 0, 49)
    database.close()
    return path.read_bytes()


@pytest.fixture
def store(aged: bytes, tmp_path: Path) -> Iterator[Database]:
    (tmp_path / "gpuwatch.db").write_bytes(aged)
    database = open_database(f"sqlite:///{tmp_path}/gpuwatch.db")
    yield database
    database.close()


@pytest.fixture
def place(tmp_path: Path) -> FolderLake:
    return FolderLake(tmp_path / "lake")


def files_in(place: FolderLake) -> list[str]:
    top = Path(place.url)
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())


def noted(store: Database, place: FolderLake) -> list[str]:
    with store.read() as connection:
        return [part.name for part in lake_parts(connection, place.url)]


def rows_in(store: Database, place: FolderLake, dataset: str, folder: Path) -> list[tuple[Any, ...]]:
    with store.read() as connection:
        parts = [part for part in lake_parts(connection, place.url) if part.dataset == dataset]
    query = LakeQuery(place, folder)
    rows = list(query.rows(parts, "true", {}))
    query.close()
    return sorted(rows, key=sort_key(dataset))


def rows_of_store(store: Database, dataset: str, until: datetime) -> list[tuple[Any, ...]]:
    source, span = LakeSource(store), PartSpan(0, int(until.timestamp()) // 86400 * 86400)
    rows = [row for name in source.providers for rows in source.rows(dataset, name, span) for row in rows]
    return sorted(rows, key=sort_key(dataset))


def test_every_row_that_is_over_is_in_the_lake_as_in_the_store(
    store: Database, place: FolderLake, tmp_path: Path
) -> None:
    written = list(write_lake(store, place, SEVEN_WEEKS + 2 * timedelta(hours=1)))
    assert [part.name for part in sorted(written)] == noted(store, place) == files_in(place)
    assert {part.name.split("/")[1] for part in written} == {"month=2026-01", "month=2026-02"}
    for dataset in DATASETS:
        with case(dataset):
            rows = rows_of_store(store, dataset, SEVEN_WEEKS)
            assert rows
            assert rows_in(store, place, dataset, tmp_path) == rows
    assert sum(part.rows for part in written) == sum(len(rows_of_store(store, name, SEVEN_WEEKS)) for name in DATASETS)
    assert {part.checksum for part in written} == {checksum_of(Path(place.url) / name) for name in files_in(place)}


def test_either_engine_has_the_same_lake_and_the_same_answers(database: Database, place: FolderLake) -> None:
    age(database, 0, 12)
    span = START - DAY, START + 12 * DAY

    def answers() -> tuple[Any, ...]:
        with open_with_lake(database, place.url, MarketFilter(gpus=("H100 SXM",)), *span) as history:
            found = read_market_history(history, MarketFilter(gpus=("H100 SXM",)), *span)
        return found.listings, list(found.intervals), list(found.polls)

    expected = answers()
    rows = {part.name: part.rows for part in write_lake(database, place, span[1])}
    assert rows["intervals/month=2026-01/provider=vastai/part-2026-01-01--2026-01-13.parquet"] == 249
    prune_to(database, span[1], 2)
    assert answers() == expected


def test_a_part_is_sorted_and_compressed_and_says_what_its_columns_are(store: Database, place: FolderLake) -> None:
    from pyarrow import parquet

    for part in write_lake(store, place, SEVEN_WEEKS):
        with parquet.ParquetFile(Path(place.url) / part.name) as file:
            assert file.metadata.row_group(0).column(0).compression == "ZSTD"
            schema, rows = file.schema_arrow, file.read().to_pylist()
        assert schema.metadata[b"gpuwatch.lake_version"] == b"1"
        assert schema.field("gpu").metadata[b"about"]
        dataset = DATASETS[part.dataset]
        cells = [tuple(row[column.name] for column in dataset.columns) for row in rows]
        assert cells == sorted(cells, key=sort_key(part.dataset))


def test_an_interrupted_run_is_continued_and_nothing_is_written_twice(
    store: Database, place: FolderLake, tmp_path: Path
) -> None:
    for count in (1, 4, 3):
        assert len(list(islice(write_lake(store, place, SEVEN_WEEKS - DAY), count))) == count
        with store.read() as connection:
            assert lake_verified_until_s(connection, place.url) is None
    with store.write() as connection:  # killed after a file had its name, before it was noted
        connection.execute(delete(lake_part).where(lake_part.c.name == noted_first(connection)))
    before = {name: (Path(place.url) / name).stat().st_mtime_ns for name in noted(store, place)}
    list(write_lake(store, place, SEVEN_WEEKS + timedelta(hours=2)))
    assert list(write_lake(store, place, SEVEN_WEEKS + timedelta(hours=2))) == []
    assert {name: (Path(place.url) / name).stat().st_mtime_ns for name in before} == before
    assert noted(store, place) == files_in(place)
    for dataset in DATASETS:
        with case(dataset):
            assert rows_in(store, place, dataset, tmp_path) == rows_of_store(store, dataset, SEVEN_WEEKS)


def noted_first(connection: Any) -> str:
    return str(connection.execute(select(lake_part.c.name).order_by(lake_part.c.name)).scalars().first())


def test_a_file_that_is_not_what_was_written_is_refused(tmp_path: Path, store: Database) -> None:
    (path := tmp_path / "part").touch()
    chunks = list(LakeSource(store).rows("intervals", "vastai", PartSpan(0, int(END.timestamp()))))
    totals = write_part(path, INTERVALS, chunks, "")
    verify_part(path, INTERVALS, totals)
    changes = ({"rows": totals.rows + 1}, {"sums": (1, 2)}, {"first_s": 0}, {"last_s": 0})
    for change in changes:
        with case(change), pytest.raises(StoreError, match="differs from what was written"):
            verify_part(path, INTERVALS, totals._replace(**change))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StoreError, match="cannot read back what was written"):
        verify_part(path, INTERVALS, totals)


def test_a_name_does_not_lead_out_of_the_lake() -> None:
    span = PartSpan(int(START.timestamp()), int(START.timestamp()) + 86400)
    plain = "intervals/month=2026-01/provider=lambda/part-2026-01-03--2026-01-03.parquet"
    assert part_name(INTERVALS, "lambda", span) == plain
    names = {"..": "%2E%2E", "a/b": "a%2Fb", "a'b*": "a%27b%2A", "A": "A", "x=1\n": "x%3D1%0A"}
    for name, escaped in names.items():
        with case(name):
            assert f"/provider={escaped}/" in part_name(INTERVALS, name, span)


def test_a_path_that_duckdb_would_read_as_a_pattern_is_refused(tmp_path: Path) -> None:
    for name in ("a*", "a?", "[a]"):
        with case(name), pytest.raises(StoreError, match="may not contain"):
            open_place(f"{tmp_path}/{name}")
    with pytest.raises(StoreError, match="names no bucket"):
        open_place("s3://")


def test_a_lake_of_another_installation_is_left_alone(store: Database, place: FolderLake) -> None:
    for number in "ab":
        with store.write() as connection:  # the second one: another store with the same lake
            for table in (installation, lake, lake_part):
                connection.execute(delete(table))
            row = {"id": 1, "install_id": number, "key_salt": "", "created_at_ms": 0}
            connection.execute(insert(installation), row)
        if number == "a":
            list(write_lake(store, place, SEVEN_WEEKS))
    before = {name: checksum_of(Path(place.url) / name) for name in files_in(place)}
    with pytest.raises(StoreError, match="is the lake of installation a; choose another folder"):
        list(write_lake(store, place, SEVEN_WEEKS))
    assert {name: checksum_of(Path(place.url) / name) for name in files_in(place)} == before


def test_nothing_is_written_below_the_mount_point_of_a_disk_that_is_away(store: Database, place: FolderLake) -> None:
    list(write_lake(store, place, START + 20 * DAY))
    Path(place.url).rename(f"{place.url} away")
    with pytest.raises(StoreError, match="is missing; mount the lake's disk"):
        list(write_lake(store, place, START + 40 * DAY))
    assert not Path(place.url).exists()
    Path(f"{place.url} away").rename(place.url)
    assert list(write_lake(store, place, START + 40 * DAY))


# --- late imports -----------------------------------------------------------------------------------------------------

PRICES = """observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour
2026-01-{day}T06:00:00Z,vastai,old-{day},,H100 SXM,1,80,false,{price}
2026-01-{day}T07:00:00Z,vastai,old-{day},,H100 SXM,1,80,false,{price}
2026-01-{day}T08:00:00Z,vastai,other,,H100 SXM,1,80,false,9.0
"""


def import_day(store: Database, day: int, price: str, folder: Path) -> None:
    path = folder / f"old-{day}.csv"
    path.write_text(PRICES.format(day=day, price=price))
    import_file(store, path, (None, {}), int(END.timestamp()))


def prune_to(store: Database, now: datetime, keep_days: int) -> None:
    report = prune(store, keep_days * DAY, now)
    with store.write() as connection:
        connection.execute(delete(hourly).where(hourly.c.hour < report.kept_from.timestamp() // 3600))
        connection.execute(delete(poll_day).where(poll_day.c.day < report.kept_from.timestamp() // 86400))


def history_of(store: Database, place: FolderLake) -> MarketHistory:
    span = START - DAY, END
    with open_with_lake(store, place.url, MarketFilter(), *span) as history:
        return read_market_history(history, MarketFilter(), *span)


def test_an_import_of_old_days_gets_into_the_lake_and_its_month_stays_one_file(
    store: Database, place: FolderLake, tmp_path: Path, aged: bytes
) -> None:
    for days in (20, 40, 49):
        list(write_lake(store, place, START + days * DAY))
    with store.read() as connection:
        verified_s = lake_verified_until_s(connection, place.url)
    import_day(store, 10, "2.5", tmp_path)
    with store.read() as connection:
        assert lake_verified_until_s(connection, place.url) == int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    list(write_lake(store, place, START + 49 * DAY))
    with store.read() as connection:
        assert lake_verified_until_s(connection, place.url) == verified_s
    prune_to(store, SEVEN_WEEKS, 15)
    import_day(store, 11, "3.5", tmp_path)  # of days that the store has dropped
    list(write_lake(store, place, START + 49 * DAY))
    prune_to(store, SEVEN_WEEKS, 10)
    assert noted(store, place) == files_in(place)
    months = [name.rpartition("/")[0] for name in files_in(place) if "provider=vastai" in name]
    assert len(months) == len(set(months))
    for dataset in DATASETS:
        rows = rows_in(store, place, dataset, tmp_path)
        assert len(rows) == len(set(map(sort_key(dataset), rows)))
    (tmp_path / "whole.db").write_bytes(aged)
    with closing(open_database(f"sqlite:///{tmp_path}/whole.db")) as whole:
        import_day(whole, 10, "2.5", tmp_path)
        import_day(whole, 11, "3.5", tmp_path)
        assert facts_of(history_of(store, place)) == facts_of(history_of(whole, place))


def test_an_import_during_a_late_run_is_in_the_next_one(store: Database, place: FolderLake, tmp_path: Path) -> None:
    list(write_lake(store, place, START + 20 * DAY))
    import_day(store, 10, "2.5", tmp_path)
    run = write_lake(store, place, START + 20 * DAY)
    while next(run).dataset != "polls":
        pass
    import_day(store, 11, "3.5", tmp_path)  # its month is written already
    list(run)
    list(write_lake(store, place, START + 20 * DAY))
    assert list(write_lake(store, place, START + 20 * DAY)) == []
    for dataset in DATASETS:
        with case(dataset):
            assert rows_in(store, place, dataset, tmp_path) == rows_of_store(store, dataset, START + 19 * DAY)


def test_an_import_while_a_run_begins_gets_into_the_lake(
    store: Database, place: FolderLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over_until_s = LakeSource.over_until_s

    def import_first(source: LakeSource, now_s: int) -> int:
        import_day(store, 10, "2.5", tmp_path)
        return over_until_s(source, now_s)

    with monkeypatch.context() as patch:
        patch.setattr(LakeSource, "over_until_s", import_first)
        list(write_lake(store, place, START + 20 * DAY))
    list(write_lake(store, place, START + 20 * DAY))
    for dataset in DATASETS:
        with case(dataset):
            assert rows_in(store, place, dataset, tmp_path) == rows_of_store(store, dataset, START + 19 * DAY)


def test_what_follows_a_clock_set_back_gets_into_the_lake(store: Database, place: FolderLake, tmp_path: Path) -> None:
    """Of every provider, also of one that said nothing while the clock was wrong."""
    list(write_lake(store, place, START + 20 * DAY))
    with store.write() as connection:  # an empty span of that clock
        connection.execute(update(lake).values(verified_until_s=int((START + 30 * DAY).timestamp())))
    assert list(write_lake(store, place, START + 25 * DAY)) == []
    list(write_lake(store, place, START + 40 * DAY))
    for dataset in DATASETS:
        with case(dataset):
            assert rows_in(store, place, dataset, tmp_path) == rows_of_store(store, dataset, START + 39 * DAY)


def test_a_month_that_is_written_anew_keeps_what_ended_when_the_store_was_pruned(
    store: Database, place: FolderLake, tmp_path: Path
) -> None:
    list(write_lake(store, place, SEVEN_WEEKS))
    ended_s, rows = price_interval.c.ended_s, price_interval.join(series).join(segment)
    is_old = segment.c.provider == "vastai", ended_s < int((START + 12 * DAY).timestamp())
    with store.read() as connection:
        newest = select(ended_s).select_from(rows).where(*is_old).order_by(ended_s.desc()).limit(1)
        dropped_s = connection.execute(newest).scalar_one()
    before = {row[:-1] for row in rows_in(store, place, "intervals", tmp_path)}
    list(SqlPruner(store, HistoryKeep(intervals_s=1.0), place.url).steps(datetime.fromtimestamp(dropped_s + 1, UTC)))
    with store.read() as connection:
        assert connection.execute(select(history_state.c.kept_from_s)).scalar_one() == dropped_s
    import_day(store, 11, "2.5", tmp_path)
    list(write_lake(store, place, SEVEN_WEEKS))
    assert before <= {row[:-1] for row in rows_in(store, place, "intervals", tmp_path)}


def test_pruning_drops_nothing_that_is_not_verified(store: Database, place: FolderLake, tmp_path: Path) -> None:
    """Neither what ended at the very second until which it is, nor what is imported while a pass goes on."""
    list(write_lake(store, place, START + 20 * DAY))
    keep = HistoryKeep(polls_s=0, intervals_s=0, hourly_s=0)
    with store.write() as connection:
        verified_s = lake_verified_until_s(connection, place.url)
        ended = select(price_interval.c.series_id).where(price_interval.c.ended_s > verified_s)
        connection.execute(
            update(price_interval).where(price_interval.c.series_id == ended.limit(1).scalar_subquery())
            .where(price_interval.c.ended_s > verified_s).values(ended_s=verified_s)
        )  # fmt: skip
        at_the_end = price_interval.c.ended_s == verified_s
        count = connection.execute(select(func.count()).where(at_the_end)).scalar_one()
    assert count > 0
    list(SqlPruner(store, keep, place.url).steps(SEVEN_WEEKS))
    with store.read() as connection:
        assert connection.execute(select(func.count()).where(at_the_end)).scalar_one() == count
        assert connection.execute(select(func.count()).where(price_interval.c.ended_s < verified_s)).scalar_one() == 0
    steps = SqlPruner(store, keep, place.url).steps(SEVEN_WEEKS)
    next(steps)
    import_day(store, 10, "2.5", tmp_path)
    list(steps)
    with store.read() as connection:
        imported = select(func.count()).join_from(series, segment).where(segment.c.provider == "vastai:history")
        assert connection.execute(imported).scalar_one() == 2


def facts_of(history: MarketHistory) -> tuple[set[Any], set[Any]]:
    """The intervals and polls; an import into a pruned store gives series other numbers, and so another order."""
    return {(history.listings[one.listing], *one[1:]) for one in history.intervals}, set(history.polls)


# --- what cannot be read ----------------------------------------------------------------------------------------------


def test_a_broken_file_is_named_and_never_left_out(store: Database, place: FolderLake) -> None:
    from pyarrow import parquet

    list(write_lake(store, place, SEVEN_WEEKS))
    prune_to(store, SEVEN_WEEKS, 10)
    name = next(name for name in files_in(place) if name.startswith("intervals") and PROVIDERS[1] in name)
    path = Path(place.url) / name
    whole, table = path.read_bytes(), parquet.read_table(path)
    half = len(whole) // 3

    def damage(kind: str) -> None:
        if kind == "cut":
            path.write_bytes(whole[:half])
        elif kind == "flipped":
            path.write_bytes(whole[:4] + bytes(byte ^ 255 for byte in whole[4:half]) + whole[half:])
        elif kind == "fewer rows":
            parquet.write_table(table.slice(1), path)
        elif kind == "another program":
            parquet.write_table(table.replace_schema_metadata({}), path)
        elif kind == "version":
            parquet.write_table(table.replace_schema_metadata({"gpuwatch.lake_version": "2"}), path)
        else:
            path.unlink()

    for kind in ("cut", "flipped", "fewer rows", "another program", "version", "missing"):
        damage(kind)
        with case(kind), pytest.raises(StoreError) as raised:
            history_of(store, place)
        assert str(path) in str(raised.value)
        assert "\n" not in str(raised.value)
        path.write_bytes(whole)
    assert history_of(store, place).intervals
