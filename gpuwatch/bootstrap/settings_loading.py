"""Loads the settings for a command: with GPU names from the store, and best-effort for commands that stop costs.

Rescue mode: if the settings are invalid but launches are active, the daemon starts with the usable settings. It follows
and ends launches, sends alerts, and rents nothing (docs/decisions/0062).
"""

from __future__ import annotations

import logging

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.errors import SettingsError, StoreError, StoreMissing
from gpuwatch.settings import Settings, UsableSettings, load, load_for_stopping, probable_store_url, store_url

log = logging.getLogger(__name__)

_MAX_LISTED = 20  # maximum number of instances to list


def load_settings(
    config: str | None, *, for_stopping: bool = False, content: bytes | None = None, all_warnings: bool = False
) -> Settings:
    """The settings. Accepts GPU names and regions that only the store has recorded.

    Opens the store only if one is unknown.

    Args:
        for_stopping: ignore invalid parts, with one warning each, if the database setting is valid. For
            commands that end or prevent costs; nothing is rented with such settings.
        content: validate the file as if it had this content.
        all_warnings: print also the warnings that another command printed today.

    Raises:
        SettingsError: they are invalid. With `for_stopping` the last lines name the manual steps.
    """
    try:
        return _load(config, content, all_warnings)
    except SettingsError:
        if not for_stopping:
            raise
    try:
        valid = load_for_stopping(config)
    except SettingsError as error:
        raise SettingsError([*error.faults, *manual_end_hints(probable_store_url(config))]) from None
    for line in valid.lines:
        log.warning("%s", line)
    return valid.settings


def _load(config: str | None, content: bytes | None, all_warnings: bool) -> Settings:
    try:
        return load(config, content=content, all_warnings=all_warnings)
    except SettingsError as error:
        if not error.has_unknown_names:
            raise
        gpus, places = _recorded_names(store_url(config))
        return load(config, known_spellings=gpus, recorded_places=places, content=content, all_warnings=all_warnings)


def _recorded_names(url: str) -> tuple[frozenset[str], frozenset[str]]:
    """GPU names and regions reported by providers."""
    from gpuwatch.storage.history.queries.history_queries import known_gpu_names, known_places
    from gpuwatch.storage.setup.database import open_database

    try:
        store = open_database(url, read_only=True)  # any schema: `run` upgrades it later
        try:
            return known_gpu_names(store), known_places(store)
        finally:
            store.close()
    except StoreError:
        return frozenset(), frozenset()  # no store yet


def manual_end_hints(url: str | None) -> list[str]:
    """Active launches, from a store of any schema; else how to recognise their instances at the provider."""
    from gpuwatch.domain.launches.instance import LABEL_PREFIX

    lines = []
    for provider, instance_id, label in _alive(url)[:_MAX_LISTED]:
        instance = f"instance {instance_id}" if instance_id else "the instance"
        lines.append(f"manually: end {instance} with the label {label} at {provider}")
    return lines or [f"manually: end each instance whose label begins with {LABEL_PREFIX} at its provider"]


def _alive(url: str | None) -> list[tuple[str, str | None, str]]:
    """Provider, instance id and label of active launches."""
    from gpuwatch.storage.setup.database import open_database
    from gpuwatch.storage.setup.launch_rows import alive_in_any_schema

    if url is None:
        return []
    try:
        store = open_database(url, read_only=True)
        try:
            with store.read() as connection:
                return alive_in_any_schema(connection)
        finally:
            store.close()
    except StoreError:
        return []  # the guess was wrong


def load_or_rescue(config: str | None) -> UsableSettings:
    """The settings, or those of rescue mode if they are invalid and a launch is active.

    Raises:
        SettingsError: they are invalid, and no launch is active.
        StoreError: they are invalid, and neither the database nor the keeper's file shows whether a launch is active.
    """
    try:
        return UsableSettings(load_settings(config))
    except SettingsError as error:
        rescued = _rescue_settings(config, error)
        if rescued is None:
            raise
        return rescued


def load_for_keeping(config: str | None) -> UsableSettings:
    """The settings, or what can be read of them and was valid before: to end what is overdue, and nothing else.

    Raises:
        SettingsError: they are invalid, and not even the address of the database is known.
    """
    from gpuwatch.settings.rescue import load_for_rescue

    try:
        return UsableSettings(load_settings(config))
    except SettingsError as error:
        rescued = load_for_rescue(config)
        return UsableSettings(rescued.settings, tuple(dict.fromkeys((*error.faults, *rescued.lines))))


def _rescue_settings(config: str | None, error: SettingsError) -> UsableSettings | None:
    from gpuwatch.settings.rescue import load_for_rescue

    try:
        rescued = load_for_rescue(config)
    except SettingsError:
        return None
    alive = _count_alive(rescued.settings)
    if not alive:
        return None
    active = count_text(alive, "launch is", "launches are")
    more = f" (and {len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
    fault = f"{error.faults[0]}{more}"
    reason = f"rescue mode: {active} active and the settings are wrong, so gpuwatch rents nothing: {fault}"
    settings = msgspec.structs.replace(rescued.settings, rescue=reason)
    return UsableSettings(settings, tuple(dict.fromkeys((*error.faults, *rescued.lines))))


def _count_alive(settings: Settings) -> int:
    """Number of active launches, from the database, or from the keeper's file if that does not answer.

    Raises:
        StoreError: it does not answer, and the file lists nothing.
    """
    from gpuwatch.bootstrap.keeper_building import obligation_file
    from gpuwatch.storage.setup.database import open_database
    from gpuwatch.storage.setup.launch_rows import count_alive

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
