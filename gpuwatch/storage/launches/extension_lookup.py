"""Looks up in the database, right before the keeper ends an instance, whether its end was moved from elsewhere.

The keeper needs no database. But a daemon that was stopped, or whose tasks hang, has not read yet that another host
extended a launch: where the database answers in time, a later end that it proves wins.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime

from sqlalchemy import select

from gpuwatch.domain.launches.instances.obligation import Obligation, is_extended, moved_by_extension
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.errors import GpuwatchError
from gpuwatch.storage.launches.obligation_file import ObligationFile
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.tables import IS_ALIVE, launch

log = logging.getLogger(__name__)

WITHIN_S = 10.0  # with the keeper's 75 s, an instance ends within two minutes of its end


class ExtensionLookup:
    """Answers for one obligation at a time, on a connection of its own that is closed again.

    Args:
        file: the keeper's; it gets the later end.
        now: the time; a later end that has passed as well is no reason to wait, even if the file could not be written.
        within_s: without an answer by then there is no later end.
    """

    def __init__(
        self, database_url: str, file: ObligationFile, now: Callable[[], datetime], within_s: float = WITHIN_S
    ) -> None:
        self._database_url = database_url
        self._file = file
        self._now = now
        self._within_s = within_s
        self._running: dict[str, threading.Thread] = {}  # by launch: a lookup that hangs is not repeated beside itself

    def is_extended(self, one: Obligation) -> bool:
        """Whether the database proves a later end, which is then in the file. Never raises GpuwatchError."""
        if one.is_ending or one.runtime_s is None or one.ends_at is None:
            return False
        previous = self._running.get(one.launch_id)
        if previous is not None and previous.is_alive():
            return False
        found: list[bool] = []
        thread = threading.Thread(target=self._look_up, args=(one, found), name="keeper lookup", daemon=True)
        self._running[one.launch_id] = thread
        thread.start()
        thread.join(self._within_s)
        if not thread.is_alive():
            self._running.pop(one.launch_id, None)
        return bool(found)

    def _look_up(self, one: Obligation, found: list[bool]) -> None:
        try:
            row = self._row(one.launch_id)
            if row is None or not is_extended(one, row[0]):
                return
            later = moved_by_extension(one, *row).ends_at
            if later is not None and later > self._now():
                found.append(True)
                log.warning("keeper: launch %s was extended from elsewhere", one.launch_id)
                self._file.extend(one, *row)
        except GpuwatchError as error:
            log.warning("keeper: looking up the end of launch %s: %s", one.launch_id, error)
        except Exception:
            log.exception("keeper: looking up the end of launch %s", one.launch_id)

    def _row(self, launch_id: str) -> tuple[float, int] | None:
        """Return its runtime and version; None: it is over or about to end. These columns are in every schema."""
        goes_on = launch.c.launch_id == launch_id, IS_ALIVE, launch.c.state != LaunchState.STOPPING.value
        database = open_database(self._database_url, read_only=True)
        try:
            with database.read() as connection:
                row = connection.execute(select(launch.c.max_runtime_s, launch.c.version).where(*goes_on)).first()
        finally:
            database.close()
        return None if row is None or row.max_runtime_s is None else (row.max_runtime_s, row.version)
