"""Settings for rescue mode: enough to follow and end launches although the settings are invalid.

Valid parts are used; invalid or unreadable parts keep their last valid value if a daemon stored it
(`last_good`), else they are ignored. Secrets are never stored: they come from the environment, from credentials, or
from the readable part of the file. Nothing is rented with such settings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import SettingsError
from gpuwatch.settings.best_effort import load_best_effort, removed, switched_off
from gpuwatch.settings.damaged_toml import readable_part
from gpuwatch.settings.interpolation import resolve
from gpuwatch.settings.last_good import load_last_good
from gpuwatch.settings.model import Settings
from gpuwatch.settings.options import KeyPath
from gpuwatch.settings.secrets import secrets_in, with_secrets
from gpuwatch.settings.sources import Sources, UnreadableValues, collect, merge, parse_file

_Table = TypeVar("_Table")
_Damaged = frozenset[tuple[str, ...]]  # tables, such as ("providers", "vastai")
_ALL: _Damaged = frozenset({("providers",), ("notify",)})  # a key from the environment may belong to any of them
_NO_FILE = os.devnull  # an empty settings file


class RescueSettings(msgspec.Struct, frozen=True):
    """Settings that rent nothing; `lines` name the parts that were ignored or kept from before, one each."""

    settings: Settings
    lines: tuple[str, ...]


def load_for_rescue(
    config: str | None = None, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> RescueSettings:
    """The usable settings. They are not cached.

    Raises:
        SettingsError: not even the address of the database is known.
    """
    unreadable: UnreadableValues = []
    lines: list[str] = []
    try:
        sources = collect(config, env, cwd, unreadable=unreadable)
    except SettingsError as error:
        lines += error.faults
        sources = collect(_NO_FILE, env, cwd, unreadable=unreadable)
    last = load_last_good(sources.env)
    tree, damaged = ({}, _ALL) if lines else _parsed(sources, lines)
    whole, origins = merge(tree, sources, unreadable)
    secrets = secrets_in(resolve(whole, sources).tree)
    kept = _without_damaged(whole, damaged)
    place = {"database_url": last.database_url} if last is not None and last.database_url else {}
    try:
        found = load_best_effort(place | kept, sources, origins, unreadable)
    except SettingsError:  # the address of the database is invalid
        found = load_best_effort(kept | place, sources, origins, unreadable)
    settings = with_secrets(found.settings, secrets_in(found.resolved.tree), sources, found.resolved.outside)
    lines += found.lines
    if last is not None:
        settings = _completed(settings, _harmless_last(last, secrets, sources), lines)
    return RescueSettings(settings, tuple(lines))


def _parsed(sources: Sources, lines: list[str]) -> tuple[dict[str, Any], _Damaged]:
    """The file's tables, and the tables that lost a line."""
    try:
        return parse_file(sources), frozenset()
    except SettingsError as error:
        lines += error.faults
    part = readable_part(sources.content.decode("utf-8-sig", "replace"))
    numbers = ", ".join(map(str, part.lines[:10])) + (", …" if len(part.lines) > 10 else "")
    lines.append(f"{sources.shown}: unreadable tables are ignored (line {numbers})")
    return part.tree, part.damaged


def _without_damaged(tree: dict[str, Any], damaged: _Damaged) -> dict[str, Any]:
    """A table that lost a line may no longer mean what its owner wrote, so it is ignored completely."""
    for table in damaged:
        if table[:1] == ("providers",):
            tree = switched_off(tree, table)
        elif table:
            tree = removed(tree, table)
    return tree


def _harmless_last(last: Settings, secrets: Mapping[KeyPath, Any], sources: Sources) -> Settings:
    """The earlier settings with the current secrets; what their launches would have run is unknown."""
    watches = tuple(msgspec.structs.replace(watch, action=Action.ALERT) for watch in last.watches)
    alone = msgspec.structs.replace(last, watches=())
    return msgspec.structs.replace(with_secrets(alone, secrets, sources), watches=watches)


def _completed(now: Settings, last: Settings, lines: list[str]) -> Settings:
    """The ignored parts, with their last valid values."""
    providers = now.providers | _missing("[providers.{}]", now.providers, last.providers, lines)
    channels = now.channels | _missing("[notify.{}]", now.channels, last.channels, lines)
    known = {watch.name: watch for watch in now.watches}
    watches = _missing('watch "{}"', known, {watch.name: watch for watch in last.watches}, lines)
    return msgspec.structs.replace(
        now, providers=providers, channels=channels, watches=(*now.watches, *watches.values())
    )


def _missing(named: str, now: Mapping[str, _Table], last: Mapping[str, _Table], lines: list[str]) -> dict[str, _Table]:
    found = {name: table for name, table in last.items() if name not in now}
    lines += [f"{named.format(name)} keeps its last valid settings" for name in found]
    return found
