"""The rules of a watch on its page: with the icon of what is known, and the link that changes what blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from gpuwatch.app.watches.blocked import Condition, RuleState
from gpuwatch.app.watches.why.rule_texts import BUDGETS, RuleText, first_blocking, rule_texts
from gpuwatch.domain.launches.launch import RefusalReason
from gpuwatch.domain.launches.life.admission import BlockReason
from gpuwatch.language import translate as _
from gpuwatch.web.watches.pause_pages import watch_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.app.watches.blocked import WatchRule
    from gpuwatch.app.watches.watch_status import WatchStatus

_ICONS = {RuleState.MET: ("st-done", "good"), RuleState.BLOCKS: ("st-stop", "warn"), RuleState.UNKNOWN: ("st-wait", "")}


class CheckRow(RuleText, frozen=True, kw_only=True):
    """One line of the list. `said`: its state for a screen reader."""

    icon: str
    tone: str
    said: str


class Fix(msgspec.Struct, frozen=True):
    """A link that changes what blocks."""

    text: str
    href: str


def check_rows(status: WatchStatus, rules: Sequence[WatchRule]) -> list[CheckRow]:
    """The list, in the order in which people ask."""
    said = {RuleState.MET: _("met"), RuleState.BLOCKS: _("blocks"), RuleState.UNKNOWN: _("unknown")}
    return [
        CheckRow(**msgspec.structs.asdict(text), icon=icon, tone=tone, said=said[text.state])
        for text in rule_texts(status, rules)
        for icon, tone in [_ICONS[text.state]]
    ]


def fix_of(status: WatchStatus, rules: Sequence[WatchRule]) -> Fix | None:
    """The link that changes what blocks first; None: nothing does, or only time helps."""
    first = first_blocking(rules)
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
    } | {reason: (_("Budgets"), "/costs") for reason in BUDGETS}
    found = None if first is None else fixes.get(first.name)
    return None if found is None else Fix(*found)
