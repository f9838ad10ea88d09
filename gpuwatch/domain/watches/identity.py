"""Matches the watches of the settings with those of the store when names change: renamed, new, gone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from gpuwatch.domain.watches.watch import Action, Watch


class WatchChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between the watches of the settings and those of the store.

    Attributes:
        renamed: old name → new name.
        added: names that are new.
        blocked: watches that may not rent yet: each may be the new name of a removed watch with an active launch.
        removed: names that are no longer in the settings.
        abandoned: those of them with active launches.
    """

    renamed: Mapping[str, str]
    added: Sequence[str]
    blocked: Sequence[str]
    removed: Sequence[str]
    abandoned: Sequence[str]


def watch_changes(
    watches: Sequence[Watch], in_use: Collection[str], retired: Collection[str], alive: Collection[str]
) -> WatchChanges:
    """Compare the watches of the settings with those of the store.

    Args:
        in_use: names in the settings when they were last read.
        retired: names in earlier settings.
        alive: names of watches with active launches.
    """
    names = {watch.name for watch in watches}
    known = {*in_use, *retired}
    renamed = {w.renamed_from: w.name for w in watches if w.renamed_from in known and w.renamed_from not in names}
    renamed = {old: new for old, new in renamed.items() if old}
    taken = {*renamed.values(), *in_use, *alive}
    abandoned = sorted(set(alive) - names - renamed.keys())
    unknown = [watch for watch in watches if watch.name not in taken]
    unsure = [watch for watch in unknown if abandoned and watch.renamed_from != ""]
    return WatchChanges(
        renamed=renamed,
        added=[watch.name for watch in watches if watch.name not in in_use and watch not in unsure],
        blocked=[watch.name for watch in unsure if watch.action is not Action.ALERT],
        removed=sorted({*in_use, *abandoned} - names - renamed.keys()),
        abandoned=abandoned,
    )
