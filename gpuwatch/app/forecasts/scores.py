"""The accuracy of the forecasts of `advise` and `max_price = "auto"`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.bootstrap import open_store_read_only, real_now
from gpuwatch.bootstrap.rules import all_commissions
from gpuwatch.domain.forecasts.price_forecasts import ForecastRecord, ForecastSource, forecast_record
from gpuwatch.domain.market.figure_text import count_text, percent_text
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.engine.forecasts.forecast_ledger import scored_until
from gpuwatch.errors import StoreNotReady
from gpuwatch.storage.forecasts.forecast_rows import SqlForecasts

if TYPE_CHECKING:
    from gpuwatch.domain.forecasts.price_forecasts import PriceComparison, Scored
    from gpuwatch.settings import Settings

ASSUMED = (
    "a wait starts in the hour of the statement, follows its limits hour by hour, and takes any price at the deadline",
    "a miss pays the next offer; an automatic limit's miss costs its cap",
    "every offer that was seen could have been rented",
    "prices are judged with today's commission and today's watch",
)


class ForecastScores(msgspec.Struct, frozen=True, kw_only=True):
    """The record of each source with forecasts; `since`: the first forecast."""

    at: datetime
    since: datetime | None
    records: Mapping[ForecastSource, ForecastRecord]


def forecast_scores(settings: Settings) -> ForecastScores:
    """The record so far; due forecasts without a score are scored for it. Writes nothing. Raises StoreError."""
    now = real_now()
    scored = _scored(settings, now)
    return ForecastScores(
        at=now,
        since=scored[0][0].made_at if scored else None,
        records={
            source: forecast_record(rows)
            for source in ForecastSource
            if (rows := [row for row in scored if row[0].source is source])
        },
    )


def advice_record(settings: Settings, now: datetime) -> ForecastRecord | None:
    """The outcomes of earlier forecasts of `advise`; None: there are none, or no store of this schema."""
    try:
        scored = [row for row in _scored(settings, now) if row[0].source is ForecastSource.ADVISE]
    except StoreNotReady:
        return None
    return forecast_record(scored) if scored else None


def _scored(settings: Settings, now: datetime) -> list[Scored]:
    with open_store_read_only(settings) as store:
        return scored_until(SqlForecasts(store, all_commissions(settings), settings.watches), now)


def scores_sentence(scores: ForecastScores) -> str:
    """How far forecasts can be trusted, in one plain sentence."""
    scored = sum(record.bought + record.missed for record in scores.records.values())
    made = sum(record.made for record in scores.records.values())
    if not scored:
        return f"No forecast is scored yet: {count_text(made, 'forecast')}, none past its deadline."
    saved = [record.at_once.saved for record in scores.records.values() if record.at_once.saved is not None]
    if not saved:
        return f"{count_text(scored, 'forecast')} scored; nothing to compare with buying at once."
    best, worst = max(saved), min(saved)
    span = (
        percent_text(worst, 1, "+")
        if best == worst
        else f"{percent_text(worst, 1, '+')} to {percent_text(best, 1, '+')}"
    )
    word = "paid off" if worst > 0 else "cost more than buying at once" if best < 0 else "made no clear difference"
    return f"Following {count_text(scored, 'scored forecast')} {word}: {span} saved against buying at once."


def scores_json(scores: ForecastScores) -> dict[str, Any]:
    """JSON of `gpuwatch forecasts scores`."""
    return {
        "at": rfc3339(scores.at),
        "since": rfc3339(scores.since),
        "sentence": scores_sentence(scores) if scores.records else None,
        "assumed": list(ASSUMED),
        "sources": {source.value: record_json(record) for source, record in scores.records.items()},
    }


def record_json(record: ForecastRecord) -> dict[str, Any]:
    """JSON of one record. Shares are fractions."""
    return {
        "forecasts": record.made,
        "open": record.open,
        "unknown": record.unknown,
        "scored": record.bought + record.missed,
        "bought": record.bought,
        "missed": record.missed,
        "independent": record.independent,
        "calibration": [
            {"stated": bin_.stated, "reached": bin_.reached / bin_.counted, "samples": bin_.counted}
            for bin_ in record.calibration
        ],
        "saving": {
            "promised": record.promised,
            "realised": record.realised,
            "samples": record.savings,
            "within_stated_range": record.within,
            "ranges": record.ranges,
            "shrink": record.shrink,
        },
        "against_buy_now": _comparison_json(record.at_once),
        "against_fixed_median": _comparison_json(record.median),
        "optimal_stopping_against_fixed_median": _comparison_json(record.optimised)
        | {"independent": record.optimised_independent, "trusted": record.trusts_optimal_stopping},
    }


def _comparison_json(comparison: PriceComparison) -> dict[str, Any]:
    return {"saved": comparison.saved, "samples": comparison.counted}
