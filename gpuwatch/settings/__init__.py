"""Settings: built-in defaults, a TOML file, the environment. `load` merges them into one frozen `Settings`."""

from __future__ import annotations

from gpuwatch.settings.best_effort import UsableSettings
from gpuwatch.settings.load import from_flags, load, load_draft, load_for_stopping, probable_store_url, store_url
from gpuwatch.settings.model import Settings
from gpuwatch.settings.rescue import store_last_good

__all__ = [
    "Settings",
    "UsableSettings",
    "from_flags",
    "load",
    "load_draft",
    "load_for_stopping",
    "probable_store_url",
    "store_last_good",
    "store_url",
]
