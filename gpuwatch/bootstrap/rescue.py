"""Rescue mode: if the settings are invalid but launches are active, the daemon starts with the usable settings.

It follows and ends launches, sends alerts, and rents nothing (docs/decisions/0082).
"""

from __future__ import annotations

import msgspec

from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.errors import SettingsError, StoreError, StoreMissing
from gpuwatch.settings import Settings


class StartSettings(msgspec.Struct, frozen=True):
    """The settings a daemon starts with; in rescue mode, `lines` name the errors and ignored parts, one each."""

    settings: Settings
    lines: tuple[str, ...] = ()


def load_or_rescue(config: str | None) -> StartSettings:
    """The settings, or those of rescue mode if they are invalid and a launch is active.

    Raises:
        SettingsError: they are invalid, and no launch is active.
        StoreError: they are invalid, and neither the database nor the keeper's file shows whether a launch is active.
    """
    try:
        return StartSettings(load_settings(config))
    except SettingsError as error:
        rescued = _rescue_settings(config, error)
        if rescued is None:
            raise
        return rescued


def _rescue_settings(config: str | None, error: SettingsError) -> StartSettings | None:
    from gpuwatch.settings.rescue import load_for_rescue

    try:
        rescued = load_for_rescue(config)
    except SettingsError:
        return None
    alive = _count_alive(rescued.settings)
    if not alive:
        return None
    active = "1 launch is" if alive == 1 else f"{alive} launches are"
    more = f" (and {len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
    fault = f"{error.faults[0]}{more}"
    reason = f"rescue mode: {active} active and the settings are wrong, so gpuwatch rents nothing: {fault}"
    settings = msgspec.structs.replace(rescued.settings, rescue=reason)
    return StartSettings(settings, tuple(dict.fromkeys((*error.faults, *rescued.lines))))


def _count_alive(settings: Settings) -> int:
    """Number of active launches, from the database, or from the keeper's file if that does not answer.

    Raises:
        StoreError: it does not answer, and the file lists nothing.
    """
    from gpuwatch.bootstrap.keeper_building import obligation_file
    from gpuwatch.storage.launches.launch_repository import count_alive
    from gpuwatch.storage.setup.database import open_database

    try:
        store = open_database(settings.database_url, read_only=True)  # any schema: the daemon upgrades it later
        try:
            return count_alive(store)
        finally:
            store.close()
    except StoreError as error:
        obligations = len(obligation_file(settings).open_obligations())
        if obligations or isinstance(error, StoreMissing):
            return obligations
        raise
