"""Other people's observations are merged beside ours: in any order, twice, in parts, beside a daemon."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.domain.history.market_history import MarketFilter, MarketHistory
from gpuwatch.domain.history.price_rows import PriceRow
from gpuwatch.domain.history.row_conversion import history_of_rows
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.errors import UsageError
from gpuwatch.storage.history.imports import price_import
from gpuwatch.storage.history.imports.price_export import write_rows
from gpuwatch.storage.history.imports.price_file_rows import read_rows
from gpuwatch.storage.history.imports.price_import import ImportReport, import_file, own_poll_span
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.history.queries.stored_prices import market_at, read_market_history
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.history.recording.recorded_polls import LAST_S, known_scopes, read_polls
from gpuwatch.storage.setup.database import Database
from tests.builders import a_price_row
from tests.checkout import TESTS
from tests.storage.history.recording.test_history_recorder_model import emptied
from tests.storage.stored_answers import NOON, an_answer, an_offer, machines, on_demand, price_track

PUBLIC = TESTS / "recorded" / "price-history"
FILES = sorted(PUBLIC.glob("*.csv.gz"))
each_file = pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, id=path.name.partition("-")[0], marks=[pytest.mark.slow] if path.stat().st_size > 10**5 else []
        )
        for path in FILES
    ],
)
KINDS = {"gcp": OfferKind.LISTED}
NOON_S = int(NOON.timestamp())
LATER_S = NOON_S + 10**7
GPUS = ("H100 SXM", "A100 SXM 80GB")
fresh_each_time = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def a_row(after_s: int, key: str = "a", usd: float = 2.0, gpu: str = GPUS[0], spot: bool = False) -> PriceRow:
    return a_price_row(NOON_S + after_s, key, gpu_wire=gpu, spot=spot, listed_microusd_hour=round(usd * 1e6))


def a_look(after_s: int, gpu: str = "", usd: float = 0, spot: bool = False) -> PriceRow:
    return a_row(after_s, "", usd, gpu, spot)


def brought_in(database: Database, folder: Path, rows: Iterable[PriceRow], **how: Any) -> ImportReport:
    path = folder / "rows.csv"
    path.unlink(missing_ok=True)
    write_rows(path, rows)
    return import_file(database, path, (None, KINDS), how.pop("now_s", LATER_S), **how)


def kept(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Return the whole contents of the history, without ids."""
    questions = {
        "prices": """SELECT g.provider, g.gpu, g.gpu_count, g.spot, s.machine_id, s.on_offer, p.seen_from_s,
 p.seen_to_s, p.machine_microusd_hour, p.ended_s FROM price_interval p JOIN series s ON s.id = p.series_id
 JOIN segment g ON g.id = s.segment_id ORDER BY 1, 2, 3, 4, 5, 7""",
        "hours": """SELECT g.provider, g.gpu, g.gpu_count, g.spot, h.hour, h.min_microusd, h.median_microusd, h.offers,
 h.offer_seconds FROM hourly h JOIN segment g ON g.id = h.segment_id ORDER BY 1, 2, 3, 4, 5""",
    }
    with database.read() as connection:
        found = {name: [tuple(row) for row in connection.exec_driver_sql(sql)] for name, sql in questions.items()}
        covers = read_polls(connection, known_scopes(connection), 0, LAST_S, covering=True)
    looks = {(*scope, one.at_s, one.complete_to_microusd) for scope, polls in covers.items() for one in polls}
    return found | {"looks": sorted(looks, key=repr)}


def plainly(market_history: MarketHistory) -> set[tuple[Any, ...]]:
    return {
        (
            market_history.listings[interval.listing].identity,
            interval.from_s,
            interval.seen_s,
            interval.ended_s,
            interval.machine_microusd_hour,
        )
        for interval in market_history.intervals
    }


# --- one file ---------------------------------------------------------------------------------------------------------


def test_rows_become_intervals_under_a_name_of_their_own(database: Database, tmp_path: Path) -> None:
    done = brought_in(database, tmp_path, [a_row(0), a_row(600), a_row(1200, usd=1.5), a_row(1200, "b")])
    assert (done.rows, done.new, done.known, done.polls) == (4, 4, 0, 3)
    assert kept(database)["prices"] == [
        ("vastai:history", "H100 SXM", 1, 0, "a", 0, NOON_S, NOON_S + 600, 2_000_000, NOON_S + 1200),
        ("vastai:history", "H100 SXM", 1, 0, "a", 0, NOON_S + 1200, NOON_S + 1200, 1_500_000, None),
        ("vastai:history", "H100 SXM", 1, 0, "b", 0, NOON_S + 1200, NOON_S + 1200, 2_000_000, None),
    ]


def test_a_file_that_comes_twice_changes_nothing(database: Database, tmp_path: Path) -> None:
    rows = [a_row(0), a_row(0, "b"), a_row(600), a_row(1200, "b", 3.0)]
    brought_in(database, tmp_path, rows)
    before = kept(database)
    again = brought_in(database, tmp_path, rows)
    assert (again.new, again.known, again.polls) == (0, 4, 0)
    assert kept(database) == before


def test_a_dry_run_counts_and_writes_nothing(database: Database, tmp_path: Path) -> None:
    before = kept(database)
    done = brought_in(database, tmp_path, [a_row(0), a_row(600)], dry_run=True)
    assert (done.new, done.polls) == (2, 2)
    assert kept(database) == before
    brought_in(database, tmp_path, [a_row(0)])
    assert brought_in(database, tmp_path, [a_row(0), a_row(600)], dry_run=True).known == 1


def test_every_row_is_accounted_for(database: Database, tmp_path: Path) -> None:
    brought_in(database, tmp_path, [a_row(0)])
    path = tmp_path / "odd.csv"
    write_rows(path, [a_row(0), a_row(600), a_row(600, usd=1.0), a_row(99_999_999)])
    path.write_text(path.read_text() + "2026-03-02T12:00:00Z,vastai,x,,H100 SXM,1,,no,2.0\n,,,,,,,,\nshort\n")
    done = import_file(database, path, (None, {}), LATER_S)
    assert done.rows == done.new + done.known + done.duplicates + sum(done.skipped.values()) == 7
    assert (done.new, done.known, done.duplicates) == (1, 1, 1)
    assert done.skipped[price_import.IN_THE_FUTURE] == 1


def test_the_kind_is_the_owners_then_the_files_then_the_providers(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    gcp = a_price_row(NOON_S, "a2", provider="gcp", gpu_wire="A100 SXM 40GB")
    live = replace(gcp, offer_key="a3", kind=OfferKind.LIVE)
    write_rows(path, [gcp, live])
    import_file(database, path, (None, KINDS), LATER_S)
    assert {row[0] for row in kept(database)["prices"]} == {"gcp:listed-history", "gcp:history"}
    emptied(database)
    import_file(database, path, (OfferKind.LISTED, {}), LATER_S)
    assert {row[0] for row in kept(database)["prices"]} == {"gcp:listed-history"}


def test_a_file_that_cannot_be_read_to_its_end_changes_nothing(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "cut.csv.gz"
    write_rows(path, [a_row(second, f"m{second}") for second in range(3000)])
    path.write_bytes(path.read_bytes()[:-200])
    before = kept(database)
    with pytest.raises(UsageError, match="cannot read"):
        import_file(database, path, (None, {}), LATER_S)
    assert kept(database) == before


def test_a_file_whose_gpus_are_no_names_is_refused(sqlite_database: Database, tmp_path: Path) -> None:
    rows = [a_row(second, gpu=f"card-{second}x") for second in range(3500)]
    with pytest.raises(UsageError, match="check that gpu_name_raw is a GPU"):
        brought_in(sqlite_database, tmp_path, rows)


# --- several files ----------------------------------------------------------------------------------------------------

ROWS = st.lists(
    st.builds(
        a_row,
        st.sampled_from([0, 60, 600, 4000, 9000, 20_000, 50_000]),
        st.sampled_from("abc"),
        st.sampled_from([1.0, 2.0]),
        st.sampled_from(GPUS),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@fresh_each_time
@given(files=st.lists(ROWS, min_size=1, max_size=4), seed=st.integers(0, 10**6), part=st.integers(1, 8))
def test_the_order_of_files_and_their_parts_do_not_matter(
    database: Database,
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[PriceRow]],
    seed: int,
    part: int,
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    emptied(database)
    for rows in files:
        brought_in(database, folder, rows)
    expected = kept(database)
    emptied(database)
    shuffled = random.Random(seed)
    again = [*files, *shuffled.sample(files, 1)]
    shuffled.shuffle(again)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(price_import, "PART_ROWS", part)
        for rows in again:
            brought_in(database, folder, shuffled.sample(rows, len(rows)))
    assert kept(database) == expected


@pytest.mark.slow
@fresh_each_time
@given(files=st.lists(ROWS, min_size=1, max_size=4))
def test_each_look_shows_what_any_file_says_of_it(
    sqlite_database: Database, tmp_path_factory: pytest.TempPathFactory, files: list[list[PriceRow]]
) -> None:
    """The simplest model: at a poll, exactly the offers that any file has for that moment exist."""
    folder = tmp_path_factory.mktemp("rows")
    emptied(sqlite_database)
    seen: dict[int, dict[tuple[Any, ...], int]] = {}
    looks: set[tuple[int, str, bool]] = set()
    for rows in files:
        brought_in(sqlite_database, folder, rows)
        first = {spot: min(row.at_s for row in rows if row.spot is spot) for spot in {row.spot for row in rows}}
        looks |= {
            (row.at_s, gpu, spot)
            for row in rows
            for gpu in {one.gpu_wire for one in rows}
            for spot in first
            if first[spot] <= row.at_s
        }
        for row in rows:
            who, market = (row.offer_key, row.gpu_wire, row.spot), seen.setdefault(row.at_s, {})
            market[who] = min(row.listed_microusd_hour, market.get(who, row.listed_microusd_hour))
    for at_s, gpu, spot in looks:
        found = {
            (offer.identity.machine_id, offer.identity.gpu, offer.identity.spot): offer.machine_microusd_hour
            for offer in market_at(sqlite_database, datetime.fromtimestamp(at_s, UTC))
            if (offer.identity.gpu, offer.identity.spot) == (gpu, spot)
        }
        assert found == {who: price for who, price in seen.get(at_s, {}).items() if who[1:] == (gpu, spot)}


def test_a_second_file_fills_what_the_first_left_open(database: Database, tmp_path: Path) -> None:
    brought_in(database, tmp_path, [a_row(0), a_row(3600)])
    assert len(kept(database)["prices"]) == 1
    brought_in(database, tmp_path, [a_row(1800, "b")])
    assert [row[4:8] for row in kept(database)["prices"]] == [
        ("a", 0, NOON_S, NOON_S),
        ("a", 0, NOON_S + 3600, NOON_S + 3600),
        ("b", 0, NOON_S + 1800, NOON_S + 1800),
    ]
    brought_in(database, tmp_path, [a_row(1800)])
    assert kept(database)["prices"][0][4:8] == ("a", 0, NOON_S, NOON_S + 3600)


def test_a_file_about_one_gpu_says_nothing_of_another(database: Database, tmp_path: Path) -> None:
    brought_in(database, tmp_path, [a_row(0), a_row(3600)])
    brought_in(database, tmp_path, [a_row(1800, gpu=GPUS[1])])
    assert kept(database)["prices"][1][4:8] == ("a", 0, NOON_S, NOON_S + 3600)


def test_facts_are_those_of_the_newest_row_whenever_it_comes(database: Database, tmp_path: Path) -> None:
    def seen(after_s: int, region: str) -> PriceRow:
        return a_price_row(NOON_S + after_s, "a", region=region)

    brought_in(database, tmp_path, [seen(600, "Iowa, US")])
    brought_in(database, tmp_path, [seen(0, "Utah, US")])
    assert [offer.region for offer in market_at(database, NOON)] == ["Iowa, US"]
    brought_in(database, tmp_path, [seen(900, "Oslo, NO")])
    assert [(offer.region, offer.country) for offer in market_at(database, NOON)] == [("Oslo, NO", "NO")]


def test_an_import_that_was_cut_off_is_finished_by_the_next(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [a_row(600 * number, f"m{number % 3}") for number in range(12)]
    brought_in(database, tmp_path, rows)
    expected = kept(database)
    emptied(database)
    monkeypatch.setattr(price_import, "PART_ROWS", 5)
    real, calls = price_import.merge_batch, iter(range(10))

    def dies(*args: Any, **how: Any) -> Any:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return real(*args, **how)

    monkeypatch.setattr(price_import, "merge_batch", dies)
    with pytest.raises(KeyboardInterrupt):
        brought_in(database, tmp_path, rows)
    assert 0 < len(kept(database)["looks"]) < len(expected["looks"])
    done = brought_in(database, tmp_path, rows)
    assert (done.new, done.known) == (7, 5)
    assert kept(database) == expected


# --- beside our own polls ---------------------------------------------------------------------------------------------


def test_live_rows_are_not_touched_and_a_daemon_goes_on(database: Database, tmp_path: Path) -> None:
    history = SqlHistoryRecorder(database)
    history.record(an_answer(an_offer("live")), lane="sweep")
    brought_in(database, tmp_path, [a_row(-7200, "live"), a_row(-3600, "old"), a_row(30, "other")])
    history.record(an_answer(an_offer("live"), an_offer("new"), after_s=60), lane="sweep")
    history.record(an_answer(an_offer("new"), after_s=120), lane="sweep")
    live = [row[4:8] for row in kept(database)["prices"] if row[0] == "vastai"]
    assert live == [("live", 0, NOON_S, NOON_S + 60), ("new", 1, NOON_S + 60, None)]
    assert sum(row[0] == "vastai:history" for row in kept(database)["prices"]) == 3


def test_hours_are_summed_up_and_stay_so_when_the_daemon_sums_up_its_own(database: Database, tmp_path: Path) -> None:
    history = SqlHistoryRecorder(database)
    history.record(an_answer(an_offer("live", 3.0), after_s=-60), lane="sweep")
    history.record(an_answer(an_offer("live", 3.0)), lane="sweep")
    brought_in(database, tmp_path, [a_row(60, "cheap", 1.0)])
    for minutes in range(10, 400, 10):
        history.record(an_answer(an_offer("live", 3.0), after_s=minutes * 60), lane="sweep")
    track = price_track(database, on_demand(GPUS[0]), NOON, NOON + timedelta(hours=5))
    assert [point.min_microusd for point in track] == [1_000_000] * 3 + [1_000_000, 3_000_000]
    assert [point.offers for point in track] == [2, 2, 2, 2, 1]


def test_without_any_look_of_our_own_the_hours_are_there_too(database: Database, tmp_path: Path) -> None:
    brought_in(database, tmp_path, [a_row(0), a_row(0, "b", 4.0), a_row(1800, "b", 4.0)])
    (point, *_) = price_track(database, on_demand(GPUS[0]), NOON, NOON + timedelta(hours=8))
    assert (point.min_microusd, point.offers, point.q3_microusd) == (2_000_000, 2, 4_000_000)


def test_what_a_prune_dropped_can_be_brought_in_again(database: Database, tmp_path: Path) -> None:
    rows = [a_row(0), a_row(600, "b"), a_row(86_400 * 40, "c")]
    brought_in(database, tmp_path, rows)
    before = kept(database)
    pruned = prune(database, timedelta(days=5), NOON + timedelta(days=41))
    assert (pruned.intervals, kept(database)["hours"]) == (1, before["hours"])  # intervals at the horizon stay
    assert brought_in(database, tmp_path, rows).new == 1
    assert kept(database) == before


def test_imported_hours_lie_under_names_of_their_own(database: Database, tmp_path: Path) -> None:
    brought_in(database, tmp_path, [a_row(0)])
    assert {row[0] for row in kept(database)["hours"]} == {"vastai:history"}


def test_our_own_looks_in_the_time_of_a_file_are_found(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    for after_s in (0, 600):
        history.record(an_answer(an_offer(), after_s=after_s), lane="sweep")
    assert own_poll_span(database, "vastai", NOON_S - 10, NOON_S + 10) == (NOON, NOON)
    assert own_poll_span(database, "runpod", NOON_S - 10, NOON_S + 10) is None


# --- the public series ------------------------------------------------------------------------------------------------


@each_file
def test_the_store_and_the_file_make_the_same_history(sqlite_database: Database, path: Path) -> None:
    done = import_file(sqlite_database, path, (OfferKind.LIVE, {}), LATER_S)
    rows = read_rows(path).rows
    assert (done.new, done.known, done.duplicates, dict(done.skipped)) == (len(rows), 0, 0, {})
    whole = read_market_history(
        sqlite_database, MarketFilter(), datetime(2000, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
    )
    assert plainly(whole) == plainly(history_of_rows(rows, "file"))


def test_a_public_series_cut_into_pieces_is_the_same(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = read_rows(next(path for path in FILES if path.name.startswith("vastai"))).rows
    brought_in(sqlite_database, tmp_path, rows)
    expected = kept(sqlite_database)
    emptied(sqlite_database)
    monkeypatch.setattr(price_import, "PART_ROWS", 700)
    moments = sorted({row.at_s for row in rows})
    for some in (moments[5:], moments[:7:2], moments):
        brought_in(sqlite_database, tmp_path, [row for row in rows if row.at_s in some])
    assert kept(sqlite_database) == expected
    assert machines(market_at(sqlite_database, NOON))
