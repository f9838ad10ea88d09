"""Budgets while instances run: the amount spent against the limit. Pure.

A launch is admitted on an upper bound (`budget`). Here its cost so far counts, within the budget's window: the UTC day
or month; a budget that ends launches is reached once what is left only pays until their ends are proven.
`max_usd_hour` is compared with the current hourly rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec

from gpuwatch.domain.launches.instances.end_rules import EndCause
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.launches.money.billing import billed_spans, cost_microusd, proof_time
from gpuwatch.domain.market.money import dollars, price_text
from gpuwatch.domain.market.pricing import microusd, usd
from gpuwatch.domain.watches.watch import Budget, BudgetPolicy

WARN_AT = 0.8
_HOUR = timedelta(hours=1)


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A budget limit that is reached, or nearly reached."""

    name: str  # max_usd_hour, max_usd_day, max_usd_month
    watch: str | None  # None: the budget over all launches
    window: str  # the hour, day or month, as text
    limit_microusd: int
    spent_microusd: int  # in the window; for max_usd_hour: the current hourly rate
    by_end_microusd: int  # if all launches continue until the window's end, or their own
    is_full: bool  # reached, or what is left only pays for proving the ends; False: 80 % of it is reached

    @property
    def words(self) -> str:
        """One line for a person."""
        whose = "" if self.watch is None else f" of watch {self.watch}"
        limit, spent = usd(self.limit_microusd), usd(self.spent_microusd)
        if self.name == "max_usd_hour":
            return f"{dollars(spent)} an hour ({self.name} = {price_text(limit)}{whose})"
        return f"{dollars(spent)} spent in {self.window} ({self.name} = {price_text(limit)}{whose})"


def budget_statuses(
    alive: Sequence[Launch], ended: Sequence[Launch], budget: Budget, now: datetime, watch: str | None = None
) -> list[BudgetStatus]:
    """Return the limits that are reached, or to 80 %. An hourly limit is there to be used, so it must be exceeded.

    Args:
        alive: launches that are not over.
        ended: launches that ended since the first of the month (UTC); older ones cost nothing in any window.
        watch: count only the launches of this watch.
    """
    ours = [launch for launch in alive if watch in {None, launch.watch}]
    over = [launch for launch in ended if watch in {None, launch.watch}]
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight.replace(day=1)
    next_month = (first + timedelta(days=32)).replace(day=1)
    day = _in_window(ours, over, (midnight, midnight + timedelta(days=1)), now)
    month = _in_window(ours, over, (first, next_month), now)
    ending = sum(_ending_cost(launch, now) for launch in ours) if budget.on_reached is BudgetPolicy.STOP else 0
    found = [
        _day_or_month("max_usd_day", budget.max_usd_day, day, ending, f"{now:%Y-%m-%d}", watch),
        _day_or_month("max_usd_month", budget.max_usd_month, month, ending, f"{now:%Y-%m}", watch),
        _hour(budget.max_usd_hour, ours, now, watch),
    ]
    return [one for one in found if one is not None]


def launches_to_end(
    found: Sequence[BudgetStatus], alive: Sequence[Launch], budget: Budget, now: datetime
) -> dict[str, EndCause]:
    """Return launch id → cause, for the launches that a reached budget ends.

    If the money of a day or month is spent, everything under the budget ends. If the hourly limit is exceeded, the
    newest launches end until the rest fits.
    """
    ending: dict[str, EndCause] = {}
    if budget.on_reached is not BudgetPolicy.STOP:
        return ending
    for status in found:
        if status.is_full:
            fault = (EndReason.BUDGET_REACHED, status.words)
            ours = [launch for launch in alive if status.watch in {None, launch.watch} and _goes_on(launch)]
            ending |= {
                launch.launch_id: fault for launch in _chosen(status, ours, now) if launch.launch_id not in ending
            }
    return ending


def current_rate_microusd_hour(launch: Launch, now: datetime) -> int:
    """Return its price per hour: the current one, or the one from its start on."""
    if launch.running_at is None:
        return 0 if launch.dry_run else launch.price_microusd_hour
    spans = billed_spans(launch, now)
    return spans[-1][2] if spans else 0


def _chosen(one: BudgetStatus, ours: list[Launch], now: datetime) -> list[Launch]:
    if one.name != "max_usd_hour":
        return ours
    rate, chosen = sum(current_rate_microusd_hour(launch, now) for launch in ours), []
    for launch in sorted(ours, key=lambda each: (each.intended_at, each.launch_id), reverse=True):
        if rate <= one.limit_microusd:
            break
        chosen.append(launch)
        rate -= current_rate_microusd_hour(launch, now)
    return chosen


def _goes_on(launch: Launch) -> bool:
    return not launch.is_over and launch.state is not LaunchState.STOPPING


def _in_window(
    alive: Sequence[Launch], ended: Sequence[Launch], window: tuple[datetime, datetime], now: datetime
) -> tuple[int, int]:
    """Return (spent since the window opened, the same plus the possible further cost until it closes)."""
    spent = sum(cost_microusd(launch, now, window[0]) for launch in (*alive, *ended))
    return spent, spent + sum(_further_cost(launch, window[1], now) for launch in alive if _goes_on(launch))


def _further_cost(launch: Launch, until: datetime, now: datetime) -> int:
    end = until
    if launch.max_runtime_s is not None:
        end = min(until, (launch.running_at or now) + timedelta(seconds=launch.max_runtime_s))
    return round(current_rate_microusd_hour(launch, now) * (max(timedelta(0), end - now) / _HOUR))


def _ending_cost(launch: Launch, now: datetime) -> int:
    """Return what it costs from now until its end is proven, if it is ended now."""
    return round(current_rate_microusd_hour(launch, now) * (proof_time(launch) / _HOUR))


def _day_or_month(
    name: str, limit: Decimal | None, money: tuple[int, int], ending: int, window: str, watch: str | None
) -> BudgetStatus | None:
    spent, by_end = money
    if limit is None or spent <= 0:
        return None
    is_full = spent + ending >= microusd(limit)
    if not is_full and spent < microusd(limit) * WARN_AT:
        return None
    return BudgetStatus(
        name=name,
        watch=watch,
        window=window,
        limit_microusd=microusd(limit),
        spent_microusd=spent,
        by_end_microusd=by_end,
        is_full=is_full,
    )


def _hour(limit: Decimal | None, ours: Sequence[Launch], now: datetime, watch: str | None) -> BudgetStatus | None:
    rate = sum(current_rate_microusd_hour(launch, now) for launch in ours if _goes_on(launch))
    if limit is None or rate <= microusd(limit):
        return None
    return BudgetStatus(
        name="max_usd_hour",
        watch=watch,
        window=f"{now:%Y-%m-%dT%H}",
        limit_microusd=microusd(limit),
        spent_microusd=rate,
        by_end_microusd=rate,
        is_full=True,
    )
