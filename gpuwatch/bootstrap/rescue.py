"""Rescue mode: with wrong settings, but launches alive, the daemon starts with what can be saved of the settings.

It follows and ends what is rented, reports, and rents nothing (docs/decisions/0082).
"""

from __future__ import annotations

import msgspec

from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.errors import SettingsError, StoreMissing
from gpuwatch.settings import Settings


class FirstSettings(msgspec.Struct, frozen=True):
    """What a daemon starts with; `lines` say what is wrong and what was left out, one each, in rescue mode only."""

    settings: Settings
    lines: tuple[str, ...] = ()


def first_settings(config: str | None) -> FirstSettings:
    """The settings, or those of rescue mode if they are wrong and something rented is alive.

    Raises:
        SettingsError: they are wrong, and nothing is alive.
        StoreError: they are wrong, and the database does not say whether something is alive.
    """
    try:
        return FirstSettings(load_settings(config))
    except SettingsError as error:
        saved = _saved(config, error)
        if saved is None:
            raise
        return saved


def _saved(config: str | None, error: SettingsError) -> FirstSettings | None:
    from gpuwatch.settings.rescue import load_for_rescue

    try:
        found = load_for_rescue(config)
    except SettingsError:
        return None
    alive = _count_alive(found.settings.database_url)
    if not alive:
        return None
    what = "1 launch is" if alive == 1 else f"{alive} launches are"
    more = f" (and {len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
    reason = f"rescue mode: {what} alive and the settings are wrong, so nothing is rented: {error.faults[0]}{more}"
    settings = msgspec.structs.replace(found.settings, rescue=reason)
    return FirstSettings(settings, tuple(dict.fromkeys((*error.faults, *found.lines))))


def _count_alive(url: str) -> int:
    from gpuwatch.storage.database import open_database
    from gpuwatch.storage.launch_repository import count_alive

    try:
        store = open_database(url, read_only=True)  # of any schema: the daemon upgrades it after this
    except StoreMissing:
        return 0
    try:
        return count_alive(store)
    finally:
        store.close()
