"""Adds what is over to the lake, once a day: the command that the owner has does it, in a process of its own.

Its libraries take as much memory as the daemon, and stay in a process that has loaded them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from gpuwatch.errors import StoreError
from gpuwatch.storage.history.lake.lake_notes import lake_verified_until_s
from gpuwatch.storage.history.lake.lake_place import open_place
from gpuwatch.storage.history.lake.lake_source import over_until_s
from gpuwatch.storage.setup.database import Database

log = logging.getLogger(__name__)


class DailyLake:
    """The lake of the settings.

    Args:
        place: as in the settings.
        export: runs `gpuwatch store export --lake`; returns None, or why it failed.
    """

    def __init__(self, store: Database, place: str, export: Callable[[], str | None]) -> None:
        self._store = store
        self._place = place
        self._export = export
        self._done_s = 0  # what was over at the last run

    def run_if_due(self, now: datetime) -> None:
        """Write what is over, if a day is over that is not in the lake. Raises StoreError: it failed."""
        with self._store.read() as connection:
            over_s = over_until_s(connection, int(now.timestamp()))
            if over_s <= self._done_s:
                return
            verified_s = lake_verified_until_s(connection, open_place(self._place).url)
        if verified_s is None or verified_s < over_s:
            failure = self._export()
            if failure is not None:
                raise StoreError(f"the lake {self._place} was not written: {failure}")
            log.info("the lake %s is up to date", self._place)
        self._done_s = over_s
