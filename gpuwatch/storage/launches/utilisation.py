"""GPU utilisation of instances, one row per poll. `percent` NULL: the provider stated none, which is not 0."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import and_, delete, func, select

from gpuwatch.domain.launches.instances.utilisation import UtilisationSample
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.stored_values import from_ms, to_ms, upsert
from gpuwatch.storage.setup.tables import utilisation_sample as samples


class SqlUtilisationRepository:
    """The samples of all launches."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, launch_id: str, sample: UtilisationSample) -> None:
        """Save one; it replaces one of the same millisecond. Raises StoreError."""
        row = {"launch_id": launch_id, "at_ms": to_ms(sample.at), "percent": sample.percent}
        with self._database.write() as connection:
            upsert(connection, samples, row)

    def samples_since(self, launch_id: str, since: datetime) -> list[UtilisationSample]:
        """Return the samples from a moment on, oldest first. Raises StoreError."""
        is_wanted = and_(samples.c.launch_id == launch_id, samples.c.at_ms >= to_ms(since))
        query = select(samples.c.at_ms, samples.c.percent).where(is_wanted).order_by(samples.c.at_ms)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [UtilisationSample(from_ms(at_ms), percent) for at_ms, percent in rows]

    def mean(self, launch_id: str) -> float | None:
        """Return the mean of a launch's known samples, or None. Raises StoreError."""
        query = select(func.avg(samples.c.percent)).where(samples.c.launch_id == launch_id)
        with self._database.read() as connection:
            mean = connection.execute(query).scalar()
        return None if mean is None else float(mean)

    def delete_before(self, before: datetime) -> int:
        """Delete older samples, each launch in its own transaction; return how many. Raises StoreError."""
        is_older = samples.c.at_ms < to_ms(before)
        with self._database.read() as connection:
            launches = connection.execute(select(samples.c.launch_id).where(is_older).distinct()).scalars().all()
        deleted = 0
        for launch_id in launches:
            with self._database.write() as connection:
                is_own = and_(samples.c.launch_id == launch_id, is_older)
                deleted += connection.execute(delete(samples).where(is_own)).rowcount
        return deleted
