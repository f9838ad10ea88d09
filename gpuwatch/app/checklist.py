"""Checklists of watches: show, tick, untick. A running daemon applies a change at its next poll."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.watch_selection import watch_named
from gpuwatch.bootstrap import open_store, open_store_read_only, real_now
from gpuwatch.domain.launches.checklist import KNOWN_ITEMS, ChecklistTick, checklist_refusal, unticked
from gpuwatch.domain.market.json_values import rfc3339
from gpuwatch.domain.watches.watch import Action, ChecklistPolicy
from gpuwatch.errors import UsageError
from gpuwatch.storage.checklists import SqlChecklistRepository

if TYPE_CHECKING:
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database


class ChecklistStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The checklist of one watch."""

    watch: Watch
    ticks: tuple[ChecklistTick, ...]  # oldest first; includes items that are no longer required

    @property
    def required(self) -> tuple[str, ...]:
        """Each item once, in the order of the settings."""
        return tuple(dict.fromkeys(self.watch.require))

    @property
    def missing(self) -> tuple[str, ...]:
        """Required items without a tick."""
        return unticked(self.watch, {tick.item for tick in self.ticks})

    def tick_of(self, item: str) -> ChecklistTick | None:
        """The tick of an item, if any."""
        return next((tick for tick in self.ticks if tick.item == item), None)


def checklist_statuses(settings: Settings, name: str | None) -> list[ChecklistStatus]:
    """The checklist of one watch, or of every watch with requirements. Raises UsageError, StoreError."""
    wanted = [watch_named(settings, name)] if name is not None else [w for w in settings.watches if w.require]
    if not wanted:
        return []
    with open_store_read_only(settings) as store:
        book = SqlChecklistRepository(store)
        return [ChecklistStatus(watch=watch, ticks=tuple(book.load(watch.name))) for watch in wanted]


def tick(settings: Settings, name: str, items: Sequence[str], words: str) -> ChecklistStatus:
    """Record that these items of a watch are done.

    Raises:
        UsageError: there is no such watch, or it does not require one of them: a slip must not count as done.
        StoreError: nothing was written.
    """
    watch = watch_named(settings, name)
    for item in items:
        _check_required(watch, item)
    with open_store(settings) as store:
        book = SqlChecklistRepository(store)
        book.tick(watch.name, tuple(dict.fromkeys(items)), words, real_now())
        return ChecklistStatus(watch=watch, ticks=tuple(book.load(watch.name)))


def untick(settings: Settings, name: str, items: Sequence[str]) -> tuple[list[str], ChecklistStatus]:
    """Remove the ticks of these items; none: of all.

    Returns:
        Those that were ticked, and the list as it is then.

    Raises:
        UsageError: there is no such watch, or it never had one of them.
        StoreError: nothing was written.
    """
    watch = watch_named(settings, name)
    with open_store(settings) as store:
        book = SqlChecklistRepository(store)
        ticked = [one.item for one in book.load(watch.name)]
        for item in items:
            if item not in ticked:
                _check_required(watch, item)
        undone = book.untick(watch.name, tuple(dict.fromkeys(items)) or ticked)
        return undone, ChecklistStatus(watch=watch, ticks=tuple(book.load(watch.name)))


def held_back(settings: Settings, store: Database | None) -> list[str]:
    """Watches that rent nothing because of their checklists, one sentence each. Raises StoreError.

    Args:
        store: None: there is none yet, so nothing was ticked.
    """
    book = None if store is None else SqlChecklistRepository(store)
    return [
        f"Watch {watch.name!r} rents nothing: {refused.text}"
        for watch in settings.watches
        if watch.require and watch.action is not Action.ALERT
        if (refused := checklist_refusal(watch, {tick.item for tick in (book.load(watch.name) if book else ())}))
        is not None
    ]


def _check_required(watch: Watch, item: str) -> None:
    if item in watch.require:
        return
    if not watch.require:
        raise UsageError(f'watch {watch.name!r} requires nothing; name items in its settings: require = ["dry_epoch"]')
    near = get_close_matches(item, watch.require, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; it requires {', '.join(watch.require)}"
    raise UsageError(f"watch {watch.name!r} does not require {item!r}{hint}")


def checklist_json(one: ChecklistStatus) -> dict[str, Any]:
    """JSON of one checklist; `ready`: it does not keep the watch from renting."""
    blocks = one.watch.action is not Action.ALERT and one.watch.require_policy is ChecklistPolicy.BLOCK
    gone = [tick_.item for tick_ in one.ticks if tick_.item not in one.required]
    return {
        "watch": one.watch.name,
        "action": one.watch.action.value,
        "policy": one.watch.require_policy.value,
        "ready": not (one.missing and blocks),
        "missing": list(one.missing),
        "items": [_item_json(one, item, required=True) for item in one.required]
        + [_item_json(one, item, required=False) for item in gone],
    }


def _item_json(one: ChecklistStatus, item: str, *, required: bool) -> dict[str, Any]:
    done = one.tick_of(item)
    return {
        "item": item,
        "required": required,
        "ticked": done is not None,
        "ticked_at": rfc3339(done.at) if done else None,
        "note": done.words if done else None,
        "about": KNOWN_ITEMS.get(item),
    }
