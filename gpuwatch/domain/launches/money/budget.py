"""Whether a budget allows another launch. Pure: the repository calls it in its transaction.

A launch is admitted on an upper bound of what will be charged: the amount spent in the window, plus, for every launch
that is not over (including unknown, held and stopping ones), the highest possible hourly price for the rest of its
`max_runtime` (24 h if not set) and until its end is proven, and the price of its disk until it must be running.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import ROUND_CEILING

from gpuwatch.domain.launches.launch import Launch, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.launches.money.billing import billed_spans, billed_time, cost_microusd, proof_time
from gpuwatch.domain.market.money import amount_text
from gpuwatch.domain.market.pricing import microusd, usd
from gpuwatch.domain.watches.watch import Budget

DAY = timedelta(days=1)
LONGEST_MONTH = 31 * DAY


def budget_refusal(
    new: Launch,
    alive: Sequence[Launch],
    ended: Sequence[Launch],
    budget: Budget,
    now: datetime,
    whose: str = "[budget]",
) -> LaunchRefusal | None:
    """Return why the budget does not allow the launch, or None.

    Args:
        alive: every other launch under this budget that is not over.
        ended: launches under this budget that ended since the first of the month (UTC); older ones cost nothing in
            any window.
        whose: the budget's name in the text of the refusal.
    """
    if (too_many := _count_refusal(new, alive, budget, whose)) is not None:
        return too_many
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight.replace(day=1)
    at_once = [new, *alive]
    if budget.max_usd_hour is not None:
        most = sum(map(highest_rate_microusd_hour, at_once))
        if most > microusd(budget.max_usd_hour):
            return _over_limit(RefusalReason.MAX_USD_HOUR, most, budget.max_usd_hour, "an hour", whose)
    if budget.max_usd_day is not None:
        most = _bound(at_once, ended, midnight, DAY, now)
        if most > microusd(budget.max_usd_day):
            return _over_limit(RefusalReason.MAX_USD_DAY, most, budget.max_usd_day, "today", whose)
    if budget.max_usd_month is not None:
        most = _bound(at_once, ended, first, LONGEST_MONTH, now)
        if most > microusd(budget.max_usd_month):
            return _over_limit(RefusalReason.MAX_USD_MONTH, most, budget.max_usd_month, "this month", whose)
    return None


def _count_refusal(new: Launch, alive: Sequence[Launch], budget: Budget, whose: str) -> LaunchRefusal | None:
    count = sum(launch.promised.machines for launch in alive)
    if budget.max_instances is not None and count + new.promised.machines > budget.max_instances:
        text = f"{count} {'instance is' if count == 1 else 'instances are'} alive"
        if new.promised.machines > 1:
            text = f"it needs {new.promised.machines} instances, {text}"
        return LaunchRefusal(
            RefusalReason.MAX_INSTANCES, f"{text}, and {whose} says max_instances = {budget.max_instances}"
        )
    return None


def all_budgets_refusal(
    new: Launch,
    other_launches: Sequence[Launch],
    budget: Budget,
    of_watch: Budget,
    now: datetime,
) -> LaunchRefusal | None:
    """Check the global budget over all launches and the watch's own budget over its launches. None: both allow it.

    Args:
        other_launches: every other launch of any watch that is alive or ended since the first of the month.
    """
    alive = [launch for launch in other_launches if not launch.is_over]
    over = [launch for launch in other_launches if launch.is_over]
    refusal = budget_refusal(new, alive, over, budget, now)
    if refusal is not None or of_watch == Budget():
        return refusal
    mine = [launch for launch in alive if launch.watch == new.watch]
    mine_over = [launch for launch in over if launch.watch == new.watch]
    return budget_refusal(new, mine, mine_over, of_watch, now, f"[watch.budget] of watch {new.watch!r}")


def highest_rate_microusd_hour(launch: Launch) -> int:
    """Return the highest known price per hour from now on, including price increases while it runs."""
    newest = launch.spans[-1].price_microusd_hour if launch.spans else 0
    return max(launch.bound_microusd_hour, newest)


def remaining_microusd(launch: Launch, now: datetime, window: timedelta) -> int:
    """Return the maximum further cost of the launch within a window of that length."""
    left = DAY if launch.max_runtime_s is None else timedelta(seconds=launch.max_runtime_s)
    left = billed_time(launch.promised, left + proof_time(launch))
    if launch.running_at is not None and launch.state in {LaunchState.RUNNING, LaunchState.STOPPING}:
        left -= max(now - launch.running_at, timedelta(0))
    left = max(left, proof_time(launch))  # overdue or stopping, it is billed until its end is proven
    left = max(timedelta(0), left - _billed_ahead(launch, now))
    left = min(left, window)
    return _cost(highest_rate_microusd_hour(launch), left) + _start_microusd(launch, now, window - left)


def _start_microusd(launch: Launch, now: datetime, window: timedelta) -> int:
    """Return the cost of its disk until it runs, or is ended because it does not."""
    if launch.running_at is not None or launch.is_by_command or launch.dry_run:
        return 0
    start = DAY if launch.ready_within_s is None else timedelta(seconds=launch.ready_within_s)
    waited = max(timedelta(0), now - (launch.requested_at or now))
    return _cost(launch.with_commission(launch.disk_microusd_hour), min(max(timedelta(0), start - waited), window))


def _cost(microusd_hour: int, billed: timedelta) -> int:
    return -(-microusd_hour * (billed // timedelta(milliseconds=1)) // 3_600_000)


def _billed_ahead(launch: Launch, now: datetime) -> timedelta:
    """How far ahead of `now` the launch is already paid."""
    spans = billed_spans(launch, now)
    return max(timedelta(0), spans[-1][1] - now) if spans else timedelta(0)


def _bound(
    at_once: Sequence[Launch], ended: Sequence[Launch], since: datetime, window: timedelta, now: datetime
) -> int:
    spent = sum(cost_microusd(launch, now, since) for launch in (*at_once, *ended))
    return spent + sum(remaining_microusd(launch, now, window) for launch in at_once)


def _over_limit(reason: RefusalReason, most: int, limit: object, span: str, whose: str) -> LaunchRefusal:
    shown = amount_text(usd(most), rounding=ROUND_CEILING)  # a bound just over the limit must not read as the limit
    text = f"it could cost up to ${shown} {span}, including running launches, and {whose} says {reason.value} = {limit}"
    return LaunchRefusal(reason, text)
