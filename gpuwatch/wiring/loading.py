"""Settings for a command, with the GPU spellings that were met at providers and stand in no catalogue."""

from __future__ import annotations

from gpuwatch.errors import SettingsError, StoreError
from gpuwatch.settings import Settings, load, store_url

_UNKNOWN_GPU = "nobody knows a GPU"


def load_settings(config: str | None) -> Settings:
    """The settings; a GPU that only the store has met is known, too. Raises SettingsError.

    The store is looked at only if a name is unknown: most starts never open it for this.
    """
    try:
        return load(config)
    except SettingsError as error:
        if not any(_UNKNOWN_GPU in fault for fault in error.faults):
            raise
        return load(config, known_spellings=_met(store_url(config)))


def _met(url: str) -> frozenset[str]:
    from gpuwatch.storage.database import open_database
    from gpuwatch.storage.questions import spellings_seen

    try:
        store = open_database(url)
        try:
            return spellings_seen(store)
        finally:
            store.close()
    except StoreError:
        return frozenset()  # no store yet: then nothing was met
