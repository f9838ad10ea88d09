"""`gpuwatch forecasts calendar`: the lowest price by hour of the week, and which effects are proven."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.app.history.past_prices import GpuPrices, hourly_lows, load_gpu_prices
from gpuwatch.domain.forecasts.week_effects import (
    ALPHA,
    CLAIMED_PERCENT,
    HOURS_METHOD,
    METHOD,
    Calendar,
    CalendarEffect,
    EffectVerdict,
    HourEffect,
    calendar_of,
)
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.json_view import rfc3339, usd_number

if TYPE_CHECKING:
    from gpuwatch.domain.forecasts.week_effects import WeekPart
    from gpuwatch.domain.forecasts.week_patterns import HourOfWeekPrice
    from gpuwatch.domain.history.market_history import MarketFilter
    from gpuwatch.domain.history.price_series import PriceSeries
    from gpuwatch.settings import Settings

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_PROVEN = frozenset({EffectVerdict.CHEAPER, EffectVerdict.DEARER, EffectVerdict.VARIES})
_CLAIMED = {"off-peak", "night", "weekend"}  # guides promise a saving in these


class CalendarRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The prices, the time zone, and the parts of the week."""

    gpu: str
    scope: MarketFilter
    since: datetime
    until: datetime
    data: Path | None
    zone: str
    parts: Sequence[WeekPart]


class PriceCalendar(msgspec.Struct, frozen=True, kw_only=True):
    """A calendar and the prices it is computed from."""

    zone: str
    gpus: tuple[str, ...] | None
    series: PriceSeries
    calendar: Calendar


def price_calendar(settings: Settings, request: CalendarRequest, prices: GpuPrices | None = None) -> PriceCalendar:
    """Compute the calendar. Raises UsageError, StoreError.

    Args:
        prices: of this GPU and period, if they are already read.
    """
    if prices is None:
        prices = load_gpu_prices(settings, request.gpu, request.scope, request.since, request.until, request.data)
    zone = ZoneInfo(request.zone)
    series = hourly_lows(settings, prices.history, request.until, zone)
    calendar = calendar_of(series, zone, request.parts)
    if calendar.until is not None:  # the newest hour is not over
        calendar = msgspec.structs.replace(calendar, until=min(calendar.until, request.until))
    return PriceCalendar(zone=request.zone, gpus=prices.scope.gpus, series=series, calendar=calendar)


# --- text -------------------------------------------------------------------------------------------------------------


def calendar_sentence(gpu: str, calendar: Calendar) -> str:
    """The answer in one plain sentence."""
    effects = (*calendar.effects, calendar.any_hour)
    proven = [_proven(effect, calendar) for effect in effects if effect.verdict in _PROVEN]
    if proven:
        return f"{gpu} has cheaper hours: {'; '.join(proven)}."
    tested = [effect for effect in effects if effect.verdict is not EffectVerdict.NOT_ENOUGH]
    if not tested:
        return f"Cannot tell whether {gpu} has cheaper hours: the history is too short."
    names = " and ".join("hours of the day" if effect is calendar.any_hour else effect.name for effect in tested)
    untold = len(effects) - len(tested)
    rest = f"; too little history for {count_text(untold, 'other part')} of the week" if untold else ""
    return f"{gpu} has no hours that are shown to be cheaper ({names}: no effect{rest})."


def _proven(effect: CalendarEffect, calendar: Calendar) -> str:
    if effect is calendar.any_hour:
        return daily_hours_text(calendar)
    word = "cheaper" if effect.verdict is EffectVerdict.CHEAPER else "more expensive"
    return f"{effect.name} ({effect.window}) is {word} by {percent_phrase(abs(effect.cheaper_percent or 0.0))}"


def effect_text(effect: CalendarEffect) -> str:
    """An effect as text."""
    if effect.verdict is EffectVerdict.NOT_ENOUGH:
        return (
            f"not enough data: {effect.needed} {effect.sample} with a price in three of four hours are required, "
            f"{effect.samples} available"
        )
    size, low, high = (each or 0.0 for each in (effect.cheaper_percent, effect.low_percent, effect.high_percent))
    if effect.verdict is EffectVerdict.CHEAPER:
        interval = f"{percent_phrase(low)} to {percent_phrase(high)}"
        return f"cheaper by {percent_phrase(size)} ({interval}){_claim_comparison(effect.name, low, high)}"
    if effect.verdict is EffectVerdict.DEARER:
        return f"more expensive by {percent_phrase(-size)} ({percent_phrase(-high)} to {percent_phrase(-low)})"
    detectable = (
        f"; {percent_phrase(effect.detectable_percent)} would probably be detected" if effect.detectable_percent else ""
    )
    claim = _claim_comparison(effect.name, low, high)
    return f"no effect: {percent_phrase(low)} to {percent_phrase(high)} cheaper{claim}{detectable}"


def _claim_comparison(name: str, low: float, high: float) -> str:
    """Compare the result with the 30–40 % that guides promise for nights and weekends."""
    claimed_min, claimed_max = CLAIMED_PERCENT
    if name not in _CLAIMED:
        return ""
    if high < claimed_min:
        return f", less than the {claimed_min}–{claimed_max} % that guides claim"
    return (
        f", as guides claim ({claimed_min}–{claimed_max} %)"
        if low >= claimed_min
        else f"; {claimed_min}–{claimed_max} % cannot be ruled out"
    )


def daily_hours_text(calendar: Calendar) -> str:
    effect = calendar.any_hour
    if effect.verdict is not EffectVerdict.VARIES:
        return (
            effect_text(effect)
            if effect.verdict is EffectVerdict.NOT_ENOUGH
            else "no hour differs from the rest of its day"
        )
    words = [
        _hours_effect_text(hours)
        for hours in _consecutive_hours(calendar.by_hour)
        if hours[0].verdict is not EffectVerdict.NO_EFFECT
    ]
    return f"these hours differ from the rest of their day: {', '.join(words)}"


def _consecutive_hours(by_hour: Sequence[HourEffect]) -> list[list[HourEffect]]:
    """Consecutive hours with the same verdict; midnight does not separate them."""
    runs = [list(hours) for _, hours in groupby(by_hour, key=lambda effect: effect.verdict)]
    if len(runs) > 1 and runs[0][0].verdict is runs[-1][0].verdict:
        runs[0] = runs.pop() + runs[0]
    return runs


def _hours_effect_text(hours: Sequence[HourEffect]) -> str:
    mean = sum(effect.cheaper_percent for effect in hours) / len(hours)
    span = f"{hours[0].hour:02}:00-{(hours[-1].hour + 1) % 24:02}:00"
    return f"{span} {hours[0].verdict.value} by {percent_phrase(abs(mean))}"


def percent_phrase(amount: float) -> str:
    return f"{amount:.1f} %".replace("-0.0", "0.0").replace("-", "−")


def percent_above_median(cell: HourOfWeekPrice, calendar: Calendar) -> float | None:
    """The difference between an hour's median and the median of all hours."""
    if cell.median_microusd is None or not calendar.median_microusd:
        return None
    return 100 * (cell.median_microusd / calendar.median_microusd - 1)


# --- JSON -------------------------------------------------------------------------------------------------------------


def calendar_json(result: PriceCalendar, gpu: str) -> dict[str, Any]:
    """The calendar as JSON."""
    calendar = result.calendar
    return {
        "gpu": gpu,
        "zone": result.zone,
        "sentence": calendar_sentence(gpu, calendar) if calendar.hours else None,
        "source": result.series.source,
        "since": rfc3339(calendar.since),
        "until": rfc3339(calendar.until),
        "samples": calendar.hours,
        "hours_looked": calendar.hours_polled,
        "price_changes": calendar.changes,
        "median_price_usd_gpu_hour": _whole_usd(calendar.median_microusd),
        "method": METHOD,
        "hours_method": HOURS_METHOD,
        "comparisons": calendar.comparisons,
        "correction": "Holm",
        "alpha": ALPHA,
        "claimed_percent": list(CLAIMED_PERCENT),
        "effects": [_effect_json(effect, effect_text(effect)) for effect in calendar.effects],
        "any_hour": _effect_json(calendar.any_hour, daily_hours_text(calendar)),
        "by_hour": [
            {
                "hour": effect.hour,
                "cheaper_percent": effect.cheaper_percent,
                "p_adjusted": effect.p_adjusted,
                "verdict": effect.verdict.value,
            }
            for effect in calendar.by_hour
        ],
        "cells": [cell_json(cell, calendar) for cell in calendar.cells],
    }


def _effect_json(effect: CalendarEffect, text: str) -> dict[str, Any]:
    return msgspec.structs.asdict(effect) | {"verdict": effect.verdict.value, "text": text}


def cell_json(cell: HourOfWeekPrice, calendar: Calendar) -> dict[str, Any]:
    return {
        "weekday": DAYS[cell.weekday],
        "hour": cell.hour,
        "median_price_usd_gpu_hour": _whole_usd(cell.median_microusd),
        "low_price_usd_gpu_hour": _whole_usd(cell.low_microusd),
        "high_price_usd_gpu_hour": _whole_usd(cell.high_microusd),
        "against_median_percent": percent_above_median(cell, calendar),
        "weeks": cell.weeks,
    }


def _whole_usd(microusd: float | None) -> float | None:
    return None if microusd is None else usd_number(round(microusd))
