"""`gpuwatch calendar`: the lowest price by hour of the week, and which effects are proven."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.app.past_prices import known_gpu_names_of, load_hourly_lows
from gpuwatch.domain.analysis.calendar import (
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
from gpuwatch.domain.market.json_values import rfc3339
from gpuwatch.domain.market.money import usd_number

if TYPE_CHECKING:
    from gpuwatch.domain.analysis.calendar import WeekPart
    from gpuwatch.domain.analysis.market_history import MarketFilter
    from gpuwatch.domain.analysis.price_series import PriceSeries
    from gpuwatch.domain.analysis.week_patterns import HourOfWeekPrice
    from gpuwatch.settings import Settings

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
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
    found: Calendar


def price_calendar(settings: Settings, request: CalendarRequest) -> PriceCalendar:
    """Compute the calendar. Raises UsageError, StoreError."""
    scope = msgspec.structs.replace(request.scope, gpus=known_gpu_names_of(settings, request.gpu, request.data))
    series = load_hourly_lows(settings, scope, request.since, request.until, request.data)
    calendar = calendar_of(series, ZoneInfo(request.zone), request.parts)
    return PriceCalendar(zone=request.zone, gpus=scope.gpus, series=series, found=calendar)


# --- text -------------------------------------------------------------------------------------------------------------


def effect_text(effect: CalendarEffect) -> str:
    """An effect as text."""
    if effect.verdict is EffectVerdict.NOT_ENOUGH:
        return (
            f"not enough data: {effect.needed} {effect.sample} with a price in three of four hours are required, "
            f"{effect.samples} available"
        )
    size, low, high = (each or 0.0 for each in (effect.cheaper_percent, effect.low_percent, effect.high_percent))
    if effect.verdict is EffectVerdict.CHEAPER:
        interval = f"{percent_text(low)} to {percent_text(high)}"
        return f"cheaper by {percent_text(size)} ({interval}){_against_claim(effect.name, low, high)}"
    if effect.verdict is EffectVerdict.DEARER:
        return f"more expensive by {percent_text(-size)} ({percent_text(-high)} to {percent_text(-low)})"
    would = (
        f"; {percent_text(effect.detectable_percent)} would probably be detected" if effect.detectable_percent else ""
    )
    return (
        f"no effect: {percent_text(low)} to {percent_text(high)} cheaper{_against_claim(effect.name, low, high)}{would}"
    )


def _against_claim(name: str, low: float, high: float) -> str:
    """Compare the result with the 30–40 % that guides promise for nights and weekends."""
    least, most = CLAIMED_PERCENT
    if name not in _CLAIMED:
        return ""
    if high < least:
        return f", less than the {least}–{most} % that guides claim"
    return f", as guides claim ({least}–{most} %)" if low >= least else f"; {least}–{most} % cannot be ruled out"


def hours_text(found: Calendar) -> str:
    effect = found.any_hour
    if effect.verdict is not EffectVerdict.VARIES:
        return (
            effect_text(effect)
            if effect.verdict is EffectVerdict.NOT_ENOUGH
            else "no hour differs from the rest of its day"
        )
    words = [_stretch(hours) for hours in _runs(found.by_hour) if hours[0].verdict is not EffectVerdict.NO_EFFECT]
    return f"these hours differ from the rest of their day: {', '.join(words)}"


def _runs(by_hour: Sequence[HourEffect]) -> list[list[HourEffect]]:
    """Consecutive hours with the same verdict; midnight does not separate them."""
    runs = [list(hours) for _, hours in groupby(by_hour, key=lambda one: one.verdict)]
    if len(runs) > 1 and runs[0][0].verdict is runs[-1][0].verdict:
        runs[0] = runs.pop() + runs[0]
    return runs


def _stretch(hours: Sequence[HourEffect]) -> str:
    mean = sum(one.cheaper_percent for one in hours) / len(hours)
    span = f"{hours[0].hour:02}:00-{(hours[-1].hour + 1) % 24:02}:00"
    return f"{span} {hours[0].verdict.value} by {percent_text(abs(mean))}"


def percent_text(amount: float) -> str:
    return f"{amount:.1f} %".replace("-0.0", "0.0").replace("-", "−")


def percent_of(cell: HourOfWeekPrice, found: Calendar) -> float | None:
    """The difference between an hour's median and the median of all hours."""
    if cell.median_microusd is None or not found.median_microusd:
        return None
    return 100 * (cell.median_microusd / found.median_microusd - 1)


# --- JSON -------------------------------------------------------------------------------------------------------------


def calendar_json(shown: PriceCalendar, gpu: str) -> dict[str, Any]:
    """The calendar as JSON."""
    found = shown.found
    return {
        "gpu": gpu,
        "zone": shown.zone,
        "source": shown.series.source,
        "since": rfc3339(found.since),
        "until": rfc3339(found.until),
        "samples": found.hours,
        "hours_looked": found.hours_polled,
        "price_changes": found.changes,
        "median_price_usd_gpu_hour": _whole_usd(found.median_microusd),
        "method": METHOD,
        "hours_method": HOURS_METHOD,
        "comparisons": found.comparisons,
        "correction": "Holm",
        "alpha": ALPHA,
        "claimed_percent": list(CLAIMED_PERCENT),
        "effects": [_effect_json(one) for one in found.effects],
        "any_hour": _effect_json(found.any_hour),
        "by_hour": [
            {
                "hour": one.hour,
                "cheaper_percent": one.cheaper_percent,
                "p_adjusted": one.p_adjusted,
                "verdict": one.verdict.value,
            }
            for one in found.by_hour
        ],
        "cells": [cell_json(cell, found) for cell in found.cells],
    }


def _effect_json(effect: CalendarEffect) -> dict[str, Any]:
    return msgspec.structs.asdict(effect) | {"verdict": effect.verdict.value, "text": effect_text(effect)}


def cell_json(cell: HourOfWeekPrice, found: Calendar) -> dict[str, Any]:
    return {
        "weekday": DAYS[cell.weekday],
        "hour": cell.hour,
        "median_price_usd_gpu_hour": _whole_usd(cell.median_microusd),
        "low_price_usd_gpu_hour": _whole_usd(cell.low_microusd),
        "high_price_usd_gpu_hour": _whole_usd(cell.high_microusd),
        "against_median_percent": percent_of(cell, found),
        "weeks": cell.weeks,
    }


def _whole_usd(microusd: float | None) -> float | None:
    return None if microusd is None else usd_number(round(microusd))
