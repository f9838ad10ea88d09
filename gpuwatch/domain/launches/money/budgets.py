"""Budgets: whether another launch is admitted, and what follows while instances run. Pure.

- Admission, called by the repository in its transaction: an upper bound of what will be charged. It is the amount spent
  in the window, plus, for every launch that is not over (including unknown, held and stopping ones), the highest
  possible hourly price for the rest of its `max_runtime` (24 h if not set) and until its end is proven, and the price
  of its disk until it must be running.
- While instances run: the cost so far against the limit, within the budget's window: the UTC day or month. A budget
  that ends launches is reached once what is left only pays until their ends are proven. `max_usd_hour` is compared with
  the current hourly rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal

import msgspec

from gpuwatch.domain.launches.instances.end_rules import EndCause
from gpuwatch.domain.launches.launch import (
    EndReason,
    Launch,
    LaunchRefusal,
    LaunchState,
    RefusalReason,
)
from gpuwatch.domain.launches.money.launch_costs import billed_spans, billed_time, cost_microusd, proof_time
from gpuwatch.domain.launches.refusal_words import first_refusal
from gpuwatch.domain.launches.rule_check import RuleCheck
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import amount_text, dollars, microusd, price_text, usd
from gpuwatch.domain.watches.launch_spec import Budget, BudgetPolicy
from gpuwatch.domain.watches.owner_names import owner_of

DAY = timedelta(days=1)
LONGEST_MONTH = 31 * DAY
WHOLE_LIFE = timedelta(days=36_500)  # of a launch: to its latest end

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


def budget_checks(
    new: Launch,
    alive: Sequence[Launch],
    ended: Sequence[Launch],
    budget: Budget,
    now: datetime,
    watch: str | None = None,
) -> Iterator[RuleCheck]:
    """Yield each limit that is set, and whether it allows the launch.

    Args:
        alive: every other launch under this budget that is not over.
        ended: launches under this budget that ended since the first of the month (UTC); older ones cost nothing in
            any window.
        watch: whose budget it is; None: the global one.
    """
    whose = "[budget]" if watch is None else f"[watch.budget] of watch {watch!r}"
    if budget.max_instances is not None:
        yield _count_check(new, alive, budget.max_instances, whose)
    if budget.max_usd_hour is not None:
        used, cost = sum(map(highest_rate_microusd_hour, alive)), highest_rate_microusd_hour(new)
        yield _limit_check(RefusalReason.MAX_USD_HOUR, (used, cost), budget.max_usd_hour, "an hour", whose)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    lasts_s = new.max_runtime_s or DAY.total_seconds()
    if budget.max_usd_day is not None:
        used, cost = _bound(alive, ended, midnight, DAY, now), _bound([new], (), midnight, DAY, now)
        check = _limit_check(RefusalReason.MAX_USD_DAY, (used, cost), budget.max_usd_day, "today", whose)
        yield msgspec.structs.replace(check, lasts_s=min(lasts_s, DAY.total_seconds()))
    if budget.max_usd_month is not None:
        first = midnight.replace(day=1)
        used, cost = _bound(alive, ended, first, LONGEST_MONTH, now), _bound([new], (), first, LONGEST_MONTH, now)
        check = _limit_check(RefusalReason.MAX_USD_MONTH, (used, cost), budget.max_usd_month, "this month", whose)
        yield msgspec.structs.replace(check, lasts_s=lasts_s)


def _count_check(new: Launch, alive: Sequence[Launch], limit: int, whose: str) -> RuleCheck:
    count, refusal = sum(launch.promised.machines for launch in alive if not launch.is_kept), None
    if count + new.promised.machines > limit:
        text = f"{count_text(count, 'instance is', 'instances are')} alive"
        if new.promised.machines > 1:
            text = f"it needs {new.promised.machines} instances, {text}"
        refusal = LaunchRefusal(RefusalReason.MAX_INSTANCES, f"{text}, and {whose} says max_instances = {limit}")
    rule = RefusalReason.MAX_INSTANCES
    return RuleCheck(rule=rule, refusal=refusal, used=count, cost=new.promised.machines, limit=limit)


def all_budget_checks(
    new: Launch,
    other_launches: Sequence[Launch],
    budget: Budget,
    of_watch: Budget,
    now: datetime,
) -> Iterator[RuleCheck]:
    """Yield the limits of the global budget over the owner's launches, then of the watch's over its own.

    Args:
        other_launches: every other launch of any watch that is alive or ended since the first of the month.
    """
    owner = owner_of(new.watch)
    counted = [launch for launch in other_launches if owner_of(launch.watch) == owner]
    alive = [launch for launch in counted if not launch.is_over]
    over = [launch for launch in counted if launch.is_over]
    yield from budget_checks(new, alive, over, budget, now)
    if of_watch == Budget():
        return
    mine = [launch for launch in alive if launch.watch == new.watch]
    mine_over = [launch for launch in over if launch.watch == new.watch]
    for check in budget_checks(new, mine, mine_over, of_watch, now, new.watch):
        yield msgspec.structs.replace(check, of_watch=True)


def all_budgets_refusal(
    new: Launch, other_launches: Sequence[Launch], budget: Budget, of_watch: Budget, now: datetime
) -> LaunchRefusal | None:
    """Return why a budget does not allow the launch, or None. Arguments as `all_budget_checks`."""
    return first_refusal(all_budget_checks(new, other_launches, budget, of_watch, now))


def highest_rate_microusd_hour(launch: Launch) -> int:
    """Return the highest known price per hour from now on, including increases while it runs; of its disk if kept."""
    newest = launch.spans[-1].price_microusd_hour if launch.spans else 0
    if launch.is_kept:
        return newest
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


def _limit_check(rule: RefusalReason, amounts: tuple[int, int], limit_usd: Decimal, span: str, whose: str) -> RuleCheck:
    (used, cost), limit, refusal = amounts, microusd(limit_usd), None
    if used + cost > limit:
        shown = amount_text(usd(used + cost), rounding=ROUND_CEILING)  # just over the limit must not read as the limit
        most = f"it could cost up to ${shown} {span}, including running launches"
        refusal = LaunchRefusal(rule, f"{most}, and {whose} says {rule.value} = {limit_usd}")
    return RuleCheck(rule=rule, refusal=refusal, used=used, cost=cost, limit=limit)


class EndedCosts:
    """What some launches that ended since the first of the month (UTC) cost since a time; older ones cost nothing.

    They never change, so each is computed once for each time.
    """

    def __init__(self, ended: Sequence[Launch] = ()) -> None:
        self._ended = [launch for launch in ended if launch.ended_at is not None]
        self._endless = [launch for launch in ended if launch.ended_at is None]
        self._since: dict[datetime, int] = {}

    def microusd(self, since: datetime, now: datetime) -> int:
        """Return their cost since then."""
        known = self._since.get(since)
        if known is None:
            known = self._since[since] = sum(cost_microusd(launch, now, since) for launch in self._ended)
        return known + sum(cost_microusd(launch, now, since) for launch in self._endless)


def budget_statuses(
    alive: Sequence[Launch], ended: EndedCosts, budget: Budget, now: datetime, watch: str | None = None
) -> list[BudgetStatus]:
    """Return the limits that are reached, or to 80 %. An hourly limit is there to be used, so it must be exceeded.

    Args:
        alive: launches under this budget that are not over.
        ended: those that ended.
        watch: whose budget it is; None: the global one.
    """
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight.replace(day=1)
    next_month = (first + timedelta(days=32)).replace(day=1)
    ending = sum(_ending_cost(launch, now) for launch in alive) if budget.on_reached is BudgetPolicy.STOP else 0
    found = [_hour(budget.max_usd_hour, alive, now, watch)]
    if budget.max_usd_month is not None:
        month = _in_window(alive, ended, (first, next_month), now)
        found.insert(0, _day_or_month("max_usd_month", budget.max_usd_month, month, ending, f"{now:%Y-%m}", watch))
    if budget.max_usd_day is not None:
        day = _in_window(alive, ended, (midnight, midnight + timedelta(days=1)), now)
        found.insert(0, _day_or_month("max_usd_day", budget.max_usd_day, day, ending, f"{now:%Y-%m-%d}", watch))
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
    alive: Sequence[Launch], ended: EndedCosts, window: tuple[datetime, datetime], now: datetime
) -> tuple[int, int]:
    """Return (spent since the window opened, the same plus the possible further cost until it closes)."""
    spent = ended.microusd(window[0], now) + sum(cost_microusd(launch, now, window[0]) for launch in alive)
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
