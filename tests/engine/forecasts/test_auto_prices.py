"""`max_price = "auto"`: the current limit, and the daemon's queries, decisions and alerts with it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.domain.forecasts.auto_limit import LimitSchedule, deadline_of, limit_at, limit_schedule
from gpuwatch.domain.history.price_series import PriceSeries
from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.decide import DecisionReason
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action, AutoPrice, Watch
from gpuwatch.engine.forecasts.auto_limits import AutoPrices
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.errors import StoreError
from tests.builders import a_watch
from tests.drawn import examples
from tests.engine.uow_fakes import NOON, ScriptedMarket, an_answer, evaluate
from tests.engine.watches.test_evaluator import Bench, h100
from tests.engine.watches.test_evaluator_several import Several

H = timedelta(hours=1)
AUTO = AutoPrice(cap_usd_gpu_hour=Decimal("3.50"), deadline_s=2 * 86_400.0)
WATCH = a_watch(name="h100", gpu_names=("H100 SXM",), max_price_usd_gpu_hour=Decimal("3.50"), auto=AUTO)


def nightly(days: int = 30, low: float = 2.0, high: float = 3.0) -> PriceSeries:
    """Cheap in the first six hours of each day."""
    lows = [round((low if hour % 24 < 6 else high) * 1e6) for hour in range(days * 24)]
    return PriceSeries(first_hour=480_000, lows=lows, polled=[True] * len(lows), source="a test")


class Waits:
    """Stores the data in memory."""

    def __init__(self, series: PriceSeries, since: datetime = NOON) -> None:
        self.given, self.since = series, since
        self.read = 0
        self.limits: list[Decimal] = []
        self.known: list[list[str]] = []
        self.broken = False

    def wait_started_at(self, watch: Watch, now: datetime) -> datetime:
        if self.broken:
            raise StoreError("the disk is full")
        return self.since

    def begin_wait(self, watch: Watch, now: datetime) -> datetime:
        return self.wait_started_at(watch, now)

    def save_limit(self, watch: Watch, limit_usd_gpu_hour: Decimal, now: datetime) -> None:
        self.limits.append(limit_usd_gpu_hour)

    def delete_except(self, watches: Sequence[str]) -> None:
        self.known.append(list(watches))

    def forget_except(self, watches: object) -> None:
        pass

    def series(self, watch: Watch, now: datetime) -> PriceSeries:
        self.read += 1
        return self.given


# --- the limit --------------------------------------------------------------------------------------------------------


def test_it_holds_out_for_the_night_and_takes_the_cap_in_the_last_hour() -> None:
    prices = AutoPrices(Waits(nightly()))
    limits = [prices.with_current_limit(WATCH, NOON + half * H / 2).max_price_usd_gpu_hour for half in range(98)]
    assert Decimal(2) <= limits[0] < Decimal(3)
    assert limits == sorted(limits)
    assert [limit == Decimal("3.50") for limit in limits[-4:]] == [False, True, True, True]


def test_it_never_goes_beyond_the_cap_nor_takes_up_dearer_history() -> None:
    auto = msgspec.structs.replace(AUTO, cap_usd_gpu_hour=Decimal("2.5"))
    found = limit_schedule(nightly(), auto, NOON + 48 * H, NOON)
    for hours in range(60):
        assert limit_at(found, auto, NOON + 48 * H, NOON + hours * H) <= Decimal("2.5")


def test_after_the_deadline_the_cap_stays() -> None:
    prices = AutoPrices(Waits(nightly(), since=NOON - timedelta(days=30)))
    assert prices.with_current_limit(WATCH, NOON).max_price_usd_gpu_hour == Decimal("3.50")


def test_the_deadline_is_a_moment_or_counts_from_the_first_look() -> None:
    moment = AutoPrice(cap_usd_gpu_hour=Decimal(3), deadline_at=NOON + 5 * H)
    assert deadline_of(moment, NOON) == NOON + 5 * H
    assert deadline_of(AUTO, NOON - H) == NOON + 47 * H


def test_a_price_that_the_history_holds_is_under_its_own_limit() -> None:
    """Eight GPUs for 2.0000004 each: a limit rounded down would reject the very price that it stands for."""
    found = LimitSchedule(limits_usd=(None, 2.0000004))
    assert limit_at(found, AUTO, NOON + 2 * H, NOON) == Decimal("2.0001")


def test_too_little_history_is_reported_once_and_the_cap_counts(caplog: pytest.LogCaptureFixture) -> None:
    short = PriceSeries(first_hour=0, lows=[2_000_000] * 10, polled=[True] * 10, source="a test")
    prices = AutoPrices(Waits(short))
    with caplog.at_level(logging.WARNING):
        for minute in range(3):
            prices.update([WATCH], NOON + timedelta(minutes=minute))
    assert prices.with_current_limit(WATCH, NOON).max_price_usd_gpu_hour == Decimal("3.50")
    assert [record.message for record in caplog.records] == [
        "watch h100: too little history for max_price = auto (polled in 10 hours; 72 are required); "
        "the cap of $3.50 applies"
    ]


def test_a_deadline_far_away_uses_what_the_history_allows() -> None:
    """Eight days of history prove nothing for a month, only for two days; a longer wait uses the limit for those."""
    far = AutoPrice(cap_usd_gpu_hour=Decimal("3.50"), deadline_s=30 * 86_400.0)
    found = limit_schedule(nightly(days=8), far, NOON + timedelta(days=30), NOON)
    assert (found.why_none, len(found.limits_usd)) == (None, 49)
    assert limit_at(found, far, NOON + timedelta(days=30), NOON) < Decimal(3)


# --- when it is computed ----------------------------------------------------------------------------------------------


def test_the_history_is_read_every_half_hour_and_the_time_left_asked_at_every_look() -> None:
    waits = Waits(nightly())
    prices = AutoPrices(waits)
    for minute in range(61):
        prices.update([WATCH, a_watch(name="plain")], NOON + timedelta(minutes=minute))
    assert (waits.read, waits.known) == (3, [["h100"]])
    prices.update([WATCH], NOON + 47.5 * H)
    assert waits.limits[0] < waits.limits[-1] == Decimal("3.50")


def test_a_clock_that_was_put_back_does_not_keep_old_limits_for_ever() -> None:
    waits = Waits(nightly())
    prices = AutoPrices(waits)
    prices.update([WATCH], NOON)
    prices.update([WATCH], NOON - timedelta(days=1))
    assert waits.read == 2


def test_a_watch_with_a_price_of_its_own_stays_as_it_is() -> None:
    plain = a_watch()
    assert AutoPrices(Waits(nightly())).with_current_limit(plain, NOON) is plain


def test_without_a_store_the_old_limit_stays_and_a_first_one_is_not_made_up() -> None:
    waits = Waits(nightly())
    prices = AutoPrices(waits)
    before = prices.with_current_limit(WATCH, NOON)
    waits.broken = True
    with pytest.raises(StoreError):
        prices.update([WATCH], NOON + 2 * H)
    assert prices.with_current_limit(WATCH, NOON) == before
    with pytest.raises(StoreError):
        prices.with_current_limit(msgspec.structs.replace(WATCH, name="another"), NOON)


def test_a_launch_that_ended_begins_the_wait_anew_at_the_very_next_look() -> None:
    """Its slot is free at once, and the cap of the old, past deadline would apply in that second."""
    waits = Waits(nightly(), since=NOON - timedelta(days=3))
    prices = AutoPrices(waits)
    assert prices.with_current_limit(WATCH, NOON).max_price_usd_gpu_hour == Decimal("3.50")
    waits.since = NOON
    assert prices.with_current_limit(WATCH, NOON + timedelta(seconds=5)).max_price_usd_gpu_hour < Decimal(3)
    assert waits.read == 2
    waits.broken = True
    assert prices.with_current_limit(WATCH, NOON + H).max_price_usd_gpu_hour < Decimal(3)


def test_the_hunts_of_many_providers_read_the_history_once() -> None:
    waits, together = Waits(nightly(days=8)), threading.Barrier(4)
    prices = AutoPrices(waits)

    def hunt() -> None:
        together.wait()
        prices.with_current_limit(WATCH, NOON)

    threads = [threading.Thread(target=hunt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert waits.read == 1


# --- the hunt ---------------------------------------------------------------------------------------------------------


class Hunt:
    """A hunter whose watch has a limit from the history."""

    def __init__(self, watch: Watch, *offers: object) -> None:
        self.waits = Waits(nightly())
        self.bench = Bench(watch)
        self.market = ScriptedMarket(an_answer(*offers))
        self.now = NOON
        keep = lambda *_: None  # noqa: E731
        prices = AutoPrices(self.waits)
        self.hunter = Hunter(
            self.market,
            (watch,),
            Commission("0.20"),
            self.bench.evaluator,
            keep,
            threading.Event(),
            current_limit=lambda watch, now, _polled_at: prices.with_current_limit(watch, now),
        )

    def looks(self, after: timedelta = timedelta(0), *offers: object) -> None:
        self.now = NOON + after
        self.market.script = [an_answer(*offers, at=self.now)]
        self.hunter.run_round(lambda: self.now, 30.0, 30.0)


def test_above_the_limit_it_waits_and_near_the_deadline_it_takes_the_same_offer() -> None:
    watch = msgspec.structs.replace(WATCH, action=Action.LAUNCH, launch=LaunchSpec())
    hunt, offer = Hunt(watch), h100(2.5)  # 3.00 with commission
    hunt.looks(timedelta(0), offer)
    assert hunt.bench.started == []
    hunt.looks(47.5 * H, offer)
    (start,) = hunt.bench.started
    assert start.watch.max_price_usd_gpu_hour == Decimal("3.50")


def test_what_is_rented_is_bound_to_the_limit_of_that_moment() -> None:
    """The rent requotes with the watch that the launch began with, not with the cap."""
    watch = msgspec.structs.replace(WATCH, action=Action.LAUNCH, launch=LaunchSpec())
    hunt = Hunt(watch)
    hunt.looks(timedelta(0), h100(1.6))
    (start,) = hunt.bench.started
    assert Decimal(2) <= start.watch.max_price_usd_gpu_hour < Decimal(3)
    (alert, *_), *_ = hunt.bench.uow_factory.alerts
    threshold = dict(alert.facts)["Threshold"]
    assert threshold.endswith("now, never above $3.50 (auto)")


def test_the_question_follows_the_limit() -> None:
    hunt = Hunt(WATCH)
    hunt.looks(timedelta(0), h100(9.0))
    hunt.looks(47.5 * H, h100(9.0))
    asked = [query.max_listed_usd_hour for query in hunt.market.asked]
    assert asked[0] is not None
    assert asked[0] < 3.0 / 1.2
    assert asked[1] == pytest.approx(3.50 / 1.2)
    assert hunt.hunter.queries == 1


def test_while_no_limit_is_known_nothing_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    hunt = Hunt(WATCH)
    hunt.waits.broken = True
    hunt.looks(timedelta(0), h100(1.0))
    assert hunt.market.asked == []
    assert "its limit is unknown: the disk is full" in caplog.text
    hunt.waits.broken = False
    hunt.looks(timedelta(minutes=1), h100(1.0))
    assert len(hunt.bench.uow_factory.alerts) == 1


def test_a_limit_that_cannot_be_computed_blinds_no_other_watch(caplog: pytest.LogCaptureFixture) -> None:
    def with_current_limit(watch: Watch, now: datetime, _polled_at: object) -> Watch:
        if watch.auto:
            raise ZeroDivisionError
        return watch

    plain = a_watch(name="plain", gpu_names=("A100 PCIe",))
    bench, market = Bench(WATCH, plain), ScriptedMarket(an_answer())
    keep = lambda *_: None  # noqa: E731
    hunter = Hunter(
        market, (WATCH, plain), Commission(), bench.evaluator, keep, threading.Event(), current_limit=with_current_limit
    )
    hunter.run_round(lambda: NOON, 30.0, 30.0)
    assert [query.gpus for query in market.asked] == [("A100 PCIe",)]
    assert "watch h100: cannot compute its limit" in caplog.text


def test_many_offers_are_judged_by_the_limit_of_the_moment() -> None:
    """If an index matches them, too: a changed limit rebuilds it."""
    bench = Bench(WATCH)
    many = [h100(2.5, offer_id=str(n), machine_id=str(n)) for n in range(5_001)]

    def reason(limit: str) -> DecisionReason:
        watch = msgspec.structs.replace(WATCH, max_price_usd_gpu_hour=Decimal(limit))
        return evaluate(bench.evaluator, [watch], an_answer(*many), False, NOON)[0].reason

    assert reason("2.10") is DecisionReason.NO_OFFER
    assert reason("3.50") is DecisionReason.FIRST_MATCH
    assert reason("2.10") is DecisionReason.NO_OFFER


def test_what_another_provider_showed_under_an_older_limit_is_held_against_that_of_now() -> None:
    """A wait that began again: a price that was under the cap a minute ago is above the limit."""
    watch = msgspec.structs.replace(WATCH, action=Action.LAUNCH, launch=LaunchSpec())
    world = Several(watch, {"vastai": 1.0, "runpod": 1.0})
    world.uow_factory.refusal = LaunchRefusal(RefusalReason.MAX_ACTIVE, "one is alive")
    assert world.sees("runpod", 3.40) is DecisionReason.FIRST_MATCH
    world.uow_factory.refusal = None
    world.watch = msgspec.structs.replace(watch, max_price_usd_gpu_hour=Decimal("2.10"))
    world.sees("vastai", 9.0)
    assert world.started == []
    world.sees("vastai", 2.00)
    assert [start.launch.provider for start in world.started] == ["vastai"]
    assert [match.offer.provider for match in world.started[0].candidates] == ["vastai"]


@settings(max_examples=examples(25))
@given(
    st.lists(st.one_of(st.none(), st.floats(0.5, 5)), min_size=80, max_size=200),
    st.decimals("0.4", "6", places=2),
    st.integers(0, 60),
)
def test_whatever_the_history_holds_the_limit_is_a_price_at_or_under_the_cap(
    prices: list[float | None], cap: Decimal, hours: int
) -> None:
    lows = [None if price is None else round(price * 1e6) for price in prices]
    series = PriceSeries(first_hour=480_000, lows=lows, polled=[True] * len(lows), source="a test")
    auto = AutoPrice(cap_usd_gpu_hour=cap, deadline_s=48 * 3600.0)
    found = limit_schedule(series, auto, NOON + 48 * H, NOON)
    assert 0 < limit_at(found, auto, NOON + 48 * H, NOON + hours * H) <= cap


def test_a_limit_that_stays_is_stored_every_half_hour_so_that_others_see_that_it_applies() -> None:
    waits = Waits(nightly())
    prices = AutoPrices(waits)
    auto = msgspec.structs.replace(AUTO, deadline_s=90 * 86_400.0)
    watch = msgspec.structs.replace(WATCH, auto=auto)
    for minute in range(0, 61, 10):
        prices.update([watch], NOON + timedelta(minutes=minute))
    assert len(set(waits.limits)) == 1
    assert len(waits.limits) == 3
