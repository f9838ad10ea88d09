"""The rules that a watch must meet before it acts, as a list for its owner: met, blocking or unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from gpuwatch.app.reader_text import clock_text, moment_text, span
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.app.watches.why.blocked import Condition, RuleState
from gpuwatch.app.watches.why.watch_words import amount, budget_name, limit_microusd, longest_text, why_not
from gpuwatch.domain.launches.launch import RefusalReason
from gpuwatch.domain.launches.life.admission import BlockReason
from gpuwatch.domain.market.money import rate_text
from gpuwatch.domain.watches.watch import Action
from gpuwatch.language import translate as _
from gpuwatch.web.watches.pause_pages import watch_path
from gpuwatch.web.watches.watch_rows import limit_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.app.watches.watch_status import WatchStatus
    from gpuwatch.app.watches.why.blocked import WatchRule

_BUDGETS = (
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
_LAST = (*_BUDGETS, BlockReason.APPROVAL, BlockReason.DENIED, BlockReason.NOT_READY)
_ICONS = {RuleState.MET: ("st-done", "good"), RuleState.BLOCKS: ("st-stop", "warn"), RuleState.UNKNOWN: ("st-wait", "")}


class CheckRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list. `said`: its state for a screen reader."""

    name: str
    state: RuleState
    icon: str
    tone: str
    said: str
    label: str
    figure: str


class Fix(msgspec.Struct, frozen=True):
    """A link that changes what blocks."""

    text: str
    href: str


def check_rows(status: WatchStatus, rules: Sequence[WatchRule]) -> list[CheckRow]:
    """The list, in the order in which people ask."""
    return [_row(status, rule) for rule in sorted(rules, key=_position)]


def _position(rule: WatchRule) -> int:
    if rule.name in _SHOWN:
        return _SHOWN.index(rule.name)
    return len(_SHOWN) + 1 + _LAST.index(rule.name) if rule.name in _LAST else len(_SHOWN)


def _row(status: WatchStatus, rule: WatchRule) -> CheckRow:
    icon, tone = _ICONS[rule.state]
    said = {
        RuleState.MET: _("met"),
        RuleState.BLOCKS: _("blocks"),
        RuleState.UNKNOWN: _("unknown"),
    }[rule.state]
    label, figure = _texts(status, rule)
    return CheckRow(name=rule.name, state=rule.state, icon=icon, tone=tone, said=said, label=label, figure=figure)


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
    if rule.check is not None:
        return _admission_texts(status, rule)
    if name is BlockReason.NOT_READY:
        return _("Key and account at {provider}").format(provider=_provider(status)), _ready_figure(rule)
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
        return _("nothing on sale")
    if limit is None:
        return limit_text(status)
    price = rate_text(nearest.price_microusd_gpu_hour, limit)
    return _("{price} of {limit}").format(price=price, limit=limit_text(status))


def _provider(status: WatchStatus) -> str:
    return _("the provider") if status.nearest is None else provider_title(status.nearest.offer.provider)


def _ready_figure(rule: WatchRule) -> str:
    if rule.block is not None:
        return rule.block.text
    return _("nothing is missing") if rule.state is RuleState.MET else "–"


def _short(status: WatchStatus, rule: WatchRule) -> str:
    return "" if rule.block is None else why_not(status.watch, rule.block, status.under_since)


def _admission_texts(status: WatchStatus, rule: WatchRule) -> tuple[str, str]:
    check, watch = rule.check, status.watch
    assert check is not None
    used, limit = check.used, check.limit
    if check.rule in _BUDGETS:
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
    return text.format(time=longest_text(status.watch, check), cost=amount(check.cost), left=amount(left))


def fix_of(status: WatchStatus, rules: Sequence[WatchRule]) -> Fix | None:
    """The link that changes what blocks first; None: nothing does, or only time helps."""
    first = next((rule.name for rule in rules if rule.state is RuleState.BLOCKS), None)
    edit = f"{watch_path(status.watch.name)}/edit"
    fixes = {
        Condition.PRICE: (_("Change the limit"), edit),
        BlockReason.OUTSIDE_ACTIVE: (_("Change its hours"), edit),
        RefusalReason.MAX_ACTIVE: (_("Allow more at a time"), edit),
        RefusalReason.MAX_TOTAL: (_("Allow more in total"), edit),
        RefusalReason.MAX_PER_DAY: (_("Allow more a day"), edit),
        RefusalReason.PAUSED: (_("Resume"), f"/pause?watch={quote(status.watch.name)}"),
        RefusalReason.BREAKER: (_("Resume"), f"/pause?watch={quote(status.watch.name)}"),
        BlockReason.APPROVAL: (_("Answer"), "/approvals"),
        BlockReason.NOT_READY: (_("Settings"), "/settings"),
    } | {reason: (_("Budgets"), "/costs") for reason in _BUDGETS}
    found = None if first is None else fixes.get(first)
    return None if found is None else Fix(*found)


def checks_title(status: WatchStatus, rules: Sequence[WatchRule]) -> str:
    """What the list answers."""
    is_blocked = any(rule.state is RuleState.BLOCKS for rule in rules)
    if status.watch.action is Action.ALERT:
        return _("Why it does not alert now") if is_blocked else _("What it checks before it alerts")
    return _("Why it does not rent now") if is_blocked else _("What it checks before it rents")
