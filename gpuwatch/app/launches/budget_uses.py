"""How much of each budget is used and will be, what is billed now, and what every page says of that at its top."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.domain.launches.money.launch_costs import BurnRate, burn_rate, midnight, month_of
from gpuwatch.domain.launches.money.month_forecast import BudgetUse, budget_uses, past_uses, spent_since
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.launch_totals import SqlLaunchTotals

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.settings import Settings


class SpendingNow(msgspec.Struct, frozen=True, kw_only=True):
    """The active launches, newest first, what they cost an hour, and the used part of each dollar limit.

    Attributes:
        machines: those that count against the limit of machines at once.
        most_machines: that limit; None: none.
        today_microusd: spent since midnight (UTC), commission included, as budgets count it.
        month_microusd: the same since the first of the month.
    """

    alive: Sequence[Launch]
    machines: int
    most_machines: int | None
    burn: BurnRate
    budgets: Sequence[BudgetUse]
    today_microusd: int
    month_microusd: int


def spending_now(settings: Settings, now: datetime, watches: Collection[str] | None = None) -> SpendingNow:
    """What is spent now; reads only what this month may have cost. Raises StoreError.

    Args:
        watches: count the launches of these alone; None: all. Budgets count all of them in any case.
    """
    with open_store_read_only(settings) as store:
        totals = SqlLaunchTotals(store)
        launches, began = totals.billed_since(month_start(now)), totals.first_orders()
    budgets = list(uses_of_budgets(settings, launches, began, None, now))
    if watches is not None:
        launches = [launch for launch in launches if launch.watch in watches]
    return SpendingNow(
        alive=[launch for launch in launches if not launch.is_over],
        machines=machines_at_once(launches),
        most_machines=settings.budget.max_instances,
        burn=burn_rate(launches, now),
        budgets=budgets,
        today_microusd=spent_since(launches, midnight(now.astimezone(UTC).date()), now).effective,
        month_microusd=spent_since(launches, month_start(now), now).effective,
    )


def machines_at_once(launches: Iterable[Launch]) -> int:
    """How many machines count against the limit of machines at once."""
    counted = (one for one in launches if not (one.is_over or one.dry_run or one.is_kept))
    return sum(launch.promised.machines for launch in counted)


def month_start(now: datetime) -> datetime:
    """The beginning of the month in UTC: no budget counts what was spent before."""
    return month_of(now.astimezone(UTC).date())[0]


def uses_of_budgets(
    settings: Settings,
    launches: Sequence[Launch],
    began: Mapping[str, datetime],
    past: datetime | None,
    now: datetime,
) -> Iterable[BudgetUse]:
    """The used part of each dollar limit, the overall budget first, then each watch's.

    Args:
        launches: those that the month may have cost.
        began: the first order of each watch; it decides whether a forecast is possible.
        past: the first moment of a past month; None: the current one.
    """
    by_watch: defaultdict[str, list[Launch]] = defaultdict(list)
    for launch in launches:
        by_watch[launch.watch].append(launch)
    first = min(began.values(), default=None)
    scopes: list[tuple[str | None, Budget, list[Launch], datetime | None]] = [
        (None, settings.budget, list(launches), first)
    ]
    scopes += [
        (watch.name, watch.budget, by_watch[watch.name], began.get(watch.name))
        for watch in settings.watches
        if watch.budget != Budget()
    ]
    for name, budget, own, began_at in scopes:
        if past is None:
            yield from budget_uses(name, budget, own, now, began_at)
        else:
            yield from past_uses(name, budget, own, past, now)


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """The figures at the top of every page.

    Attributes:
        open_ids: the open approvals, the one that expires first at the front.
        expires_at: when the first of them expires.
        running: how many machines are billed.
        rate_microusd_hour: what they cost, commission included.
        pause: why nothing is rented; None: renting is not paused.
    """

    open_ids: tuple[str, ...] = ()
    expires_at: datetime | None = None
    running: int = 0
    rate_microusd_hour: int = 0
    pause: Pause | None = None


def glance(settings: Settings, now: datetime) -> Glance:
    """Read the figures in one transaction. Raises StoreError."""
    with open_store_read_only(settings) as store:
        waiting = SqlApprovalRepository(store).open_deadlines(now)
        burn = burn_rate(SqlLaunchRepository(store).alive(), now)
        in_force = SqlPauseRepository(store).load().in_force(now)
    return Glance(
        open_ids=tuple(waiting),
        expires_at=next(iter(waiting.values()), None),
        running=burn.launches,
        rate_microusd_hour=burn.effective,
        pause=next((pause for pause in in_force if pause.watch is None), None),
    )
