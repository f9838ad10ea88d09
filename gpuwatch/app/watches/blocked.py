"""Why a watch with matching offers does not act: one answer for every command, page, program and chat.

It asks what the daemon asks before it rents, in the same order: the watch's windows, the providers, the admission with
its pauses, limits and budgets, and the owner's approval.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.bootstrap.provider_access import label_lengths, not_rentable
from gpuwatch.domain.launches.launch import Intent, RefusalReason
from gpuwatch.domain.launches.life.admission import BlockReason, WatchBlock, block_of_decision, refused
from gpuwatch.domain.launches.life.owner_decisions import pause_refusal
from gpuwatch.domain.watches.decide import Decision, Match
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.launches.renting.candidate_selection import UnavailableProviders, WhyNotReady, select_candidates
from gpuwatch.engine.launches.renting.prerequisite_gate import why_held
from gpuwatch.engine.watches.readiness_notes import noted_reason
from gpuwatch.errors import StoreMissing
from gpuwatch.storage.alerts.pauses import load_pauses
from gpuwatch.storage.launches.approval_rows import approval_block
from gpuwatch.storage.launches.launch_admission import refusal_of_rehearsal
from gpuwatch.storage.market.provider_holds import SqlHolds

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

_ID = "rehearsal222"  # no launch can have it


def blocked(settings: Settings, watch: Watch, decision: Decision, now: datetime) -> WatchBlock | None:
    """Why a watch with matches does not act now, or None: it does, or it only sends alerts.

    Without a database there are no pauses, launches or approvals.

    Raises:
        StoreError: the store cannot be read.
    """
    if not decision.matches:
        return None
    by_decision = block_of_decision(watch, decision)
    if by_decision is not None or watch.action is Action.ALERT:
        return by_decision
    try:
        with open_store_read_only(settings) as store:
            return _block(settings, store, watch, decision.matches, now)
    except StoreMissing:
        return _block(settings, None, watch, decision.matches, now)


def _block(
    settings: Settings, store: Database | None, watch: Watch, found: Sequence[Match], now: datetime
) -> WatchBlock | None:
    unable = UnavailableProviders() if watch.action is Action.COMMAND else not_rentable(settings)
    not_ready = _not_ready(store, watch, found, now)
    left, why = select_candidates(found, unable, not_ready, settings.dry_run, watch.name)
    if not left:
        return WatchBlock(BlockReason.NOT_READY, why)
    if store is not None:
        with store.read() as connection:
            refusal = refusal_of_rehearsal(connection, _intent(settings, watch, left), settings.budget, now)
            zone = ZoneInfo(settings.timezone)
            if refusal is not None and refusal.reason is RefusalReason.PAUSED:
                refusal = pause_refusal(load_pauses(connection).by_hand, watch.name, now, zone)
            if refusal is not None:
                return refused(refusal)
            is_asked = watch.action is Action.ASK
            if is_asked and (waiting := approval_block(connection, watch.name, left, now, zone)) is not None:
                return waiting
    return WatchBlock(BlockReason.DRY_RUN, "a dry run rents nothing (dry_run = true)") if settings.dry_run else None


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
