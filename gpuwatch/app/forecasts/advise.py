"""Wait or buy: advice from the recorded prices of a part of the market and the lifetimes of its offers."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.forecasts.scores import advice_record, record_json
from gpuwatch.app.history.past_prices import GpuPrices, load_gpu_prices, pricer
from gpuwatch.bootstrap import new_id, open_store
from gpuwatch.bootstrap.rules import all_commissions
from gpuwatch.domain.forecasts.advice import LEAST_SAVING, BuyVerdict, advise, why_too_little_data
from gpuwatch.domain.forecasts.optimal_stopping import METHOD
from gpuwatch.domain.forecasts.price_forecasts import ForecastSource, PriceForecast
from gpuwatch.domain.forecasts.snipe import SNIPE_METHOD_TEXT, offer_lifetimes, snipe_odds
from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.history.price_series import (
    known_until,
    on_own_step,
    series_of,
    step_name,
)
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.domain.market.money import dollars, per_gpu_hour
from gpuwatch.domain.setup.durations import HOUR_S, format_duration
from gpuwatch.errors import UsageError
from gpuwatch.storage.forecasts.forecast_rows import SqlForecasts

if TYPE_CHECKING:
    from gpuwatch.domain.forecasts.advice import Advice
    from gpuwatch.domain.forecasts.price_forecasts import ForecastRecord
    from gpuwatch.domain.forecasts.snipe import SnipeOdds
    from gpuwatch.domain.history.market_history import MarketFilter
    from gpuwatch.domain.history.price_series import PriceSeries
    from gpuwatch.settings import Settings

_MICRO = 1e6
_HALF_CENT = 0.005


class AdviceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request."""

    gpu: str
    scope: MarketFilter  # without GPUs: they come from `gpu`
    since: datetime
    until: datetime
    data: Path | None
    deadline_s: float
    job_hours: float  # for the saving in dollars
    under_usd: float | None  # for the odds; None: the price that most starts reached before the deadline
    poll_every_s: float | None  # None: as configured
    is_until_now: bool  # False: "now" is the end of the period
    record: bool = False  # store the forecast, to be scored when it is due

    @property
    def hours(self) -> int:
        """Whole hours until the deadline."""
        return max(1, int(self.deadline_s // 3600))


class AdviceResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result."""

    gpus: tuple[str, ...]
    advice: Advice | None
    why_none: str | None
    snipe: SnipeOdds | None
    under_usd: float | None
    since: datetime | None  # the first polled hour
    until: datetime | None
    source: str
    past: ForecastRecord | None = None  # the outcomes of earlier forecasts of `advise`; None: there are none
    recorded: str | None = None  # the id of the stored forecast


def _without_stale_price(advice: Advice, age_s: float) -> Advice:
    """Drop the current price, because old prices do not show it. The limits stay valid."""
    if age_s <= (COVERAGE_S if advice.step_h == 1 else advice.step_h * HOUR_S):
        return advice
    reason = f"the newest poll is {format_duration(age_s // 3600 * 3600)} old: the current price is unknown"
    return msgspec.structs.replace(advice, now_usd=None, verdict=BuyVerdict.WAIT, why=reason)


def give_advice(settings: Settings, request: AdviceRequest, prices: GpuPrices | None = None) -> AdviceResult:
    """Compute the advice, and store the forecast if requested.

    Args:
        prices: of this GPU and period, if they are already read.

    Raises:
        UsageError: no GPU has this name, the file cannot be used, or a forecast to be stored is not about now.
        StoreError: the store cannot be read or written.
    """
    if request.record and (request.data is not None or not request.is_until_now):
        raise UsageError("--record stores a forecast from now on: omit --data and --until")
    if prices is None:
        prices = load_gpu_prices(settings, request.gpu, request.scope, request.since, request.until, request.data)
    scope, market_history = prices.scope, prices.history
    price = pricer(settings, market_history)
    hourly = known_until(series_of(market_history, price), request.until)
    series = on_own_step(hourly)
    why_none = why_too_little_data(series, request.hours)
    past = advice_record(settings, request.until) if request.data is None else None
    advice = None if why_none else advise(series, request.hours, past)
    if advice is not None and request.data is None and request.is_until_now:
        advice = _without_stale_price(advice, request.until.timestamp() - (market_history.ends_s or 0))
    under = request.under_usd
    if under is None and advice is not None:
        under = advice.reached[1][1]
    max_microusd = None if under is None else under * _MICRO + 0.5
    lifetimes = [] if max_microusd is None else offer_lifetimes(market_history, max_microusd, price)
    every_s = request.poll_every_s or _configured_s(settings, scope.provider)
    return AdviceResult(
        gpus=scope.gpus or (),
        advice=advice,
        why_none=why_none,
        snipe=snipe_odds(lifetimes, market_history, every_s),
        under_usd=under,
        since=hourly.starts_at(0) if len(hourly.lows) else None,
        until=hourly.starts_at(len(hourly.lows)) if len(hourly.lows) else None,
        source=series.source,
        past=past,
        recorded=_store_forecast(settings, request, scope, advice) if request.record and advice is not None else None,
    )


def advice_on(settings: Settings, series: PriceSeries, hours: int, now: datetime) -> tuple[Advice | None, str | None]:
    """The advice from hourly prices up to now, or why there is none. Raises StoreError."""
    own = on_own_step(known_until(series, now))
    why_none = why_too_little_data(own, hours)
    return (None if why_none else advise(own, hours, advice_record(settings, now))), why_none


def _store_forecast(settings: Settings, request: AdviceRequest, scope: MarketFilter, advice: Advice) -> str:
    forecast = forecast_of(advice, scope, request.until, new_id())
    with open_store(settings) as store:
        SqlForecasts(store, all_commissions(settings)).add(forecast)
    return forecast.forecast_id


def forecast_of(advice: Advice, scope: MarketFilter, now: datetime, forecast_id: str) -> PriceForecast:
    """The forecast in the advice, to be scored later."""
    saving = advice.saving if advice.verdict is BuyVerdict.WAIT else None
    return PriceForecast(
        forecast_id=forecast_id,
        source=ForecastSource.ADVISE,
        made_at=now,
        due_at=now + timedelta(hours=advice.hours),
        scope=scope,
        watch=None,
        rule=advice.rule.value,
        verdict=advice.verdict.value,
        now_usd=advice.now_usd,
        limits_usd=advice.limits_usd,
        median_usd=advice.median_usd,
        reached=advice.reached,
        saving_share=saving.share if saving else None,
        saving_low=saving.low if saving else None,
        saving_high=saving.high if saving else None,
        step_h=advice.step_h,
    )


def _configured_s(settings: Settings, provider: str | None) -> float:
    """The shortest poll interval of these providers."""
    provider_options = [
        options for name, options in settings.providers.items() if provider is None or provider.startswith(name)
    ]
    return min((options.poll_every_s for options in provider_options), default=30.0)


def advice_sentence(request: AdviceRequest, answered: AdviceResult) -> str:
    """The advice in one plain sentence."""
    advice = answered.advice
    if advice is None:
        return f"Cannot tell: not enough data in {answered.source}: {answered.why_none}."
    within, saving, now = format_duration(request.hours * 3600), advice.saving, advice.now_usd
    limit = "any price" if advice.limit_usd is None else per_gpu_hour(advice.limit_usd)
    saved = None if saving is None or now is None else max(0.0, now * saving.share * request.job_hours)
    amount = "" if saved is None else f"about {dollars(saved)} a GPU" if saved >= _HALF_CENT else "almost nothing"
    if advice.verdict is BuyVerdict.WAIT and now is None:
        return f"Wait for an offer at or under {limit}: {advice.why}."
    if advice.verdict is BuyVerdict.WAIT:
        return f"Wait for {limit} or less: waiting up to {within} saves {amount}."
    if now is not None and advice.limit_usd is not None and now <= advice.limit_usd:
        return f"Buy now: {per_gpu_hour(now)} is as low as it is worth waiting for."
    if amount and advice.verdict is BuyVerdict.EITHER:
        return f"Your call: waiting up to {within} saves {amount}, but that may be chance."
    if amount and saving is not None and 0 <= saving.share < LEAST_SAVING:
        return f"Buy now: waiting up to {within} saves {amount}, less than the risk."
    return f"{'Your call' if advice.verdict is BuyVerdict.EITHER else 'Buy now'}: {advice.why}."


def advice_json(request: AdviceRequest, answered: AdviceResult) -> dict[str, Any]:
    advice = answered.advice
    return {
        "gpu": request.gpu,
        "verified": request.scope.verified,
        "deadline_hours": request.hours,
        "step": step_name(advice.step_h) if advice else None,
        "judged_hours": advice.hours if advice else None,
        "enough_data": advice is not None,
        "why": advice.why if advice else answered.why_none,
        "sentence": advice_sentence(request, answered),
        "verdict": advice.verdict.value if advice else None,
        "now_usd_gpu_hour": advice.now_usd if advice else None,
        "limit_usd_gpu_hour": advice.limit_usd if advice else None,
        "limits": _limits_json(advice),
        "reached": _reached_json(advice),
        "saving": _saving_json(advice, request.job_hours),
        "rule": advice.rule.value if advice else None,
        "reached_starts": advice.reached_starts if advice else 0,
        "follows_median_of_week": advice.relative if advice else None,
        "snipe": _snipe_json(answered),
        "source": answered.source,
        "method": METHOD,
        "samples": advice.known_hours if advice else 0,
        "since": rfc3339(answered.since),
        "until": rfc3339(answered.until),
        "record": None if answered.past is None else record_json(answered.past),
        "forecast_id": answered.recorded,
    }


def _limits_json(advice: Advice | None) -> list[dict[str, Any]]:
    if advice is None:
        return []
    limits = [
        {"hours_left": left * advice.step_h, "limit_usd_gpu_hour": limit}
        for left, limit in enumerate(advice.limits_usd)
    ]
    return limits[::-1]


def _reached_json(advice: Advice | None) -> list[dict[str, Any]]:
    reached = advice.reached if advice else ()
    return [{"share": share, "price_usd_gpu_hour": price} for share, price in reached]


def _saving_json(advice: Advice | None, hours: float) -> dict[str, Any] | None:
    saving = advice.saving if advice else None
    if advice is None or saving is None:
        return None
    return {
        "share": saving.share,
        "share_low": saving.low,
        "share_high": saving.high,
        "mean_low": saving.mean_low,
        "mean_high": saving.mean_high,
        "saving_usd": None if advice.now_usd is None else advice.now_usd * saving.share * hours,
        "job_hours": hours,
        "starts": saving.starts,
        "samples": saving.hours,
        "bought": saving.hours - saving.missed,
        "missed": saving.missed,
        "unknown": saving.unknown,
        "days": saving.days,
        "assumed": "a miss pays the next offer, or the highest price if none came; every offer seen could be rented",
        "method": (
            "out of sample (rolling origin), of waits begun at prices near the price now; share_low and share_high: "
            "95 % of single waits; mean_low and mean_high: circular block bootstrap over days (Politis and Romano)"
        ),
    }


def _snipe_json(answered: AdviceResult) -> dict[str, Any] | None:
    snipe = answered.snipe
    if snipe is None:
        return None
    return {
        "under_usd_gpu_hour": answered.under_usd,
        "samples": snipe.lifetimes,
        "ended": snipe.ended,
        "a_day": snipe.a_day,
        "median_life_s": snipe.median_s,
        "median_life_low_s": snipe.median_interval_s[0],
        "median_life_high_s": snipe.median_interval_s[1],
        "looks_apart_s": snipe.poll_spacing_s,
        "odds": [
            {
                "poll_every_s": odds.every_s,
                "chance": odds.chance,
                "chance_low": odds.chance_low,
                "chance_high": odds.chance_high,
                "seen_a_day": odds.a_day,
            }
            for odds in snipe.odds
        ],
        "method": SNIPE_METHOD_TEXT,
    }
