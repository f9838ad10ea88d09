"""A forecast is scored by the prices that followed, and by nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.forecasts.forecast_scoring import LATER_OFFER_WITHIN, score
from gpuwatch.domain.forecasts.price_forecasts import (
    ForecastOutcome,
    ForecastScore,
    ForecastSource,
    PriceForecast,
    forecast_record,
)
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.price_series import PriceSeries

FIRST_HOUR = 480_000
BEGAN = datetime.fromtimestamp(FIRST_HOUR * 3600, UTC) + timedelta(minutes=20)
H = timedelta(hours=1)


def series(*prices: float | None, polled: Sequence[bool] | None = None) -> PriceSeries:
    lows = [None if price is None else round(price * 1e6) for price in prices]
    return PriceSeries(first_hour=FIRST_HOUR, lows=lows, polled=polled or [True] * len(lows), source="a test")


def stated(*limits: float | None, after_h: int = 0, **changed: object) -> PriceForecast:
    """Limits from now to the deadline, the last one for the last hour."""
    made_at = BEGAN + after_h * H
    values: dict[str, object] = {
        "forecast_id": f"f{after_h}", "source": ForecastSource.ADVISE, "made_at": made_at,
        "due_at": made_at + (len(limits) - 1) * H, "scope": MarketFilter(gpus=("H100 SXM",)), "watch": None,
        "rule": "optimal stopping", "verdict": "wait", "now_usd": 3.0, "limits_usd": tuple(reversed(limits)),
        "median_usd": 2.5,
    }  # fmt: skip
    return PriceForecast(**(values | changed))  # type: ignore[arg-type]


LATE = BEGAN + timedelta(days=30)


def test_it_buys_at_its_limit_before_the_deadline() -> None:
    found = score(stated(2.0, 2.0, 2.2, None), series(3.0, 2.4, 2.1, 1.9), LATE)
    assert found == ForecastScore(
        outcome=ForecastOutcome.BOUGHT, paid_usd=2.1, at_once_usd=3.0, median_paid_usd=2.4, lowest_usd=1.9
    )


def test_at_the_deadline_it_takes_what_there_is() -> None:
    found = score(stated(1.0, 1.0, None), series(3.0, 2.0, 4.0), LATE)
    assert found is not None
    assert (found.outcome, found.paid_usd, found.median_paid_usd) == (ForecastOutcome.BOUGHT, 4.0, 2.0)


def test_a_series_that_begins_after_the_statement_does_not_move_its_deadline() -> None:
    """The first two hours have no polls: the third hour's price is at the deadline, and later prices do not count."""
    later = PriceSeries(first_hour=FIRST_HOUR + 2, lows=[4_000_000, 1_000_000], polled=[True, True], source="a test")
    found = score(stated(2.0, 2.0, None), later, LATE)
    assert found is not None
    assert (found.outcome, found.paid_usd, found.lowest_usd) == (ForecastOutcome.BOUGHT, 4.0, 4.0)
    nothing = PriceSeries(first_hour=0, lows=(), polled=(), source="a test")
    assert score(stated(2.0, None), nothing, LATE) == ForecastScore(outcome=ForecastOutcome.UNKNOWN)


def test_on_a_slow_market_the_deadline_is_a_step() -> None:
    """One poll a day, a deadline of two days: each poll represents its day."""
    prices: list[float | None] = [None] * 72
    polled = [hour % 24 in {10, 11, 12} for hour in range(72)]
    for hour, known in enumerate(polled):
        prices[hour] = (3.0, 2.4, 1.9)[hour // 24] if known else None
    made = stated(2.0, 2.0, None, after_h=12, step_h=24)
    made = msgspec.structs.replace(made, due_at=made.made_at + 48 * H)
    found = score(made, series(*prices, polled=polled), LATE)
    assert found == ForecastScore(
        outcome=ForecastOutcome.BOUGHT, paid_usd=1.9, at_once_usd=3.0, median_paid_usd=2.4, lowest_usd=1.9
    )
    gap = [known and hour < 48 for hour, known in enumerate(polled)]
    nobody = score(
        made, series(*(p if known else None for p, known in zip(prices, gap, strict=True)), polled=gap), LATE
    )
    assert nobody == ForecastScore(outcome=ForecastOutcome.UNKNOWN)


def test_a_miss_pays_the_next_offer_and_is_not_settled_before_it_comes() -> None:
    made = stated(1.0, None)
    gone = series(None, None, None, None)
    due = made.due_at + 2 * H
    assert score(made, gone, due) is None
    found = score(made, series(None, None, None, 5.0), due + 2 * H)
    assert found is not None
    assert (found.outcome, found.paid_usd, found.at_once_usd, found.lowest_usd) == (
        ForecastOutcome.MISSED, 5.0, 5.0, None,
    )  # fmt: skip
    assert score(made, series(3.0, None, None), made.due_at + LATER_OFFER_WITHIN) == ForecastScore(
        outcome=ForecastOutcome.MISSED, paid_usd=3.0, at_once_usd=3.0, median_paid_usd=3.0, lowest_usd=3.0
    )


def test_an_automatic_limit_s_miss_costs_its_cap_and_nothing_dearer_is_bought() -> None:
    found = score(stated(1.0, None, cap_usd=3.5), series(4.0, 4.0), LATE)
    assert found is not None
    assert (found.outcome, found.paid_usd, found.lowest_usd) == (ForecastOutcome.MISSED, 3.5, None)


@pytest.mark.parametrize(
    "known",
    [series(3.0, 2.0, 1.0, polled=[True, True, False]), series(3.0, 2.0), series(3.0)],
    ids=["a gap", "nobody looked since", "at once blind"],
)
def test_a_deadline_that_nobody_saw_is_unknown_though_it_would_have_bought(known: PriceSeries) -> None:
    assert score(stated(9.0, 9.0, None), known, LATE) == ForecastScore(outcome=ForecastOutcome.UNKNOWN)


def test_nothing_is_judged_before_its_deadline() -> None:
    made = stated(9.0, None)
    assert score(made, series(1.0, 1.0), made.due_at) is None
    assert score(made, series(1.0, 1.0), made.due_at + H) is not None


def test_the_hours_before_the_statement_do_not_count() -> None:
    found = score(stated(2.0, None, after_h=2), series(1.0, 1.0, 3.0, 2.5), LATE)
    assert found is not None
    assert (found.paid_usd, found.lowest_usd) == (2.5, 2.5)


PRICES = st.lists(st.none() | st.sampled_from([1.0, 1.5, 2.0, 2.5, 3.0]), min_size=6, max_size=12)


@given(PRICES, st.lists(st.sampled_from([1.0, 1.5, 2.0, 2.5]), min_size=1, max_size=4))
def test_it_pays_what_following_the_limits_by_hand_pays(prices: list[float | None], limits: list[float]) -> None:
    made, hours = stated(*limits, None), len(limits)
    found = score(made, series(*prices), LATE)
    offered = [*prices[: hours + 1]]
    bought = next(
        (price for price, limit in zip(offered, [*limits, 9.0], strict=True) if price is not None and price <= limit),
        None,
    )
    later = next((price for price in prices[hours:] if price is not None), None)
    known = [price for price in prices if price is not None]
    if not known:
        assert found == ForecastScore(outcome=ForecastOutcome.UNKNOWN)
        return
    assert found is not None
    wanted = bought if bought is not None else later if later is not None else max(known)
    assert found.paid_usd == pytest.approx(wanted)
    assert found.outcome is (ForecastOutcome.MISSED if bought is None else ForecastOutcome.BOUGHT)
    assert found.lowest_usd == min((price for price in offered if price is not None), default=None)


# --- the record -------------------------------------------------------------------------------------------------------


def scored(paid: float, at_once: float = 3.0, median: float = 2.5, lowest: float | None = None) -> ForecastScore:
    return ForecastScore(
        outcome=ForecastOutcome.BOUGHT, paid_usd=paid, at_once_usd=at_once, median_paid_usd=median,
        lowest_usd=paid if lowest is None else lowest,
    )  # fmt: skip


def promise(number: int, share: float = 0.3, **changed: object) -> PriceForecast:
    return stated(
        2.0, 2.0, None, after_h=number * 3, saving_share=share, saving_low=-0.1, saving_high=0.4,
        reached=((0.5, 2.0), (0.8, 2.5), (0.95, None)), **changed,
    )  # fmt: skip


def test_the_record_counts_every_statement_once() -> None:
    unknown = ForecastScore(outcome=ForecastOutcome.UNKNOWN)
    rows = [(promise(0), scored(2.7)), (promise(1), scored(1.8)), (promise(2), unknown), (promise(3), None)]
    found = forecast_record(rows)
    assert (found.made, found.bought, found.missed, found.unknown, found.open) == (4, 2, 0, 1, 1)
    assert found.made == found.bought + found.missed + found.unknown + found.open
    assert [(one.stated, one.reached, one.counted) for one in found.calibration] == [(0.5, 1, 2), (0.8, 1, 2)]
    assert (found.promised, found.savings) == (pytest.approx(0.3), 2)
    assert found.realised == pytest.approx(1 - 4.5 / 6.0)
    assert (found.within, found.ranges) == (2, 2)
    assert found.median.saved == pytest.approx(1 - 4.5 / 5.0)


def test_waits_that_overlap_are_one_observation() -> None:
    rows = [(stated(2.0, 2.0, None, after_h=hour), scored(2.0)) for hour in range(6)]
    assert forecast_record(rows).independent == 3
    other = [(stated(2.0, None, scope=MarketFilter(gpus=("H200",))), scored(2.0))]
    assert forecast_record(rows + other).independent == 4


def test_promises_are_shrunk_by_what_came_true_once_there_are_enough() -> None:
    half = [(promise(number), scored(2.55)) for number in range(7)]  # 15 % instead of 30 %
    assert forecast_record(half).shrink == 1.0
    half = [(promise(number), scored(2.55)) for number in range(24)]
    assert forecast_record(half).shrink == pytest.approx((0.5 * 24 + 8) / 32)
    better = [(promise(number), scored(1.0)) for number in range(24)]
    assert forecast_record(better).shrink == 1.0, "a record never inflates a promise"
    lost = [(promise(number), scored(3.3)) for number in range(24)]
    assert forecast_record(lost).shrink == pytest.approx(8 / 32)


def test_optimal_stopping_that_cost_more_than_the_median_is_not_trusted() -> None:
    worse = [(promise(number), scored(2.6)) for number in range(8)]
    assert not forecast_record(worse).trusts_optimal_stopping
    assert forecast_record(worse[:7]).trusts_optimal_stopping, "too few to say so"
    simple = [(promise(number, rule="fixed median"), scored(2.6)) for number in range(20)]
    assert forecast_record(simple).trusts_optimal_stopping
    assert forecast_record([(promise(number), scored(2.4)) for number in range(8)]).trusts_optimal_stopping
