"""The daemon stores the forecasts of automatic limits, scores them when due, and uses the record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from gpuwatch.domain.forecasts.price_forecasts import ForecastOutcome, ForecastScore, PriceForecast
from gpuwatch.domain.history.price_series import PriceSeries
from gpuwatch.engine.forecasts.auto_limits import AutoPrices
from gpuwatch.engine.forecasts.forecast_ledger import ForecastLedger
from tests.engine.forecasts.test_auto_prices import WATCH, H, Waits, nightly
from tests.engine.uow_fakes import NOON


class Ledger:
    """Forecasts in memory."""

    def __init__(self) -> None:
        self.made: dict[str, PriceForecast] = {}
        self.scores: dict[str, ForecastScore] = {}
        self.prices = nightly()

    def add(self, made: PriceForecast) -> None:
        self.made[made.forecast_id] = made

    def all(self) -> Sequence[tuple[PriceForecast, ForecastScore | None]]:
        return [(one, self.scores.get(key)) for key, one in self.made.items()]

    def scored(self) -> Sequence[tuple[PriceForecast, ForecastScore | None]]:
        return [(msgspec.structs.replace(made, limits_usd=()), score) for made, score in self.all()]

    def unscored(self, due_before: datetime) -> Sequence[PriceForecast]:
        return [one for key, one in self.made.items() if key not in self.scores and one.due_at < due_before]

    def newest_of(self, watch: str) -> PriceForecast | None:
        return max((one for one in self.made.values() if one.watch == watch), key=lambda one: one.made_at, default=None)

    def save_score(self, forecast_id: str, score: ForecastScore) -> None:
        self.scores[forecast_id] = score

    def series(self, made: PriceForecast, now: datetime) -> PriceSeries:
        """2.00 from the hour of the forecast on, for three days."""
        first = int(made.made_at.timestamp()) // 3600
        return PriceSeries(first_hour=first, lows=[2_000_000] * 72, polled=[True] * 72, source="a test")


def prices_with(ledger: Ledger, waits: Waits) -> AutoPrices:
    ids = iter(f"f{number}" for number in range(1000))
    return AutoPrices(waits, ledger=ForecastLedger(ledger), new_id=lambda: next(ids))


@pytest.mark.slow
def test_the_first_limit_of_a_wait_is_stated_and_then_one_a_day() -> None:
    ledger, waits = Ledger(), Waits(nightly())
    prices = prices_with(ledger, waits)
    for hour in range(30):
        prices.update([WATCH], NOON + hour * H)
    assert [one.made_at for one in ledger.made.values()] == [NOON, NOON + 24 * H]
    first = ledger.made["f0"]
    assert (first.watch, first.due_at, first.hours) == ("h100", NOON + 48 * H, 48)
    assert (first.cap_usd, first.rule != "", first.median_usd) == (3.5, True, 3.0)
    assert first.limits_usd[0] is None, "in the last hour any price up to the cap"


def test_a_new_wait_is_stated_at_once_and_a_restart_states_nothing_twice() -> None:
    ledger, waits = Ledger(), Waits(nightly())
    prices_with(ledger, waits).update([WATCH], NOON)
    prices_with(ledger, waits).update([WATCH], NOON + H)
    assert len(ledger.made) == 1
    waits.since = NOON + 5 * H
    again = AutoPrices(waits, ledger=ForecastLedger(ledger), new_id=lambda: "again")
    again.update([WATCH], NOON + 5 * H)
    assert list(ledger.made) == ["f0", "again"]


def test_what_is_due_is_scored_once_an_hour() -> None:
    ledger, waits = Ledger(), Waits(nightly())
    prices = prices_with(ledger, waits)
    prices.update([WATCH], NOON)
    prices.update([], NOON + 48 * H + timedelta(minutes=30))
    assert ledger.scores == {}, "the hour of the deadline is not over"
    prices.update([], NOON + 49 * H + timedelta(minutes=31))
    assert [score.outcome for score in ledger.scores.values()] == [ForecastOutcome.BOUGHT]
    assert ledger.scores["f0"].paid_usd == 2.0


def test_a_record_against_optimal_stopping_leaves_the_simple_rules() -> None:
    ledger, waits = Ledger(), Waits(nightly())
    prices = prices_with(ledger, waits)
    prices.update([WATCH], NOON)
    one = ledger.made["f0"]
    assert one.rule.startswith("optimal stopping"), "the nights of this market are worth waiting for"
    for number in range(8):
        at = NOON - timedelta(days=30 - 3 * number)
        due = at + timedelta(days=2)
        ledger.made[f"old{number}"] = msgspec.structs.replace(one, forecast_id=f"old{number}", made_at=at, due_at=due)
        ledger.scores[f"old{number}"] = ForecastScore(
            outcome=ForecastOutcome.BOUGHT, paid_usd=3.0, at_once_usd=3.0, median_paid_usd=2.0, lowest_usd=2.0
        )
    restarted = prices_with(ledger, waits).standing(WATCH, NOON + H)
    assert restarted.rule in {"fixed median", "buy at once"}, "the very first limit after a restart heeds it"
    assert restarted.reason.endswith("optimal stopping is not used, based on the record of earlier forecasts")
    prices.update([WATCH], NOON + 2 * H)
    prices.update([WATCH], NOON + 26 * H)
    newest = ledger.newest_of("h100")
    assert newest is not None
    assert newest.made_at == NOON + 26 * H
    assert newest.rule in {"fixed median", "buy at once"}
