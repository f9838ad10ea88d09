"""The rules that a watch must meet before it acts, in words: what each asks, and its figures now.

On pages and in chats in the reader's language and zone, in a terminal in English.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.reader_text import clock_text, moment_text, span
from gpuwatch.app.watches.blocked import Condition, RuleState
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.app.watches.why.watch_words import ON_PAGES, amount, budget_name, limit_microusd, limit_text, why_not
from gpuwatch.domain.launches.launch import RefusalReason
from gpuwatch.domain.launches.life.admission import BlockReason
from gpuwatch.domain.launches.refusal_words import hours_text
from gpuwatch.domain.market.money import rate_text
from gpuwatch.domain.watches.watch import Action
from gpuwatch.language import translate as _
from gpuwatch.language import translate_composed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.app.watches.blocked import WatchRule
    from gpuwatch.app.watches.matching_prices import MatchingPrices
    from gpuwatch.app.watches.watch_status import WatchStatus

BUDGETS = (
    RefusalReason.MAX_INSTANCES,
    RefusalReason.MAX_USD_HOUR,
    RefusalReason.MAX_USD_DAY,
    RefusalReason.MAX_USD_MONTH,
)
_SHOWN = (
    RefusalReason.PAUSED, BlockReason.DRY_RUN, Condition.PRICE, BlockReason.OUTSIDE_ACTIVE, BlockReason.HOLD_FOR,
    BlockReason.IN_STOCK, Condition.MARKET, RefusalReason.RENAMED, RefusalReason.CHECKLIST, RefusalReason.BREAKER,
    RefusalReason.MAX_ACTIVE, RefusalReason.MAX_TOTAL, RefusalReason.MAX_PER_DAY,
)  # fmt: skip
_LAST = (*BUDGETS, BlockReason.APPROVAL, BlockReason.DENIED, BlockReason.NOT_READY)


class RuleText(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: its name as other programs know it, what is known of it, what it asks, and its figures."""

    name: str
    state: RuleState
    label: str
    figure: str


def rule_texts(status: WatchStatus, rules: Sequence[WatchRule]) -> list[RuleText]:
    """The rules in the order in which people ask."""
    return [rule_text(status, rule) for rule in sorted(rules, key=_position)]


def rule_text(status: WatchStatus, rule: WatchRule) -> RuleText:
    """One rule in words."""
    label, figure = _texts(status, rule)
    return RuleText(name=rule.name, state=rule.state, label=label, figure=figure)


def first_blocking(rules: Sequence[WatchRule]) -> WatchRule | None:
    """The first rule that blocks, in the order in which the daemon examines them; None: none does."""
    return next((rule for rule in rules if rule.state is RuleState.BLOCKS), None)


def _position(rule: WatchRule) -> int:
    if rule.name in _SHOWN:
        return _SHOWN.index(rule.name)
    return len(_SHOWN) + 1 + _LAST.index(rule.name) if rule.name in _LAST else len(_SHOWN)


def rules_title(status: WatchStatus, rules: Sequence[WatchRule]) -> str:
    """What the list answers."""
    is_blocked = first_blocking(rules) is not None
    if status.watch.action is Action.ALERT:
        return _("Why it does not alert now") if is_blocked else _("What it checks before it alerts")
    return _("Why it does not rent now") if is_blocked else _("What it checks before it rents")


def under_text(prices: MatchingPrices, status: WatchStatus) -> str:
    """How long the lowest matching price was at or under the limit."""
    if not prices.known_hours:
        return _("Nothing is recorded of this time.")
    if status.watch.unlimited or status.watch.max_job_cost_usd is not None:
        return _("{known} hours were polled.").format(known=prices.known_hours)
    under = prices.under(status.limit_usd_gpu_hour)
    text = _("At or under the limit for {hours} of {known} polled hours").format(
        hours=under.hours, known=under.known_hours
    )
    if under.lasting_hours:
        return _("{sentence}, now for {time}.").format(sentence=text, time=span(under.lasting_hours * 3600))
    return f"{text}."


# --- what a rule asks, and its figures --------------------------------------------------------------------------------


def _texts(status: WatchStatus, rule: WatchRule) -> tuple[str, str]:
    watch, name = status.watch, rule.name
    if name is Condition.MARKET:
        return _("Market seen completely"), moment_text(status.seen_at) if status.seen_at else _("not yet")
    if name is Condition.PRICE:
        return _("Price at or under the limit"), _price_figure(status)
    if name is BlockReason.OUTSIDE_ACTIVE:
        windows = ", ".join(watch.active)
        return _("Inside its hours"), windows if rule.until is None else _next(rule)
    if name is BlockReason.HOLD_FOR:
        return _("Under the limit for {time}").format(time=span(watch.hold_for_s)), "" if rule.until is None else _next(
            rule
        )
    if name is BlockReason.WAITS_FOR_SPOT:
        label = _("Spot offer, or waited {time} for one").format(time=span(watch.spot_for_s))
        return label, "" if rule.until is None else _next(rule)
    if rule.check is not None:
        return _admission_texts(status, rule)
    if name is BlockReason.NOT_READY:
        return _key_label(status), _ready_figure(rule)
    labels = {
        BlockReason.IN_STOCK: _("It was sold out before"),
        BlockReason.DRY_RUN: _("No dry run"),
        BlockReason.APPROVAL: _("Your answer"),
        BlockReason.DENIED: _("Not denied by you"),
    }
    return labels[BlockReason(name)], _short(status, rule)


def _next(rule: WatchRule) -> str:
    return _("next at {time}").format(time=clock_text(rule.until))


def _price_figure(status: WatchStatus) -> str:
    nearest, limit = status.nearest, limit_microusd(status.watch)
    if nearest is None:
        return _("nothing on sale") if status.seen_at else "–"
    if limit is None:
        return limit_text(status)
    price = rate_text(nearest.price_microusd_gpu_hour, limit)
    return _("{price} of {limit}").format(price=price, limit=limit_text(status))


def _key_label(status: WatchStatus) -> str:
    if status.nearest is None:
        return _("Key and account at the provider")
    return _("Key and account at {provider}").format(provider=provider_title(status.nearest.offer.provider))


def _ready_figure(rule: WatchRule) -> str:
    if rule.block is not None:
        return translate_composed(rule.block.text)
    return _("nothing is missing") if rule.state is RuleState.MET else "–"


def _short(status: WatchStatus, rule: WatchRule) -> str:
    return "" if rule.block is None else why_not(status.watch, rule.block, status.under_since)


def _admission_texts(status: WatchStatus, rule: WatchRule) -> tuple[str, str]:
    check, watch = rule.check, status.watch
    assert check is not None
    used, limit = check.used, check.limit
    if check.rule in BUDGETS:
        return budget_name(check), _budget_figure(status, rule)
    if check.rule is RefusalReason.PAUSED:
        return _("Renting is on"), _short(status, rule) if check.refusal else _("not paused")
    if check.rule is RefusalReason.MAX_ACTIVE and limit is not None:
        label = _("One machine at a time") if limit == 1 else _("Machines at a time")
        return label, _("{count} of {limit} run").format(count=used, limit=limit)
    counts = {
        RefusalReason.MAX_TOTAL: _("Machines in total"),
        RefusalReason.MAX_PER_DAY: _("Machines a day"),
        RefusalReason.CHECKLIST: _("Checklist ticked"),
    }
    if check.rule in counts and limit is not None:
        return counts[check.rule], _("{count} of {limit}").format(count=used, limit=limit)
    if check.rule is RefusalReason.BREAKER:
        return _("No series of failures"), _next(rule) if check.refusal else ""
    labels = {
        RefusalReason.MAX_ACTIVE: _("Its job waits for a machine"),
        RefusalReason.RENAMED: _("Not a renamed watch"),
        RefusalReason.COOLING: _("No failure just now"),
        RefusalReason.MACHINE_FAILED: _("A machine that did not fail"),
    }
    label = labels.get(check.rule, _("An offer that is free"))
    return label, why_not(watch, rule.block, status.under_since) if rule.block is not None else ""


def _budget_figure(status: WatchStatus, rule: WatchRule) -> str:
    check = rule.check
    assert check is not None
    left = max(0, (check.limit or 0) - check.used)
    if check.rule is RefusalReason.MAX_INSTANCES:
        return _("{count} of {limit} run").format(count=check.used, limit=check.limit)
    if status.nearest is None:
        return "–"
    if check.rule is RefusalReason.MAX_USD_HOUR:
        text = _("{cost} of {left}/h left")
        return text.format(cost=rate_text(check.cost, left), left=rate_text(left, check.cost))
    text = _("{time} cost {cost} of {left} left")
    return text.format(time=hours_text(check, ON_PAGES), cost=amount(check.cost), left=amount(left))
