"""`max_price = "auto"`: the limit of this moment, out of the history and the time that is left. Never above the cap."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal

import msgspec

from gpuwatch.analysis.advice import LEAST_DEADLINES, limits_now, too_little
from gpuwatch.analysis.series import PriceSeries
from gpuwatch.analysis.waiting import best_rule, path_of
from gpuwatch.watches.watch import AutoPrice

MOST_HOURS = 30 * 24
_STEP = Decimal("0.0001")  # a limit is rounded up to it: a price that the history holds is under its own limit
_HOUR_S = 3600.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Limits in dollars per GPU-hour by whole hours left, from 0; None: whatever there is. Empty: see `why_none`."""

    limits_usd: tuple[float | None, ...] = ()
    why_none: str | None = None


def deadline_of(auto: AutoPrice, since: datetime) -> datetime:
    """When one must be had."""
    return auto.deadline_at or since + timedelta(seconds=auto.deadline_s or 0.0)


def plan(series: PriceSeries, auto: AutoPrice, deadline: datetime, now: datetime) -> Plan:
    """The limits from now to the deadline, as far ahead as the history allows."""
    hours = min(hours_left(deadline, now) + 1, MOST_HOURS, max(1, len(series.looked) // LEAST_DEADLINES))
    why_none = too_little(series, hours)
    if why_none:
        return Plan(why_none=why_none)
    cap, path = float(auto.cap_usd_gpu_hour), path_of(series)
    return Plan(limits_usd=limits_now(path, best_rule(path, hours, miss=cap, cap=cap)))


def limit_at(found: Plan, auto: AutoPrice, deadline: datetime, now: datetime) -> Decimal:
    """What is paid at most at this moment: the cap in the last hour, after it, and where the history is not enough."""
    if now >= deadline or not found.limits_usd:
        return auto.cap_usd_gpu_hour
    limit = found.limits_usd[min(hours_left(deadline, now), len(found.limits_usd) - 1)]
    if limit is None:
        return auto.cap_usd_gpu_hour
    return min(auto.cap_usd_gpu_hour, Decimal(repr(limit)).quantize(_STEP, ROUND_CEILING))


def hours_left(deadline: datetime, now: datetime) -> int:
    """Whole ones."""
    return max(0, int((deadline - now).total_seconds() // _HOUR_S))
