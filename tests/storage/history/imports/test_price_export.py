"""The files that the store writes; importing one gives the same market."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.domain.history.market_history import MarketFilter, MarketHistory
from gpuwatch.domain.history.price_rows import COLUMNS, PriceRow, csv_cells
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.ports import Completeness
from gpuwatch.storage.history.imports.price_export import check_export_target, history_rows, write_rows
from gpuwatch.storage.history.imports.price_file_rows import read_rows
from gpuwatch.storage.history.imports.price_import import import_file
from gpuwatch.storage.history.queries.stored_prices import read_market_history
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.builders import a_price_row
from tests.storage.history.imports.test_price_import import KINDS, LATER_S, NOON_S, a_look, a_row, each_file
from tests.storage.history.recording.test_history_recorder_model import Poll, a_poll, emptied, reported
from tests.storage.stored_answers import NOON, an_answer, an_offer
from tests.upgraded_store import open_upgraded

ALL = MarketFilter()
AGES = datetime(2000, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
fresh_each_time = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Another store."""
    opened = open_upgraded(f"sqlite:///{tmp_path_factory.mktemp('elsewhere')}/gpuwatch.db")
    yield opened
    opened.close()


def moved(source: Database, target: Database, path: Path, **how: Any) -> int:
    """Export everything, and import it into an emptied store."""
    path.unlink(missing_ok=True)
    written = write_rows(path, history_rows(source, ALL, *AGES, KINDS, **how))
    emptied(target)
    if written:
        import_file(target, path, (None, KINDS), LATER_S)
    return written


def plainly(market_history: MarketHistory) -> Counter[tuple[Any, ...]]:
    return Counter(
        (
            market_history.listings[interval.listing].identity,
            interval.from_s,
            interval.seen_s,
            interval.ended_s,
            interval.listed_microusd_hour(8),
        )
        for interval in market_history.intervals
    )


@pytest.mark.slow
@fresh_each_time
@given(story=st.lists(a_poll(), min_size=1, max_size=12), suffix=st.sampled_from([".csv", ".csv.gz", ".parquet"]))
def test_an_import_of_an_export_is_the_same_market(
    database: Database, elsewhere: Database, tmp_path_factory: pytest.TempPathFactory, story: list[Poll], suffix: str
) -> None:
    """Except for offers that appear and disappear within one second: a row cannot express that."""
    emptied(database)
    for _ in reported(database, [msgspec.structs.replace(poll, wait_s=max(1, poll.wait_s)) for poll in story]):
        pass
    moved(database, elsewhere, tmp_path_factory.mktemp("rows") / f"rows{suffix}")
    before, after = read_market_history(database, ALL, *AGES), read_market_history(elsewhere, ALL, *AGES)
    assert plainly(after) == plainly(before)
    looks = {poll[:5] for poll in before.polls if poll.lane == "sweep" and poll.answered}
    assert {poll[:5] for poll in after.polls if poll.answered} == looks


@each_file
def test_an_export_of_a_public_series_has_the_rows_of_the_file(
    sqlite_database: Database, tmp_path: Path, path: Path
) -> None:
    """Except for what the store does not have: the spelling, the seller, and earlier places and memory sizes."""
    import_file(sqlite_database, path, (None, KINDS), LATER_S)
    write_rows(tmp_path / "out.csv.gz", history_rows(sqlite_database, ALL, *AGES, KINDS, with_imported=True))

    def lasting(name: Path) -> list[tuple[str, ...]]:
        with gzip.open(name, "rt", encoding="utf-8", newline="") as file:
            kept = ("observed_at", "offer_key", "gpu_count", "spot", "price_usd_hour")
            return sorted(tuple(row[column] for column in kept) for row in csv.DictReader(file))

    assert lasting(tmp_path / "out.csv.gz") == lasting(path)


def test_what_was_imported_stays_out_unless_it_is_wanted(
    database: Database, elsewhere: Database, tmp_path: Path
) -> None:
    SqlHistoryRecorder(database).record(an_answer(an_offer("own")), lane="sweep")
    write_rows(tmp_path / "others.csv", [a_row(-3600, "theirs")])
    import_file(database, tmp_path / "others.csv", (None, {}), LATER_S)
    keys = [
        {row.offer_key for row in history_rows(database, ALL, *AGES, {}, with_imported=too)} for too in (False, True)
    ]
    assert [found - {""} for found in keys] == [{"own/ondemand"}, {"own/ondemand", "theirs/ondemand"}]


def test_list_prices_are_marked_where_the_provider_also_has_live_ones(database: Database, tmp_path: Path) -> None:
    live, listed = an_offer("m1"), an_offer("p5", 1.0, kind=OfferKind.LISTED)
    SqlHistoryRecorder(database).record(an_answer(live, listed), lane="sweep")
    rows = list(history_rows(database, ALL, *AGES, {}))
    assert {(csv_cells(row)[1], row.offer_key) for row in rows} >= {
        ("vastai", "m1/ondemand"), ("vastai:listed", "p5/ondemand"),
    }  # fmt: skip
    vastai = history_rows(database, MarketFilter(provider="vastai"), *AGES, {})
    assert {row.offer_key for row in vastai if not row.is_poll} == {"m1/ondemand"}


def test_an_empty_look_and_a_truncated_one_come_through(
    database: Database, elsewhere: Database, tmp_path: Path
) -> None:
    history = SqlHistoryRecorder(database)
    history.record(an_answer(an_offer("cheap", 1.0), an_offer("dear", 3.0)), lane="sweep")
    cut = an_answer(after_s=60, completeness=Completeness.TRUNCATED, complete_to_usd_hour=2.0)
    history.record(cut, lane="sweep")
    history.record(an_answer(after_s=120), lane="sweep")
    moved(database, elsewhere, tmp_path / "rows.csv")
    assert plainly(read_market_history(elsewhere, ALL, *AGES)) == plainly(read_market_history(database, ALL, *AGES))
    found = {
        (row.at_s - NOON_S, row.listed_microusd_hour) for row in read_rows(tmp_path / "rows.csv").rows if row.is_poll
    }
    assert found == {(0, 0), (60, 2_000_000), (120, 0)}


def test_a_stretch_is_cut_out(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    for after_s in range(0, 600, 60):
        history.record(an_answer(an_offer(), after_s=after_s), lane="sweep", gpu="H100 SXM")
    span = NOON + timedelta(seconds=120), NOON + timedelta(seconds=300)
    assert [row.at_s - NOON_S for row in history_rows(database, ALL, *span, {})] == [120, 180, 240]


def test_a_file_about_one_gpu_does_not_say_that_there_was_no_other(
    database: Database, elsewhere: Database, tmp_path: Path
) -> None:
    SqlHistoryRecorder(database).record(an_answer(an_offer("m1")), lane="sweep")
    some = list(history_rows(database, MarketFilter(gpus=("H200 SXM", "H200 NVL")), *AGES, {}))
    assert [(row.is_poll, row.gpu_wire) for row in some] == [(True, "H200 NVL"), (True, "H200 SXM")]
    emptied(elsewhere)
    for name, rows in (("all", history_rows(database, ALL, *AGES, {})), ("some", iter(some))):
        write_rows(tmp_path / f"{name}.csv", rows)
        import_file(elsewhere, tmp_path / f"{name}.csv", (None, {}), LATER_S)
    assert plainly(read_market_history(elsewhere, ALL, *AGES)) == plainly(read_market_history(database, ALL, *AGES))


def test_an_unpriced_disk_is_in_the_price_of_a_row(database: Database) -> None:
    SqlHistoryRecorder(database).record(an_answer(an_offer(usd_hour=3.0, disk_usd_gb_month=0.9)), lane="sweep")
    _, row = history_rows(database, ALL, *AGES, {})
    assert row.listed_microusd_hour == 3_000_000


# --- files ------------------------------------------------------------------------------------------------------------

ROWS = [a_look(0), a_row(0), a_row(60, "b", 1.25)]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_equal_rows_give_equal_files_that_read_back(tmp_path: Path, suffix: str) -> None:
    one, two = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
    assert write_rows(one, ROWS) == write_rows(two, ROWS) == 3
    assert one.read_bytes() == two.read_bytes()
    assert read_rows(one).rows == ROWS


def test_the_columns_are_the_nine(tmp_path: Path) -> None:
    write_rows(tmp_path / "x.csv", ROWS)
    lines = (tmp_path / "x.csv").read_text().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert lines[2] == "2026-03-02T12:00:00Z,vastai,a,,H100 SXM,1,,false,2"


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=30))
def test_no_cell_is_a_formula_and_each_reads_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("rows") / "x.csv"
    row = a_price_row(NOON_S, text, region=text.strip() or None, gpu_wire=text)
    write_rows(path, [row])
    with path.open(encoding="utf-8", newline="") as file:
        cells = next(iter(csv.DictReader(file)))
    assert not any(cell and cell[0] in "=+-@|%\t\r" for cell in cells.values())
    assert read_rows(path).rows == [row]


def test_nothing_is_left_behind_where_writing_fails(tmp_path: Path) -> None:
    def broken() -> Iterator[PriceRow]:
        yield a_row(0)
        raise OSError(28, "No space left on device")

    target = tmp_path / "x.csv"
    target.write_text("precious")
    with pytest.raises(GpuwatchError, match="No space left"):
        write_rows(target, broken())
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
    assert target.read_text() == "precious"


def test_without_rows_no_file_is_written(tmp_path: Path) -> None:
    assert write_rows(tmp_path / "x.parquet", []) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.txt", "x", "x.gz", "no/where.csv"])
def test_a_target_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        check_export_target(tmp_path / name, force=True)


def test_a_file_that_exists_is_replaced_by_force_alone(tmp_path: Path) -> None:
    (tmp_path / "x.csv").touch()
    with pytest.raises(UsageError, match="--force"):
        check_export_target(tmp_path / "x.csv", force=False)
    check_export_target(tmp_path / "x.csv", force=True)
