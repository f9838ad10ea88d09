"""Forecast of the month by two methods; of each budget, what is used and what will be. Whole micro-dollars. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import msgspec

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.money.launch_costs import (
    LaunchCost,
    burn_rate,
    is_billed_since,
    midnight,
    month_of,
    predicted_cost,
    remaining_cost,
    total_cost,
)
from gpuwatch.domain.market.money import microusd
from gpuwatch.domain.watches.launch_spec import Budget

LEAST_DAYS = 3  # a mean of fewer days is meaningless
_DAY = timedelta(days=1)
_MS = timedelta(milliseconds=1)


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted cost of the whole month (UTC), without traffic. `mean_*` is None if there is too little data."""

    month_end: datetime
    running_listed: int  # running launches continue, at most to max_runtime; no new ones
    running_effective: int
    mean_listed: int | None  # each remaining day costs the mean of the days so far
    mean_effective: int | None
    sample_days: float  # the days so far, counted from the first launch if that was this month

    @property
    def likely_effective(self) -> int:
        """Return the mean's forecast, but no less than what runs will cost."""
        return max(self.running_effective, self.mean_effective or 0)


class BudgetUse(msgspec.Struct, frozen=True, kw_only=True):
    """One limit, how much of it is used, and how much will be at the end of its day or month.

    Attributes:
        watch: None: the budget over all launches.
        limit_name: max_usd_hour, max_usd_day or max_usd_month.
        used: since the day or month began; of an hourly limit, the current rate.
        ends_at: when the day or month is over, at midnight UTC; None: an hourly limit, or a past month.
        forecast_running: if what runs goes on at its current price until its own end, and nothing new is rented; only
            of a current day or month.
        forecast_mean: if each day that is left costs the mean of the days so far; only of the current month.
    """

    watch: str | None
    limit_name: str
    limit: int
    used: int
    ends_at: datetime | None = None
    forecast_running: int | None = None
    forecast_mean: int | None = None

    def percent(self, amount: int | None) -> float | None:
        """Return the used percentage of the limit; None if it does not apply."""
        return None if amount is None or not self.limit else 100 * amount / self.limit


def forecast_costs(launches: Sequence[Launch], now: datetime, began: datetime | None = None) -> Forecast:
    """Return the forecast for these launches to the end of the month of `now`.

    Args:
        launches: at least those that cost something this month; with all of them, the result is the same.
        began: when the first launch of all was ordered, which need not be among them; None: it is.
    """
    first, end = month_of(now.astimezone(UTC).date())
    spent = spent_since(launches, first, now)
    to_come = [remaining_cost(launch, now, end) for launch in launches]
    sample_days = (
        now - max(first, midnight(began.astimezone(UTC).date()) if began else _begin(launches, first))
    ) / _DAY
    factor = None
    if sample_days >= LEAST_DAYS:
        factor = 1 + Fraction((end - now) / _DAY) / Fraction(sample_days)
    return Forecast(
        month_end=end,
        running_listed=spent.listed + sum(listed for listed, _ in to_come),
        running_effective=spent.effective + sum(effective for _, effective in to_come),
        mean_listed=None if factor is None else round(spent.listed * factor),
        mean_effective=None if factor is None else round(spent.effective * factor),
        sample_days=sample_days,
    )


def forecast_days(launches: Sequence[Launch], now: datetime, ahead: Forecast) -> dict[date, int]:
    """Return what each day from today to the end of the month still costs by the forecast, in micro-dollars.

    By the mean of the days so far, and no less than what runs; with what is spent, the days add up to the likely cost.
    """
    today, left = midnight(now.astimezone(UTC).date()), ahead.month_end - now
    to_come = None
    if ahead.mean_effective is not None:
        to_come = ahead.mean_effective - spent_since(launches, today.replace(day=1), now).effective
    found, before, end = {}, 0, today
    while end < ahead.month_end:
        day, end = end.date(), end + _DAY
        so_far = sum(remaining_cost(launch, now, end)[1] for launch in launches)
        if to_come is not None:
            so_far = max(so_far, round(to_come * Fraction((end - now) // _MS, left // _MS)))
        found[day], before = so_far - before, so_far
    return found


def _begin(launches: Iterable[Launch], first: datetime) -> datetime:
    """The day of the first launch; earlier days do not predict anything."""
    began = [launch.requested_at for launch in launches if launch.requested_at is not None and not launch.dry_run]
    return midnight(min(began).astimezone(UTC).date()) if began else first


def budget_uses(
    watch: str | None, budget: Budget, launches: Sequence[Launch], now: datetime, began: datetime | None = None
) -> list[BudgetUse]:
    """Return each limit that is set and the amount that these launches use, with commission, as in admission.

    Args:
        began: as in `forecast_costs`.
    """
    today = midnight(now.astimezone(UTC).date())
    found = []
    if budget.max_usd_hour is not None:
        rate = burn_rate(launches, now).effective
        found.append(BudgetUse(watch=watch, limit_name="max_usd_hour", limit=microusd(budget.max_usd_hour), used=rate))
    if budget.max_usd_day is not None:
        used, tomorrow = spent_since(launches, today, now).effective, today + _DAY
        found.append(
            BudgetUse(
                watch=watch,
                limit_name="max_usd_day",
                limit=microusd(budget.max_usd_day),
                used=used,
                ends_at=tomorrow,
                forecast_running=used + sum(remaining_cost(launch, now, tomorrow)[1] for launch in launches),
            )
        )
    if budget.max_usd_month is not None:
        ahead = forecast_costs(launches, now, began)
        found.append(
            BudgetUse(
                watch=watch,
                limit_name="max_usd_month",
                limit=microusd(budget.max_usd_month),
                used=spent_since(launches, today.replace(day=1), now).effective,
                ends_at=ahead.month_end,
                forecast_running=ahead.running_effective,
                forecast_mean=ahead.mean_effective,
            )
        )
    return found


def past_uses(
    watch: str | None, budget: Budget, launches: Iterable[Launch], first: datetime, now: datetime
) -> list[BudgetUse]:
    """Return the monthly limit and the amount used by these launches in the whole month that begins at `first`."""
    if budget.max_usd_month is None:
        return []
    end = month_of(first.date())[1]
    used = total_cost(predicted_cost(launch, now, first, end) for launch in launches).effective
    return [BudgetUse(watch=watch, limit_name="max_usd_month", limit=microusd(budget.max_usd_month), used=used)]


def spent_since(launches: Iterable[Launch], since: datetime, now: datetime) -> LaunchCost:
    """Return the cost of these launches since then."""
    billed = (launch for launch in launches if is_billed_since(launch, since, now))
    return total_cost(predicted_cost(launch, now, since) for launch in billed)
