"""The results of queries on the history."""

from __future__ import annotations

import random
from datetime import UTC, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.history.hourly_rollup import encode_sketch, merge_sketches, price_of_step, quantiles, step_of
from gpuwatch.domain.history.price_series import PeriodLength
from gpuwatch.domain.market.money import Commission
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.history.queries.history_queries import (
    first_poll_at,
    kept_from,
    known_gpu_names,
    newest_prices,
    read_price_periods,
)
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.storage.stored_answers import NOON, an_answer, an_offer, on_demand, price_track

NOON_HOUR = int(NOON.timestamp()) // 3600
H100 = on_demand("H100 SXM")


@pytest.fixture
def history(database: Database) -> SqlHistoryRecorder:
    return SqlHistoryRecorder(database)


def in_hours(hours: float) -> float:
    return hours * 3600


def test_the_lowest_price_is_over_all_providers_and_counts(database: Database, history: SqlHistoryRecorder) -> None:
    pair = an_offer("b", 4.0, gpu_count=2, disk_usd_gb_month=None)
    history.record(an_answer(an_offer("a", 3.0), pair), lane="sweep")
    cheap = an_offer("c", 1.5, provider="runpod", disk_usd_gb_month=None)
    history.record(an_answer(cheap, after_s=in_hours(1), provider="runpod"), lane="sweep")
    history.record(an_answer(after_s=in_hours(2.5)), lane="sweep")
    points = price_track(database, H100, NOON, NOON + timedelta(hours=2))
    assert [point.min_microusd for point in points] == [2_000_000, 1_500_000]


def test_a_family_means_all_its_models(database: Database, history: SqlHistoryRecorder) -> None:
    nvl = an_offer("b", 2.0, gpu="H100 NVL")
    history.record(an_answer(an_offer("a"), nvl, an_offer("c", 1.0, gpu="A40", gpu_family="A40")), lane="sweep")
    history.record(an_answer(after_s=in_hours(1.5)), lane="sweep")
    (point,) = price_track(database, on_demand("H100"), NOON, NOON + timedelta(hours=1))
    assert (point.offers, point.min_microusd) == (2, 2_000_000)


def test_a_track_tells_no_offers_from_no_data(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer()), lane="sweep")
    history.record(an_answer(after_s=in_hours(1)), lane="sweep")
    periods = price_track(database, H100, NOON - timedelta(hours=1), NOON + timedelta(hours=6, seconds=-1))
    assert [(point.polled, point.offers) for point in periods] == [
        (False, 0),
        (True, 1),
        (True, 0),
        (True, 0),
        (True, 0),
        (False, 0),
        (False, 0),
    ]


def test_a_track_reaches_into_the_running_hour(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer(usd_hour=3.0)), lane="sweep")
    history.record(an_answer(an_offer(usd_hour=2.0), after_s=600), lane="sweep")
    (point,) = price_track(database, H100, NOON, NOON + timedelta(seconds=900))
    assert (point.min_microusd, point.median_microusd, point.offers) == (2_000_000, 3_000_000, 1)


def test_an_hour_that_a_late_poll_reopens_counts_once(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer()), lane="sweep")
    history.record(an_answer(an_offer(), after_s=in_hours(1.5)), lane="sweep")
    late = an_offer("b", 1.0, provider="runpod", disk_usd_gb_month=None)
    history.record(an_answer(late, after_s=in_hours(0.5), provider="runpod"), lane="sweep")
    first, second = price_track(database, H100, NOON, NOON + timedelta(hours=2))
    assert (first.offers, second.offers) == (2, 2)


def test_a_track_shows_the_lowest_price_with_each_providers_commission(
    database: Database, history: SqlHistoryRecorder
) -> None:
    history.record(an_answer(an_offer("a", 2.0)), lane="sweep")
    history.record(an_answer(an_offer("b", 2.2, provider="lambda"), provider="lambda"), lane="sweep")
    commissions = {"vastai": Commission("0.20"), "lambda": Commission()}
    (point,) = price_track(database, H100, NOON, NOON + timedelta(seconds=60), commissions=commissions)
    assert (point.min_microusd, point.min_with_commission_microusd) == (2_000_000, 2_200_000)


def test_quartiles_hold_the_commission(database: Database, history: SqlHistoryRecorder) -> None:
    offers = [an_offer(f"m{number}", usd, disk_usd_gb_month=None) for number, usd in enumerate((1.0, 2.0, 3.0, 4.0))]
    history.record(an_answer(*offers), lane="sweep")
    commissions = {"vastai": Commission("0.20")}
    (point,) = price_track(database, H100, NOON, NOON + timedelta(minutes=30), commissions=commissions)
    quartiles = (
        point.q1_with_commission_microusd,
        point.median_with_commission_microusd,
        point.q3_with_commission_microusd,
    )
    assert quartiles == (1_200_000, 2_400_000, 3_600_000)


@pytest.mark.parametrize("commission", ["0", "0.20"])
def test_no_quartile_is_below_the_lowest_price(
    database: Database, history: SqlHistoryRecorder, commission: str
) -> None:
    """Sketches hold the middles of steps: 1.997850 for a price that was 2.000000 all the time."""
    for hour in range(3):
        for provider in ("vastai", "lambda"):
            offer = an_offer("a", 2.0, provider=provider, disk_usd_gb_month=None)
            history.record(an_answer(offer, after_s=in_hours(hour), provider=provider), lane="sweep")
    commissions = {"vastai": Commission(commission)}
    (point,) = price_track(database, H100, NOON, NOON + timedelta(hours=2), day_in=UTC, commissions=commissions)
    assert (point.min_microusd, point.q1_microusd, point.median_microusd, point.q3_microusd) == (2_000_000,) * 4
    assert point.min_with_commission_microusd == point.q1_with_commission_microusd == 2_000_000


def test_quartiles_of_several_commissions_are_right_within_a_percent(
    database: Database, history: SqlHistoryRecorder
) -> None:
    mine = [an_offer(f"m{number}", 1.0 + number / 100, disk_usd_gb_month=None) for number in range(100)]
    theirs = [an_offer(f"n{number}", 1.3 + number / 100, provider="lambda") for number in range(100)]
    history.record(an_answer(*mine), lane="sweep")
    history.record(an_answer(*theirs, provider="lambda"), lane="sweep")
    commissions = {"vastai": Commission("0.20"), "lambda": Commission()}
    (point,) = price_track(database, H100, NOON, NOON + timedelta(minutes=30), commissions=commissions)
    prices = sorted([1.2 + number * 0.012 for number in range(100)] + [1.3 + number / 100 for number in range(100)])
    assert point.q1_with_commission_microusd == pytest.approx(prices[49] * 1e6, rel=0.011)
    assert point.median_with_commission_microusd == pytest.approx(prices[99] * 1e6, rel=0.011)
    assert point.q3_with_commission_microusd == pytest.approx(prices[149] * 1e6, rel=0.011)


def test_a_track_may_begin_with_the_first_look(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer()), lane="sweep")
    span = (NOON - timedelta(days=3), NOON + timedelta(hours=2))
    found = read_price_periods(database, H100, span, spans=(PeriodLength.WEEK, UTC), rates={}, trim=True)
    assert [(point.starts_at, point.hours) for point in found.points] == [(NOON, 2)]
    assert (found.series.first_hour, found.series.known) == (NOON_HOUR, 2)
    nothing = read_price_periods(database, on_demand("A40"), span, spans=(PeriodLength.WEEK, UTC), rates={}, trim=True)
    assert nothing.points == []


def test_when_each_price_was_last_seen(database: Database, history: SqlHistoryRecorder) -> None:
    a40 = an_offer("a", 1.0, gpu="A40", gpu_family="A40")
    history.record(an_answer(an_offer(), a40), lane="sweep")
    history.record(an_answer(an_offer(), a40, after_s=in_hours(1)), lane="sweep")
    history.record(an_answer(an_offer(), after_s=in_hours(2)), lane="sweep")  # the A40 is gone
    l4 = an_offer("l", 0.5, provider="runpod", gpu="L4", gpu_family="L4")
    history.record(an_answer(l4, after_s=in_hours(3), provider="runpod"), lane="hunt")  # covers nothing
    assert set(newest_prices(database)) == {
        ("vastai", "H100 SXM", NOON + timedelta(hours=2)),
        ("vastai", "A40", NOON + timedelta(hours=1)),
        ("runpod", "L4", NOON + timedelta(hours=3)),
    }


def test_since_when_anything_is_known(database: Database, history: SqlHistoryRecorder) -> None:
    assert first_poll_at(database) is None
    assert kept_from(database) is None
    history.record(an_answer(an_offer("gone")), lane="sweep")
    history.record(an_answer(an_offer(), after_s=in_hours(1)), lane="sweep")
    history.record(an_answer(an_offer(), after_s=in_hours(30)), lane="sweep")
    assert first_poll_at(database) == NOON
    prune(database, timedelta(hours=2), NOON + timedelta(hours=31))
    assert first_poll_at(database) == NOON  # its hours are kept
    assert kept_from(database) is not None


def test_a_track_by_day_follows_the_zone(database: Database, history: SqlHistoryRecorder) -> None:
    for hours in range(0, 48, 2):
        history.record(an_answer(an_offer(), after_s=in_hours(hours)), lane="sweep")
    zone = ZoneInfo("America/New_York")
    periods = price_track(database, H100, NOON, NOON + timedelta(hours=40), day_in=zone)
    assert [(point.starts_at.astimezone(zone).hour, point.hours) for point in periods] == [(7, 17), (0, 23)]


def test_medians_of_hours_and_weeks_are_right_within_a_percent(database: Database, history: SqlHistoryRecorder) -> None:
    rng = random.Random(3)
    prices: list[int] = []  # each is on offer for an hour
    for step in range(200):
        offers = [an_offer(f"m{number}", rng.lognormvariate(0.5, 0.3)) for number in range(9)]
        history.record(an_answer(*offers, after_s=in_hours(step)), lane="sweep")
        prices += [round(offer.quoted_usd_hour * 1e6) for offer in offers]
    hours = price_track(database, H100, NOON + timedelta(hours=30), NOON + timedelta(hours=31))
    assert [point.median_microusd for point in hours] == [pytest.approx(sorted(prices[270:279])[4], rel=0.01)]
    span = (NOON, NOON + timedelta(hours=200))
    weeks = read_price_periods(database, H100, span, spans=(PeriodLength.WEEK, UTC), rates={}).points
    first = sorted(prices[: 9 * weeks[0].hours])
    assert weeks[0].median_microusd == pytest.approx(first[len(first) // 2], rel=0.01)


def test_every_name_that_was_met_is_known(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer(gpu="Weird 9000", gpu_family="Weird 9000"), an_offer()), lane="hunt")
    assert known_gpu_names(database) == {"Weird 9000", "H100 SXM", "H100"}


@given(st.integers(1, 10**13))
def test_a_price_is_known_within_half_a_percent_by_its_step(price: int) -> None:
    assert abs(price_of_step(step_of(price)) - price) <= price * 0.0051 + 0.5


@given(st.lists(st.dictionaries(st.integers(0, 3000), st.integers(60, 10**9), min_size=1), min_size=1, max_size=4))
def test_sketches_merge_as_if_they_had_been_one(hours: list[dict[int, int]]) -> None:
    expected: dict[int, int] = {}
    for hour in hours:
        for step, seconds in hour.items():
            expected[step] = expected.get(step, 0) + max(1, round(seconds / 60))
    merged = merge_sketches(encode_sketch(hour) for hour in hours)
    assert {step: weight for step, weight in merged.items() if weight} == expected


def test_the_median_of_nothing_is_nothing() -> None:
    assert quantiles({}, (0.5,)) == []


@pytest.mark.parametrize("name", ["Asia/Kolkata", "Asia/Kathmandu", "Australia/Adelaide"])
@pytest.mark.parametrize("is_pruned", [False, True])
def test_a_stored_day_begins_at_local_midnight(
    database: Database, history: SqlHistoryRecorder, name: str, is_pruned: bool
) -> None:
    """The price falls at midnight. Once the intervals are pruned, the hour that holds it belongs to one of the days."""
    zone = ZoneInfo(name)
    midnight = (NOON + timedelta(days=1)).astimezone(zone).replace(hour=0, minute=0)
    after_s = (midnight - NOON).total_seconds()
    for hours in range(-4, 5):
        usd = 3.0 if hours < 0 else 1.0
        history.record(an_answer(an_offer(usd_hour=usd), after_s=after_s + in_hours(hours)), lane="sweep")
    for hours in (60, 61):
        history.record(an_answer(an_offer(usd_hour=2.0), after_s=after_s + in_hours(hours)), lane="sweep")
    if is_pruned:
        prune(database, timedelta(hours=2), midnight + timedelta(hours=62))
    first, second = price_track(
        database, H100, midnight - timedelta(hours=4), midnight + timedelta(hours=4), day_in=zone
    )[:2]
    assert second.starts_at == midnight
    assert first.q3_microusd == 3_000_000
    assert second.min_microusd == 1_000_000
    if not is_pruned:
        assert (first.min_microusd, second.q3_microusd) == (3_000_000, 1_000_000)
    assert first.hours + second.hours >= 8
