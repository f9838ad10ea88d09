"""Checklists of watches and jobs: show, tick, untick. A running daemon applies a change at its next poll."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.owner_audit import audit_event
from gpuwatch.app.watches.watch_selection import known_job, watch_named
from gpuwatch.bootstrap import open_store, open_store_read_only, real_now
from gpuwatch.domain.jobs.job_watch import pilot_items
from gpuwatch.domain.jobs.pilot_checks import pilot_ticks
from gpuwatch.domain.launches.life.owner_decisions import (
    KNOWN_ITEMS,
    ChecklistTick,
    checklist_refusal,
    checklist_refusal_text,
    unticked,
)
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.domain.watches.owner_names import Purpose
from gpuwatch.domain.watches.watch import Action, ChecklistPolicy
from gpuwatch.errors import StoreMissing, UsageError
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.renting_blocks import SqlChecklistRepository

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job import Job
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database


class ChecklistStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The checklist of one watch, or of one job as a watch.

    Attributes:
        ticks: oldest first; includes items that are no longer required.
        pilot: items that the pilot of a job measures; they do not prevent renting.
    """

    watch: Watch
    ticks: tuple[ChecklistTick, ...]
    pilot: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """Required items in the order of the settings, without duplicates."""
        return tuple(dict.fromkeys(self.watch.require))

    @property
    def missing(self) -> tuple[str, ...]:
        """Required items without a tick."""
        return unticked(self.watch, {tick.item for tick in self.ticks})

    @property
    def blocking(self) -> tuple[str, ...]:
        """Missing items that the owner must tick before it rents."""
        return tuple(item for item in self.missing if item not in self.pilot)

    def tick_of(self, item: str) -> ChecklistTick | None:
        """The tick of an item, if any."""
        return next((tick for tick in self.ticks if tick.item == item), None)


def checklist_statuses(settings: Settings, name: str | None) -> list[ChecklistStatus]:
    """The checklist of one watch or job, or of all with required items. Raises UsageError, StoreError."""
    if name is not None:
        _check_watch(settings, name)
    watches = [watch.name for watch in settings.watches if watch.require] if name is None else [name]
    try:
        with open_store_read_only(settings) as store:
            return [_status(settings, store, watch) for watch in watches] + (
                _job_statuses(store) if name is None else []
            )
    except StoreMissing:
        if watches:
            raise
        return []  # nothing requires anything


def _status(settings: Settings, store: Database, name: str) -> ChecklistStatus:
    """The checklist of one name. Raises UsageError: no watch or job has this name."""
    if (job := Purpose.of(name).job) is not None:
        return _job_status(store, known_job(SqlJobRepository(store), job))
    watch = watch_named(settings, name)
    return ChecklistStatus(watch=watch, ticks=tuple(SqlChecklistRepository(store).load(watch.name)))


def _job_statuses(store: Database) -> list[ChecklistStatus]:
    return [_job_status(store, job) for job in SqlJobRepository(store).open_jobs() if job.definition.resources.require]


def _job_status(store: Database, job: Job) -> ChecklistStatus:
    """The items that the owner ticked by name, and the ones that the job's own pilots measured."""
    watch = msgspec.structs.replace(job.definition.resources, name=job.watch_name)
    ticks = [*SqlChecklistRepository(store).load(watch.name), *pilot_ticks(SqlJobRepository(store).events(job.job_id))]
    ticks.sort(key=lambda tick: tick.at)
    return ChecklistStatus(watch=watch, ticks=tuple(ticks), pilot=pilot_items(job.definition))


def tick(settings: Settings, name: str, items: Sequence[str], words: str, *, actor: str) -> ChecklistStatus:
    """Tick these items of a watch.

    Raises:
        UsageError: there is no such watch, or it does not require one of the items: a typo must not count as done.
        StoreError: nothing was written.
    """
    _check_watch(settings, name)
    with open_store(settings) as store:
        watch = _status(settings, store, name).watch
        for item in items:
            _check_required(watch, item)
        audit = audit_event(actor, f"ticked {', '.join(items)} of {watch.name}", subject=watch.name, watch=watch.name)
        SqlChecklistRepository(store).tick(watch.name, tuple(dict.fromkeys(items)), words, real_now(), audit)
        return _status(settings, store, name)


def _check_watch(settings: Settings, name: str) -> None:
    """Check that there is such a watch, before the store is opened; a job is in the store. Raises UsageError."""
    if Purpose.of(name).job is None:
        watch_named(settings, name)


def untick(settings: Settings, name: str, items: Sequence[str], *, actor: str) -> tuple[list[str], ChecklistStatus]:
    """Remove the ticks of these items; without items, all ticks.

    Returns:
        The items that were ticked, and the resulting list.

    Raises:
        UsageError: there is no such watch, or it never had one of the items.
        StoreError: nothing was written.
    """
    _check_watch(settings, name)
    with open_store(settings) as store:
        watch = _status(settings, store, name).watch
        checklist_repository = SqlChecklistRepository(store)
        ticked = [tick.item for tick in checklist_repository.load(watch.name)]
        for item in items:
            if item not in ticked:
                _check_required(watch, item)
        chosen = tuple(dict.fromkeys(items)) or ticked
        audit = audit_event(
            actor, f"unticked {', '.join(chosen)} of {watch.name}", subject=watch.name, watch=watch.name
        )
        unticked_items = checklist_repository.untick(watch.name, chosen, audit)
        return unticked_items, _status(settings, store, name)


def unticked_watches(settings: Settings, store: Database | None) -> list[str]:
    """Watches that do not rent because of their checklists, one sentence each. Raises StoreError.

    Args:
        store: None: there is no store yet, so nothing is ticked.
    """
    checklist_repository = None if store is None else SqlChecklistRepository(store)
    jobs = [] if store is None else [status for status in _job_statuses(store) if status.blocking]
    names = [(f"Job {status.watch.purpose.job!r}", status.watch, status.blocking) for status in jobs]
    return [
        f"Watch {watch.name!r} does not rent: {refused.text}"
        for watch in settings.watches
        if watch.require and watch.action is not Action.ALERT
        if (
            refused := checklist_refusal(
                watch, {tick.item for tick in (checklist_repository.load(watch.name) if checklist_repository else ())}
            )
        )
        is not None
    ] + [f"{name} rents nothing: {checklist_refusal_text(watch, missing)}" for name, watch, missing in names]


def _check_required(watch: Watch, item: str) -> None:
    if item in watch.require:
        return
    if not watch.require:
        raise UsageError(f'watch {watch.name!r} requires nothing; list items in its settings: require = ["dry_epoch"]')
    near = get_close_matches(item, watch.require, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; it requires {', '.join(watch.require)}"
    raise UsageError(f"watch {watch.name!r} does not require {item!r}{hint}")


def checklist_json(status: ChecklistStatus) -> dict[str, Any]:
    """JSON of one checklist; `ready`: the watch may rent."""
    blocks = status.watch.action is not Action.ALERT and status.watch.require_policy is ChecklistPolicy.BLOCK
    obsolete = [tick_.item for tick_ in status.ticks if tick_.item not in status.required]
    return {
        "watch": status.watch.name,
        "action": status.watch.action.value,
        "policy": status.watch.require_policy.value,
        "ready": not (status.blocking and blocks),
        "missing": list(status.missing),
        "items": [_item_json(status, item, required=True) for item in status.required]
        + [_item_json(status, item, required=False) for item in obsolete],
    }


def _item_json(status: ChecklistStatus, item: str, *, required: bool) -> dict[str, Any]:
    tick_ = status.tick_of(item)
    return {
        "item": item,
        "required": required,
        "ticked": tick_ is not None,
        "ticked_at": rfc3339(tick_.at) if tick_ else None,
        "note": tick_.words if tick_ else None,
        "about": KNOWN_ITEMS.get(item),
        "by_pilot": item in status.pilot,
    }
