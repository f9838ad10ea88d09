"""Price forecasts as rows: they are read back unchanged, and a score stays."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from gpuwatch.domain.forecasts.price_forecasts import ForecastOutcome, ForecastScore
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.market.money import Commission
from gpuwatch.storage.forecasts.forecast_rows import SqlForecasts
from gpuwatch.storage.setup.database import Database
from tests.domain.forecasts.test_price_forecasts import stated
from tests.storage.stored_answers import NOON

H = timedelta(hours=1)
BOUGHT = ForecastScore(
    outcome=ForecastOutcome.BOUGHT, paid_usd=2.1, at_once_usd=3.0, median_paid_usd=2.4, lowest_usd=2.0
)


def ledger(database: Database) -> SqlForecasts:
    return SqlForecasts(database, {"vastai": Commission()})


def test_a_statement_comes_back_as_it_was_made(database: Database) -> None:
    rows = ledger(database)
    scope = MarketFilter(gpus=("H100 SXM", "H100 PCIe"), provider="vastai", gpu_count_min=2, spot=False)
    first = stated(2.0, None, scope=scope, reached=((0.5, 2.0), (0.95, None)), saving_share=0.1, watch="h100")
    second = stated(2.0, None, after_h=3)
    rows.add(second)
    rows.add(first)
    assert rows.all() == [(first, None), (second, None)]
    assert rows.newest_of("h100") == first
    assert rows.newest_of("other") is None


def test_a_score_is_kept_once(database: Database) -> None:
    rows, made = ledger(database), stated(2.0, None)
    rows.add(made)
    assert rows.unscored(made.due_at) == []
    assert rows.unscored(made.due_at + H) == [made]
    rows.save_score(made.forecast_id, BOUGHT)
    rows.save_score(made.forecast_id, msgspec.structs.replace(BOUGHT, paid_usd=1.0))
    assert rows.all() == [(made, BOUGHT)]
    assert rows.unscored(NOON + timedelta(days=900)) == []
