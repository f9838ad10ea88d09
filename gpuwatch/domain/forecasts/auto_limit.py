"""`max_price = "auto"`: the current limit from the price history and the time left, never above the cap. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from statistics import median

import msgspec

from gpuwatch.domain.history.price_series import PriceSeries
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.domain.watches.watch import AutoPrice

MAX_HOURS = 30 * 24
_STEP = Decimal("0.0001")  # limits are rounded up to it, so that a historical price stays under its own limit


class LimitSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """Limits in dollars per GPU-hour; index: whole hours left. None: any price. Empty: see `why_none`.

    `median_usd`: the limit of the fixed-median rule; `rule`: the name of the rule in use; `is_simple`: the record of
    earlier forecasts allowed only the simple rules.
    """

    limits_usd: tuple[float | None, ...] = ()
    why_none: str | None = None
    rule: str = ""
    median_usd: float | None = None
    is_simple: bool = False


def deadline_of(auto: AutoPrice, since: datetime) -> datetime:
    """The time by which the watch must have rented."""
    return auto.deadline_at or since + timedelta(seconds=auto.deadline_s or 0.0)


def limit_schedule(
    series: PriceSeries, auto: AutoPrice, deadline: datetime, now: datetime, *, is_simple: bool = False
) -> LimitSchedule:
    """The limits from now to the deadline, as far ahead as the history allows.

    Args:
        is_simple: consider only the simple rules (`chosen_rule`).
    """
    # numpy adds 16 MB and 80 ms to a daemon, and most daemons have no watch with an automatic limit
    from gpuwatch.domain.forecasts.advice import MIN_DEADLINES, limits_now, why_too_little_data  # noqa: PLC0415
    from gpuwatch.domain.forecasts.optimal_stopping import chosen_rule, price_path_of  # noqa: PLC0415

    hours = min(whole_hours_left(deadline, now) + 1, MAX_HOURS, max(1, len(series.polled) // MIN_DEADLINES))
    why_none = why_too_little_data(series, hours)
    if why_none:
        return LimitSchedule(why_none=why_none)
    cap, path = float(auto.cap_usd_gpu_hour), price_path_of(series)
    found = chosen_rule(path, hours, cap, cap, is_simple=is_simple)
    known = sorted(low / 1e6 for low in series.lows if low is not None and low / 1e6 <= cap)
    return LimitSchedule(
        limits_usd=limits_now(path, found),
        rule=found.kind.value,
        median_usd=median(known) if known else None,
        is_simple=is_simple,
    )


def limit_at(found: LimitSchedule, auto: AutoPrice, deadline: datetime, now: datetime) -> Decimal:
    """The current limit: the cap in the last hour, after the deadline, and without enough history."""
    if now >= deadline or not found.limits_usd:
        return auto.cap_usd_gpu_hour
    limit = found.limits_usd[min(whole_hours_left(deadline, now), len(found.limits_usd) - 1)]
    if limit is None:
        return auto.cap_usd_gpu_hour
    return min(auto.cap_usd_gpu_hour, Decimal(repr(limit)).quantize(_STEP, ROUND_CEILING))


def whole_hours_left(deadline: datetime, now: datetime) -> int:
    """Whole hours until the deadline."""
    return max(0, int((deadline - now).total_seconds() // HOUR_S))
