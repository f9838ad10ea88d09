"""Rescue mode: with wrong settings, but launches alive, the daemon starts with what can be saved of the settings.

It follows and ends what is rented, reports, and rents nothing (docs/decisions/0082).
"""

from __future__ import annotations

import msgspec

from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.errors import SettingsError, StoreError, StoreMissing
from gpuwatch.settings import Settings


class FirstSettings(msgspec.Struct, frozen=True):
    """What a daemon starts with; `lines` say what is wrong and what was left out, one each, in rescue mode only."""

    settings: Settings
    lines: tuple[str, ...] = ()


def first_settings(config: str | None) -> FirstSettings:
    """The settings, or those of rescue mode if they are wrong and something rented is alive.

    Raises:
        SettingsError: they are wrong, and nothing is alive.
        StoreError: they are wrong, and neither the database nor the keeper's file says whether something is alive.
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
    alive = _count_alive(found.settings)
    if not alive:
        return None
    what = "1 launch is" if alive == 1 else f"{alive} launches are"
    more = f" (and {len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
    reason = (
        f"rescue mode: {what} active and the settings are wrong, so gpuwatch rents nothing: {error.faults[0]}{more}"
    )
    settings = msgspec.structs.replace(found.settings, rescue=reason)
    return FirstSettings(settings, tuple(dict.fromkeys((*error.faults, *found.lines))))


def _count_alive(settings: Settings) -> int:
    """By the database; by the keeper's file while that does not answer.

    Raises:
        StoreError: it does not answer, and the file names nothing.
    """
    from gpuwatch.bootstrap.keeper import obligation_file
    from gpuwatch.storage.database import open_database
    from gpuwatch.storage.launch_repository import count_alive

    try:
        store = open_database(settings.database_url, read_only=True)  # of any schema: the daemon upgrades it after this
        try:
            return count_alive(store)
        finally:
            store.close()
    except StoreError as error:
        due = len(obligation_file(settings).open_obligations())
        if due or isinstance(error, StoreMissing):
            return due
        raise
