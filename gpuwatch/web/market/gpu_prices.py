"""The contents of a GPU's page. Loads numpy: 12 MB that a daemon needs only once the page is opened."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from gpuwatch.app.forecasts.advise import AdviceRequest, AdviceResult, give_advice
from gpuwatch.app.forecasts.calendar import (
    DAYS,
    CalendarRequest,
    daily_hours_text,
    effect_text,
    percent_above_median,
    price_calendar,
)
from gpuwatch.app.history.past_prices import GpuPrices, load_gpu_prices
from gpuwatch.app.history.period_view import PeriodView
from gpuwatch.app.history.price_history import PriceHistoryRequest, period_views, price_history
from gpuwatch.app.market.market import MarketRequest, age_text_of, market_overview
from gpuwatch.domain.forecasts.week_effects import default_parts
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.market.figure_text import decimal_text
from gpuwatch.errors import StoreNotReady, UsageError
from gpuwatch.web.page import View

_DAYS = {"1d": 1, "7d": 7, "30d": 30, "90d": 90}
_SPOTS = {"no": False, "only": True, "any": None}
_STEPS = 5  # shades of the heat map on each side of the median


def gpu_prices(view: View) -> Mapping[str, Any]:
    """Return the values of its template. Raises UsageError (no such GPU), StoreError."""
    gpu = view.path["name"]
    since, spot = view.choice("since", _DAYS, "7d"), view.choice("spot", _SPOTS, "no")
    period: dict[str, Any] = {
        "scope": MarketFilter(spot=_SPOTS[spot]),
        "since": view.now - timedelta(days=_DAYS[since]),
        "until": view.now.replace(microsecond=0) + timedelta(seconds=1),
        "data": None,
    }
    zone = ZoneInfo(view.settings.timezone)
    history = price_history(
        view.settings,
        PriceHistoryRequest(gpu=gpu, zone=zone, every=None, is_for_programs=False, under_usd=(), **period),
    )
    points = period_views(history)
    while points and not points[0].looked:
        points.pop(0)
    prices = load_gpu_prices(view.settings, gpu, **period)
    return {
        "gpu": gpu,
        "since": since,
        "spot": spot,
        "sinces": list(_DAYS),
        "points": points,
        "chart": _chart(points),
        "status": _status(view, gpu, period),
        "calendar": _calendar(view, gpu, period, prices),
        "advice": _advice(view, gpu, period, prices),
    }


def _chart(points: list[PeriodView]) -> dict[str, Any]:
    """Return series for the chart: a gap is null, so that no line crosses it."""
    names = ("min", "q1", "median", "q3")
    return {
        "x": [int(point.starts_at.timestamp()) for point in points],
        "series": [
            {"label": label, "values": [getattr(point, f"{name}_price_usd_gpu_hour") for point in points]}
            for name, label in zip(names, ("lowest", "25 %", "median", "75 %"), strict=True)
        ],
        "unit": "USD per GPU-hour",
    }


def _status(view: View, gpu: str, period: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the price, changes, rank and lifetimes of each model with that name, and the age of an old price."""
    rows = market_overview(view.settings, MarketRequest(gpus=(gpu,), under_usd=None, **period)).rows
    return [
        {
            "status": row,
            "polled_at": datetime.fromtimestamp(row.polled_s, UTC),
            "age": age_text_of(view.settings, row, view.now),
        }
        for row in rows
    ]


def _calendar(view: View, gpu: str, period: Mapping[str, Any], prices: GpuPrices) -> dict[str, Any] | None:
    try:
        request = CalendarRequest(gpu=gpu, zone=view.settings.timezone, parts=default_parts(), **period)
        result = price_calendar(view.settings, request, prices)
    except (UsageError, StoreNotReady):
        return None
    calendar = result.calendar
    cells = {(cell.weekday, cell.hour): percent_above_median(cell, calendar) for cell in calendar.cells}
    return {
        "rows": [(DAYS[day], [_cell(cells.get((day, hour))) for hour in range(24)]) for day in range(7)],
        "effects": [f"{effect.name}: {effect_text(effect)}" for effect in calendar.effects]
        + [daily_hours_text(calendar)],
        "hours": calendar.hours,
    }


def _cell(percent: float | None) -> tuple[str, str]:
    """Return text and shade of one hour: the shade is a class, because the policy forbids inline styles."""
    if percent is None:
        return "", "none"
    step = max(-_STEPS, min(_STEPS, round(percent / 4)))
    return decimal_text(percent, 0, "+"), f"{'m' if step < 0 else 'p'}{abs(step)}"


def _advice(view: View, gpu: str, period: Mapping[str, Any], prices: GpuPrices) -> AdviceResult | None:
    request = AdviceRequest(
        gpu=gpu, deadline_s=86_400.0, job_hours=24.0, under_usd=None, poll_every_s=None, is_until_now=True, **period
    )
    try:
        return give_advice(view.settings, request, prices)
    except (UsageError, StoreNotReady):
        return None
