"""The contents of the history: intervals, polls, and how any moment follows from them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.domain.market.offer import Verification
from gpuwatch.ports import Completeness
from gpuwatch.storage.history.queries.stored_prices import market_at
from gpuwatch.storage.history.recording.history_recorder import RecordedCounts, SqlHistoryRecorder
from gpuwatch.storage.history.recording.open_prices import OpenPrice, ProviderPrices
from gpuwatch.storage.setup.database import Database
from tests.storage.stored_answers import NOON, an_answer, an_offer, machines


@pytest.fixture
def history(database: Database) -> Iterator[SqlHistoryRecorder]:
    return SqlHistoryRecorder(database)


def rows(database: Database, sql: str) -> list[tuple[Any, ...]]:
    with database.read() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql)]


def intervals(database: Database) -> list[tuple[Any, ...]]:
    """(machine, from, to, listed price without disk), seconds after noon."""
    noon = int(NOON.timestamp())
    found = rows(
        database,
        "SELECT s.machine_id, p.seen_from_s, p.seen_to_s, p.machine_microusd_hour FROM price_interval p"
        " JOIN series s ON s.id = p.series_id ORDER BY s.machine_id, p.seen_from_s",
    )
    return [(machine, start - noon, None if end is None else end - noon, price) for machine, start, end, price in found]


def test_an_offer_that_stays_is_one_row(database: Database, history: SqlHistoryRecorder) -> None:
    for after_s in (0, 60, 120):
        history.record(an_answer(an_offer(), after_s=after_s), lane="sweep")
    assert [row[:3] for row in intervals(database)] == [("m1", 0, None)]


def test_recorded_tells_what_changed(history: SqlHistoryRecorder) -> None:
    assert history.record(an_answer(an_offer("a"), an_offer("b")), lane="sweep") == RecordedCounts(new=2)
    changed = an_answer(an_offer("a", 2.5), an_offer("c"), after_s=60)
    assert history.record(changed, lane="sweep") == RecordedCounts(changed=1, new=1, delisted=1)
    assert history.record(an_answer(an_offer("a", 2.5), an_offer("c"), after_s=120), lane="sweep") == RecordedCounts()


def test_a_new_price_closes_one_interval_and_opens_another(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer(usd_hour=3.0)), lane="sweep")
    history.record(an_answer(an_offer(usd_hour=3.0), after_s=60), lane="sweep")
    history.record(an_answer(an_offer(usd_hour=2.0), after_s=120), lane="sweep")
    disk = round(0.15 * 8 / 720 * 1e6)
    assert intervals(database) == [("m1", 0, 60, 3_000_000 - disk), ("m1", 120, None, 2_000_000 - disk)]


def test_what_a_complete_sweep_does_not_show_is_gone(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer("a"), an_offer("b")), lane="sweep")
    history.record(an_answer(an_offer("b"), after_s=60), lane="sweep")
    assert machines(market_at(database, NOON + timedelta(seconds=59))) == {"a": 3_000_000, "b": 3_000_000}
    assert machines(market_at(database, NOON + timedelta(seconds=60))) == {"b": 3_000_000}


def test_a_machine_that_comes_back_keeps_its_series(database: Database, history: SqlHistoryRecorder) -> None:
    for after_s, offers in ((0, [an_offer()]), (60, []), (120, [an_offer()])):
        history.record(an_answer(*offers, after_s=after_s), lane="sweep")
    assert [row[:3] for row in intervals(database)] == [("m1", 0, 0), ("m1", 120, None)]
    assert rows(database, "SELECT count(*) FROM series") == [(1,)]


def test_a_hunt_ends_nothing(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer("a"), an_offer("b")), lane="sweep")
    assert history.record(an_answer(an_offer("c"), after_s=30), lane="hunt") == RecordedCounts(new=1)
    assert set(machines(market_at(database, NOON + timedelta(seconds=31)))) == {"a", "b", "c"}


def test_a_hunt_changes_prices(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer(usd_hour=3.0)), lane="sweep")
    history.record(an_answer(an_offer(usd_hour=2.0), after_s=30), lane="hunt")
    assert machines(market_at(database, NOON + timedelta(seconds=29))) == {"m1": 3_000_000}
    assert machines(market_at(database, NOON + timedelta(seconds=30))) == {"m1": 2_000_000}


def test_a_hunt_with_another_disk_sees_the_same_price(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer(usd_hour=3.0)), lane="sweep")
    with_disk = 3.0 + 0.15 * (100 - 8) / 720
    hunt = an_answer(an_offer(usd_hour=with_disk, quoted_disk_gb=100.0), after_s=30)
    assert history.record(hunt, lane="hunt") == RecordedCounts()


def test_the_listed_price_of_any_disk_follows(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer(usd_hour=3.0, disk_usd_gb_month=0.2)), lane="sweep")
    offer = market_at(database, NOON)[0]
    assert offer.listed_microusd_hour() == 3_000_000
    assert offer.listed_microusd_hour(100) == 3_000_000 - 2222 + 27_778


def test_a_sweep_of_one_gpu_ends_only_that_gpu(database: Database, history: SqlHistoryRecorder) -> None:
    a100 = an_offer("b", gpu="A100 SXM 80GB", gpu_family="A100")
    history.record(an_answer(an_offer("a"), a100), lane="sweep")
    history.record(an_answer(after_s=60), lane="sweep", gpu="H100 SXM")
    assert set(machines(market_at(database, NOON + timedelta(seconds=61)))) == {"b"}


def test_a_sweep_of_one_rental_type_ends_only_that_type(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer("a")), lane="sweep")
    history.record(an_answer(an_offer("a", 1.0, spot=True), after_s=10), lane="sweep", spot=True)
    history.record(an_answer(after_s=60), lane="sweep", spot=True)
    assert machines(market_at(database, NOON + timedelta(seconds=61))) == {"a": 3_000_000}


def test_a_sweep_of_one_provider_ends_only_that_provider(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer("a")), lane="sweep")
    history.record(an_answer(provider="runpod", after_s=60), lane="sweep")
    assert set(machines(market_at(database, NOON + timedelta(seconds=61)))) == {"a"}


def test_a_partial_sweep_ends_nothing(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer("a"), an_offer("b")), lane="sweep")
    history.record(an_answer(an_offer("b"), after_s=60, completeness=Completeness.PARTIAL), lane="sweep")
    assert set(machines(market_at(database, NOON + timedelta(seconds=61)))) == {"a", "b"}


def test_a_truncated_sweep_ends_only_what_it_reached(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer("cheap", 1.0), an_offer("mid", 2.0), an_offer("dear", 3.0)), lane="sweep")
    cut = an_answer(an_offer("mid", 2.0), after_s=60, completeness=Completeness.TRUNCATED, complete_to_usd_hour=2.0)
    assert history.record(cut, lane="sweep") == RecordedCounts(delisted=1)
    assert set(machines(market_at(database, NOON + timedelta(seconds=61)))) == {"mid", "dear"}


def test_what_outlasts_a_truncated_sweep_is_there_until_a_complete_one(
    database: Database, history: SqlHistoryRecorder
) -> None:
    history.record(an_answer(an_offer("dear", 3.0)), lane="sweep")
    cut = an_answer(after_s=60, completeness=Completeness.TRUNCATED, complete_to_usd_hour=2.0)
    history.record(cut, lane="sweep")
    history.record(an_answer(after_s=120), lane="sweep")
    assert set(machines(market_at(database, NOON + timedelta(seconds=119)))) == {"dear"}
    assert market_at(database, NOON + timedelta(seconds=120)) == ()


def test_the_cheapest_of_two_offers_with_one_identity_counts(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer(usd_hour=3.0), an_offer(usd_hour=2.0), an_offer(usd_hour=2.5)), lane="sweep")
    assert machines(market_at(database, NOON)) == {"m1": 2_000_000}


@pytest.mark.parametrize("order", [(3.0, 2.0), (2.0, 3.0)])
def test_a_dearer_twin_of_an_unchanged_offer_changes_nothing(
    history: SqlHistoryRecorder, order: tuple[float, float]
) -> None:
    history.record(an_answer(an_offer(usd_hour=2.0)), lane="sweep")
    twins = an_answer(*(an_offer(usd_hour=price) for price in order), after_s=60)
    assert history.record(twins, lane="sweep") == RecordedCounts()
    assert history.record(an_answer(an_offer(usd_hour=2.0), after_s=120), lane="sweep") == RecordedCounts()


def test_a_cheaper_twin_of_an_unchanged_offer_is_a_new_price(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer(usd_hour=3.0)), lane="sweep")
    twins = an_answer(an_offer(usd_hour=3.0), an_offer(usd_hour=2.0), after_s=60)
    assert history.record(twins, lane="sweep") == RecordedCounts(changed=1)
    assert machines(market_at(database, NOON + timedelta(seconds=60))) == {"m1": 2_000_000}


def test_an_offer_without_machine_is_known_by_its_id(database: Database, history: SqlHistoryRecorder) -> None:
    for after_s in (0, 60):
        answer = an_answer(an_offer(None, offer_id="77"), an_offer(None, offer_id="78"), after_s=after_s)
        history.record(answer, lane="sweep")
    assert [row[:3] for row in intervals(database)] == [("offer:77", 0, None), ("offer:78", 0, None)]


def test_a_changed_offer_id_is_no_change(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer(offer_id="1")), lane="sweep")
    assert history.record(an_answer(an_offer(offer_id="2"), after_s=60), lane="sweep") == RecordedCounts()


def test_facts_follow_when_the_price_changes(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer(offer_id="1", region="Utah, US")), lane="sweep")
    moved = an_offer(offer_id="2", usd_hour=2.0, region="Iowa, US", reliability=0.5)
    history.record(an_answer(moved, after_s=60), lane="sweep")
    offer = market_at(database, NOON + timedelta(seconds=60))[0]
    assert (offer.offer_id, offer.region, offer.reliability) == ("2", "Iowa, US", 0.5)


def test_a_new_verification_is_kept_although_the_price_stands(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer(verification=Verification.UNVERIFIED)), lane="sweep")
    for after_s in (60, 120):
        history.record(an_answer(an_offer(verification=Verification.VERIFIED), after_s=after_s), lane="sweep")
    assert market_at(database, NOON)[0].verification is Verification.VERIFIED


def test_a_new_price_of_traffic_is_kept_although_the_price_stands(
    database: Database, history: SqlHistoryRecorder
) -> None:
    history.record(an_answer(an_offer(download_usd_gb=0.01)), lane="sweep")
    for after_s in (60, 120):
        history.record(an_answer(an_offer(download_usd_gb=0.02, upload_usd_gb=0.0), after_s=after_s), lane="sweep")
    offer = market_at(database, NOON)[0]
    assert (offer.download_usd_gb, offer.upload_usd_gb) == (0.02, 0.0)
    SqlHistoryRecorder(database).record(an_answer(an_offer(upload_usd_gb=0.0), after_s=180), lane="hunt")
    assert market_at(database, NOON)[0].download_usd_gb is None


def test_the_size_of_a_machine_without_gpus_is_kept_although_its_price_stands_and_none_with_gpus(
    database: Database, history: SqlHistoryRecorder
) -> None:
    cpu: dict[str, Any] = {"gpu": "none", "gpu_family": "none", "gpu_count": 0, "gpu_memory_gib": None}
    history.record(an_answer(an_offer("c", **cpu), an_offer("g", vcpu=64.0, ram_gib=512.0)), lane="hunt")
    for after_s, ram_gib in ((60, 62.5), (120, 64.0)):
        machine = an_offer("c", **cpu, vcpu=15.9, ram_gib=ram_gib)
        history.record(an_answer(machine, after_s=after_s), lane="hunt")
        [offer] = market_at(database, NOON + timedelta(seconds=after_s), gpus={"none"})
        assert (offer.vcpu, offer.ram_gib) == (15.9, ram_gib)
    SqlHistoryRecorder(database).record(an_answer(an_offer("c", **cpu), after_s=180), lane="hunt")
    assert market_at(database, NOON + timedelta(seconds=180), gpus={"none"})[0].vcpu is None
    assert {(offer.vcpu, offer.ram_gib) for offer in market_at(database, NOON)} == {(None, None)}


def test_a_second_process_sees_what_the_first_recorded(database: Database) -> None:
    daemon, check = SqlHistoryRecorder(database), SqlHistoryRecorder(database)
    daemon.record(an_answer(an_offer("a"), an_offer("b")), lane="sweep")
    check.record(an_answer(an_offer("a", 2.0), after_s=30), lane="hunt")
    daemon.record(an_answer(an_offer("a", 2.0), after_s=60), lane="sweep")
    assert [row[:3] for row in intervals(database)] == [("a", 0, 0), ("a", 30, None), ("b", 0, 0)]


def test_polls_are_kept_with_their_rows_and_skips(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer(), rows=3, skipped={"no price": 2}, elapsed_s=0.5), lane="hunt", gpu="H100 SXM")
    history.record_failure("vastai", lane="sweep", gpu="", spot=True, at=NOON, error="no\nanswer")
    found = rows(
        database, "SELECT lane, gpu, spot, completeness, covers, rows, skipped, elapsed_ms, error FROM poll ORDER BY id"
    )
    assert found == [
        ("hunt", "H100 SXM", 0, "complete", 0, 3, 2, 500, None),
        ("sweep", "", 1, "failed", 0, 0, 0, 0, "no answer"),
    ]


def test_rows_count_against_the_day_of_the_answer(history: SqlHistoryRecorder) -> None:
    history.record(an_answer(rows=40), lane="hunt")
    history.record(an_answer(rows=2, after_s=3600), lane="sweep")
    history.record(an_answer(rows=7, after_s=86_400), lane="sweep")
    assert history.rows_used("vastai", NOON) == 42
    assert history.rows_used("vastai", NOON + timedelta(days=1)) == 7
    assert history.rows_used("runpod", NOON) == 0


def test_a_failed_poll_ends_nothing(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer()), lane="sweep")
    history.record_failure("vastai", lane="sweep", at=NOON + timedelta(seconds=60), error="500")
    assert machines(market_at(database, NOON + timedelta(seconds=61))) == {"m1": 3_000_000}


@pytest.mark.parametrize("back_s", [1, 60, 119])
def test_a_small_step_back_of_the_clock_changes_no_past(
    database: Database, history: SqlHistoryRecorder, back_s: int
) -> None:
    history.record(an_answer(an_offer(usd_hour=3.0)), lane="sweep")
    history.record(an_answer(an_offer(usd_hour=2.0), after_s=-back_s), lane="sweep")
    assert machines(market_at(database, NOON)) == {"m1": 3_000_000}
    assert machines(market_at(database, NOON + timedelta(seconds=1))) == {"m1": 2_000_000}


def test_after_a_big_step_back_the_false_future_is_moved_to_now(
    database: Database, history: SqlHistoryRecorder
) -> None:
    history.record(an_answer(an_offer("a"), after_s=-86_400), lane="sweep")
    history.record(an_answer(an_offer("a", 2.0), an_offer("b"), after_s=500_000), lane="sweep")
    history.record(an_answer(an_offer("a", 2.0), an_offer("c"), after_s=900_000), lane="sweep")
    history.record(an_answer(an_offer("a", 1.0), after_s=0), lane="sweep")
    assert machines(market_at(database, NOON - timedelta(seconds=1))) == {"a": 3_000_000}
    assert machines(market_at(database, NOON + timedelta(seconds=1))) == {"a": 1_000_000}
    assert rows(database, f"SELECT count(*) FROM poll WHERE at_s > {int(NOON.timestamp()) + 1}") == [(0,)]


def test_text_that_no_database_would_take_is_cut(database: Database, history: SqlHistoryRecorder) -> None:
    odd = an_offer("m" * 5000, gpu="G" * 5000, region="r\0\ud800" * 5000, offer_id="9" * 500)
    for after_s in (0, 60):
        history.record(an_answer(odd, after_s=after_s), lane="sweep")
    assert [row[:3] for row in intervals(database)] == [("m" * 64, 0, None)]


def test_an_open_price_keeps_one_key_and_not_that_of_the_price_before() -> None:
    """Otherwise every repriced machine would be in memory with two names."""
    prices = ProviderPrices()
    for price in (500_000, 400_000):
        prices.add(OpenPrice(1, 1, "RTX 4090", ("".join(["7", "8"]), 1), 0, price, None))
    [(key, opened)] = prices.models["RTX 4090"].items()
    assert (opened.machine_microusd, opened.key is key) == (400_000, True)
