"""The rules of a watch, and why it does not act on what it finds: one answer for every command, page, program and chat.

They are what the daemon asks before it rents, in the same order: the watch's windows, the providers, the admission with
its pauses, limits and budgets, and the owner's approval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.bootstrap.provider_access import label_lengths, not_rentable
from gpuwatch.domain.launches.launch import Intent, RefusalReason
from gpuwatch.domain.launches.life.admission import BlockReason, WatchBlock, block_of_decision, refused
from gpuwatch.domain.launches.life.owner_decisions import pause_refusal
from gpuwatch.domain.launches.rule_check import RuleCheck
from gpuwatch.domain.watches.decide import Decision, DecisionReason, Match
from gpuwatch.domain.watches.watch import Action, SpotPolicy, Watch
from gpuwatch.domain.watches.windows import is_open, opens_at
from gpuwatch.engine.launches.renting.candidate_selection import UnavailableProviders, WhyNotReady, select_candidates
from gpuwatch.engine.launches.renting.prerequisite_gate import why_held
from gpuwatch.engine.watches.readiness_notes import noted_reason
from gpuwatch.errors import StoreMissing
from gpuwatch.storage.alerts.pauses import load_pauses
from gpuwatch.storage.launches.approval_rows import approval_block
from gpuwatch.storage.launches.launch_admission import checks_of_rehearsal
from gpuwatch.storage.market.provider_holds import SqlHolds

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

_ID = "rehearsal222"  # no launch can have it


class Condition(StrEnum):
    """What must hold before a watch can act at all; the other rules have the names of the reasons that they give."""

    MARKET = "no_data"  # the market was seen lately, and completely
    PRICE = "no_offer"  # an offer is at or under the limit


class RuleState(StrEnum):
    """What is known of a rule."""

    MET = "met"
    BLOCKS = "blocks"
    UNKNOWN = "unknown"


class WatchRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule that a watch must meet before it acts.

    Attributes:
        block: why it does not act, if the rule blocks it; of what holds before a match: None.
        check: the figures, of a rule of the admission.
        until: when a rule that blocks ends by itself.
    """

    name: Condition | BlockReason | RefusalReason
    state: RuleState
    block: WatchBlock | None = None
    check: RuleCheck | None = None
    until: datetime | None = None


def blocked(settings: Settings, watch: Watch, decision: Decision, now: datetime) -> WatchBlock | None:
    """Why a watch with matches does not act now, or None: it does, or it only sends alerts.

    Without a database there are no pauses, launches or approvals.

    Raises:
        StoreError: the store cannot be read.
    """
    if not decision.matches:
        return None
    rules = watch_rules(settings, watch, decision, decision.matches, now)
    return next((rule.block for rule in rules if rule.block is not None), None)


def watch_rules(
    settings: Settings, watch: Watch, decision: Decision, matches: Sequence[Match], now: datetime
) -> Iterator[WatchRule]:
    """Yield every rule of a watch, in the order in which the daemon examines them, each when it is reached.

    Args:
        matches: what it would rent, best first: its matches, or without any its nearest offer.

    Raises:
        StoreError: the store cannot be read.
    """
    yield from _rules_of_decision(settings, watch, decision, now)
    if watch.action is Action.ALERT:
        return
    if not matches:
        yield WatchRule(name=BlockReason.NOT_READY, state=RuleState.UNKNOWN)
        return
    try:
        with open_store_read_only(settings) as store:
            yield from _rules_of_renting(settings, store, watch, matches, now)
    except StoreMissing:
        yield from _rules_of_renting(settings, None, watch, matches, now)


def _rules_of_decision(settings: Settings, watch: Watch, decision: Decision, now: datetime) -> Iterator[WatchRule]:
    """The rules of the watch's own settings."""
    reason, is_found = decision.reason, bool(decision.matches)
    yield WatchRule(name=Condition.MARKET, state=_met(reason is not DecisionReason.NO_DATA))
    yield WatchRule(name=Condition.PRICE, state=_met(is_found) if reason is not DecisionReason.NO_DATA else _UNKNOWN)
    block = block_of_decision(watch, decision, ZoneInfo(settings.timezone))
    if watch.active:
        opens = (
            None if is_open(watch.active, now, settings.timezone) else opens_at(watch.active, now, settings.timezone)
        )
        own = block if reason is DecisionReason.OUTSIDE_WINDOW else None
        yield WatchRule(name=BlockReason.OUTSIDE_ACTIVE, state=_met(opens is None), block=own, until=opens)
    # a decision gives its first reason alone: what it would say of the later ones is not known
    later = [(watch.restock, DecisionReason.IN_STOCK, BlockReason.IN_STOCK)]
    later.append((not watch.restock and watch.hold_for_s > 0, DecisionReason.HOLDING, BlockReason.HOLD_FOR))
    for is_set, own_reason, name in later:
        if is_set and reason is own_reason:
            under_since = decision.memory.under_since or now
            until = under_since + timedelta(seconds=watch.hold_for_s) if name is BlockReason.HOLD_FOR else None
            yield WatchRule(name=name, state=RuleState.BLOCKS, block=block, until=until)
        elif is_set:
            yield WatchRule(name=name, state=RuleState.MET if decision.true_now else _UNKNOWN)
    if watch.spot is SpotPolicy.FIRST:
        waits = block is not None and block.reason is BlockReason.WAITS_FOR_SPOT
        state = RuleState.BLOCKS if waits else RuleState.MET if decision.true_now else _UNKNOWN
        own, until = (block, block.until) if block is not None and waits else (None, None)
        yield WatchRule(name=BlockReason.WAITS_FOR_SPOT, state=state, block=own, until=until)


_UNKNOWN = RuleState.UNKNOWN


def _met(is_met: bool) -> RuleState:
    return RuleState.MET if is_met else RuleState.BLOCKS


def _rules_of_renting(
    settings: Settings, store: Database | None, watch: Watch, found: Sequence[Match], now: datetime
) -> Iterator[WatchRule]:
    unable = UnavailableProviders() if watch.action is Action.COMMAND else not_rentable(settings)
    not_ready = _not_ready(store, watch, found, now)
    left, why = select_candidates(found, unable, not_ready, settings.dry_run, watch.name)
    block = None if left else WatchBlock(BlockReason.NOT_READY, why)
    yield WatchRule(name=BlockReason.NOT_READY, state=_met(bool(left)), block=block)
    candidates = left or found
    if store is not None:
        zone = ZoneInfo(settings.timezone)
        with store.read() as connection:
            for check in checks_of_rehearsal(connection, _intent(settings, watch, candidates), settings.budget, now):
                refusal = check.refusal
                if refusal is not None and check.rule is RefusalReason.PAUSED:
                    refusal = pause_refusal(load_pauses(connection).by_hand, watch.name, now, zone)
                block = None if refusal is None else refused(refusal, check)
                yield WatchRule(name=check.rule, state=_met(block is None), block=block, check=check, until=check.until)
            if watch.action is Action.ASK:
                waiting = approval_block(connection, watch.name, candidates, now, zone)
                name = BlockReason.APPROVAL if waiting is None else waiting.reason
                yield WatchRule(name=name, state=_met(waiting is None), block=waiting)
    if settings.dry_run:
        block = WatchBlock(BlockReason.DRY_RUN, "a dry run rents nothing (dry_run = true)")
        yield WatchRule(name=BlockReason.DRY_RUN, state=RuleState.BLOCKS, block=block)


def _not_ready(store: Database | None, watch: Watch, found: Sequence[Match], now: datetime) -> WhyNotReady:
    """Why nothing can be rented at a provider now, as far as a daemon has stored it. No approval depends on it."""
    if store is None or watch.action is Action.ASK:
        return lambda _provider, _price, _watch: None
    holds, is_job = SqlHolds(store), watch.purpose.job is not None
    noted = noted_reason(holds, watch.name, dict.fromkeys(match.offer.provider for match in found), now)
    if noted is not None or watch.action is Action.COMMAND:
        return lambda _provider, _price, _watch: noted
    return lambda provider, _price, _watch: why_held(holds, provider, now, is_job=is_job) or None


def _intent(settings: Settings, watch: Watch, left: Sequence[Match]) -> Intent:
    first, *others = left
    return Intent(
        watch=watch,
        match=first,
        launch_id=_ID,
        dry_run=settings.dry_run,
        alternatives=tuple(others),
        label_lengths=label_lengths(settings.providers),
    )
