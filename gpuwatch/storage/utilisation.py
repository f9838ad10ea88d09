"""GPU use of instances, a row a look. `percent` NULL: the provider did not say, which is not 0."""

from __future__ import annotations

from datetime import datetime

from gpuwatch.domain.launches.utilisation import UtilisationSample
from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor
from gpuwatch.storage.watch_states import from_ms, to_ms

_ADD = """INSERT INTO use_sample (launch_id, at_ms, percent) VALUES (?, ?, ?)
 ON CONFLICT (launch_id, at_ms) DO UPDATE SET percent = excluded.percent"""
_SINCE = "SELECT at_ms, percent FROM use_sample WHERE launch_id = ? AND at_ms >= ? ORDER BY at_ms"
_MEAN = "SELECT avg(percent) FROM use_sample WHERE launch_id = ?"
_LAUNCHES = "SELECT DISTINCT launch_id FROM use_sample WHERE at_ms < ?"
_FORGET = "DELETE FROM use_sample WHERE launch_id = ? AND at_ms < ?"


class SqlUtilisationRepository:
    """The samples of all launches."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, launch_id: str, sample: UtilisationSample) -> None:
        """Keep one; a second one of the same millisecond takes its place. Raises StoreError."""
        with self._database.write() as connection:
            CoreExecutor(connection).run(_ADD, (launch_id, to_ms(sample.at), sample.percent))

    def since(self, launch_id: str, moment: datetime) -> list[UtilisationSample]:
        """Those from a moment on, oldest first. Raises StoreError."""
        with self._database.read() as connection:
            rows = CoreExecutor(connection).rows(_SINCE, (launch_id, to_ms(moment)))
        return [UtilisationSample(at, percent) for at_ms, percent in rows if (at := from_ms(at_ms)) is not None]

    def mean(self, launch_id: str) -> float | None:
        """Of all known samples of a launch; None: there is none. Raises StoreError."""
        with self._database.read() as connection:
            found = CoreExecutor(connection).rows(_MEAN, (launch_id,))[0][0]
        return None if found is None else float(found)

    def forget(self, before: datetime) -> int:
        """Drop older ones, a launch in a transaction; how many. Raises StoreError."""
        with self._database.read() as connection:
            launches = CoreExecutor(connection).rows(_LAUNCHES, (to_ms(before),))
        dropped = 0
        for (launch_id,) in launches:
            with self._database.write() as connection:
                dropped += CoreExecutor(connection).run(_FORGET, (launch_id, to_ms(before)))
        return dropped
