"""All about one watch, for every face: its status, each rule that it must meet, and what it would have matched."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from gpuwatch.app.watches.blocked import Condition, RuleState, WatchRule
from gpuwatch.app.watches.matching_prices import MatchingPrices, matching_prices
from gpuwatch.app.watches.times_under import times_under_limits
from gpuwatch.app.watches.watch_status import (
    WatchStatus,
    WatchStatusView,
    rules_of,
    watch_status_view,
    watch_statuses,
)
from gpuwatch.app.watches.why.rule_texts import first_blocking, rule_text
from gpuwatch.app.watches.why.watch_words import limit_microusd
from gpuwatch.domain.launches.launch import RefusalReason
from gpuwatch.domain.market.json_view import JsonView, Moment, usd_number
from gpuwatch.domain.market.money import MICRO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings

DAYS, MAX_DAYS = 7, 90
_Unit = Literal["usd_gpu_hour", "usd_hour", "usd", "count"]
_AMOUNTS: dict[str, _Unit] = {
    RefusalReason.MAX_USD_HOUR: "usd_hour",
    RefusalReason.MAX_USD_DAY: "usd",
    RefusalReason.MAX_USD_MONTH: "usd",
}


class WatchDetails(msgspec.Struct, frozen=True, kw_only=True):
    """All about one watch.

    Attributes:
        rules: in the order in which the daemon examines them.
        prices: the lowest matching price of each hour.
        times_under: how often the price came under its limit lately, of a watch without a match; None: unknown.
    """

    status: WatchStatus
    rules: Sequence[WatchRule]
    prices: MatchingPrices
    times_under: int | None


def watch_details(settings: Settings, watch: Watch, days: int, now: datetime) -> WatchDetails:
    """All about one watch, from the store. Sends no request. Raises StoreError."""
    (status,) = watch_statuses(settings, [watch])
    times_under = {} if status.matches else times_under_limits(settings, [status.watch], now)
    return WatchDetails(
        status=status,
        rules=rules_of(settings, status, now),
        prices=matching_prices(settings, watch, days, now),
        times_under=times_under.get(watch.name),
    )


class WatchRuleView(JsonView, frozen=True, kw_only=True):
    """One rule that a watch must meet before it acts, with its figures; null: it has none, or they are unknown."""

    rule: Annotated[str, Meta(description="Its name, as in `blocked_by`; `no_data`, `no_offer`: no market, no match.")]
    state: Annotated[RuleState, Meta(description="`unknown`: an earlier rule must be met first.")]
    label: Annotated[str, Meta(description="What it asks.")]
    reason: Annotated[str | None, Meta(description="Why it blocks.")]
    unit: Annotated[_Unit | None, Meta(description="Of the three figures.")]
    used: Annotated[float | None, Meta(description="What is used of the limit; of `no_offer`, the nearest price.")]
    adds: Annotated[float | None, Meta(description="What a launch of the nearest offer would add.")]
    limit: float | None
    of_watch: Annotated[bool, Meta(description="A budget or pause of this watch alone.")]
    until: Annotated[Moment | None, Meta(description="When it ends by itself.")]


class MatchingHourView(JsonView, frozen=True, kw_only=True):
    """One hour of the past of a watch."""

    at: Annotated[Moment, Meta(description="When it begins.")]
    lowest_usd_gpu_hour: Annotated[float | None, Meta(description="Of what it would have matched, at any price.")]
    polled: Annotated[bool, Meta(description="False: it is not known what was on sale.")]


class HoursUnderView(JsonView, frozen=True, kw_only=True):
    """How long the lowest matching price was at or under the limit, in polled hours."""

    times: Annotated[int, Meta(description="How often it came under the limit.")]
    hours: int
    known_hours: Annotated[int, Meta(description="Polled hours.")]
    lasting_hours: Annotated[int, Meta(description="Up to now; 0: it is over the limit now, or not known.")]


class WatchDetailsView(WatchStatusView, frozen=True, kw_only=True):
    """All about one watch: `gpuwatch watches NAME`."""

    first_blocking: Annotated[str | None, Meta(description="The first rule that blocks; null: none does.")]
    rules: Annotated[list[WatchRuleView], Meta(description="In the order in which the daemon examines them.")]
    under_limit: Annotated[HoursUnderView | None, Meta(description="Null: its limit is not a price.")]
    hours: Annotated[list[MatchingHourView], Meta(description="Oldest first.")]
    unrecorded: Annotated[tuple[str, ...], Meta(description="Its conditions that the history does not record.")]


def watch_details_view(details: WatchDetails) -> WatchDetailsView:
    """All about one watch as other programs see it."""
    status, prices, first = details.status, details.prices, first_blocking(details.rules)
    known = watch_status_view(status, details.times_under)
    is_price = limit_microusd(status.watch) is not None
    return WatchDetailsView.of(
        known,
        first_blocking=None if first is None else first.name.value,
        rules=[_rule_view(status, rule) for rule in details.rules],
        under_limit=HoursUnderView.of(prices.under(status.limit_usd_gpu_hour)) if is_price else None,
        hours=[
            MatchingHourView.of(at=prices.starts_at(index), lowest_usd_gpu_hour=usd_number(low), polled=is_polled)
            for index, (low, is_polled) in enumerate(zip(prices.lows, prices.polled, strict=True))
        ],
        unrecorded=prices.unrecorded,
    )


def _rule_view(status: WatchStatus, rule: WatchRule) -> WatchRuleView:
    unit, used, adds, limit = _figures(status, rule)
    return WatchRuleView.of(
        rule,
        rule=rule.name.value,
        label=rule_text(status, rule).label,
        reason=None if rule.block is None else rule.block.sentence,
        unit=unit,
        used=used,
        adds=adds,
        limit=limit,
        of_watch=rule.check is not None and rule.check.of_watch,
    )


def _figures(status: WatchStatus, rule: WatchRule) -> tuple[_Unit | None, float | None, float | None, float | None]:
    """The unit, what is used, what a launch would add, and the limit."""
    check = rule.check
    if rule.name is Condition.PRICE:
        nearest, limit = status.nearest, limit_microusd(status.watch)
        price = None if nearest is None else nearest.price_microusd_gpu_hour / MICRO
        return "usd_gpu_hour", price, None, usd_number(limit)
    if check is None or check.limit is None:
        return None, None, None, None
    unit = _AMOUNTS.get(check.rule)
    if unit is None:
        return "count", check.used, check.cost, check.limit
    return unit, check.used / MICRO, check.cost / MICRO, check.limit / MICRO
