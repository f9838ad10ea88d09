"""What launches cost and used, as rows: the invoices of providers, and GPU utilisation, one row per poll.

An instance's day of an invoice is replaced as a whole; final days never change. `percent` NULL in a sample: the
provider stated none, which is not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, true

from gpuwatch.domain.launches.instances.instance_checks import UtilisationSample
from gpuwatch.domain.launches.money.charge_comparison import InvoiceRow
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.schema.launch_side_tables import invoice_line
from gpuwatch.storage.setup.schema.launch_side_tables import utilisation_sample as samples
from gpuwatch.storage.setup.stored_values import from_ms, to_ms, upsert

_EPOCH = date(1970, 1, 1)


class SqlInvoiceRepository:
    """The invoice lines of all providers. All methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[InvoiceRow]:
        """Return every stored line, oldest day first."""
        return self._read(true())

    def between(self, first: date, after: date) -> list[InvoiceRow]:
        """Return the lines of the days from the first up to, but not including, another, oldest day first."""
        day = invoice_line.c.day
        return self._read(and_(day >= days_since_1970(first), day < days_since_1970(after)))

    def _read(self, condition: ColumnElement[bool]) -> list[InvoiceRow]:
        columns = invoice_line.c
        order = columns.day, columns.provider, columns.instance_id, columns.kind
        lines = select(invoice_line).where(condition).order_by(*order)
        with self._database.read() as connection:
            rows = connection.execute(lines).all()
        return [
            InvoiceRow(
                provider=row.provider,
                instance_id=row.instance_id,
                day=_date(row.day),
                kind=row.kind,
                microusd=row.microusd,
                final=bool(row.final),
            )
            for row in rows
        ]

    def final_days(self, provider: str) -> set[tuple[str, date]]:
        """Return the (instance, day) whose charges are final."""
        days = (
            select(invoice_line.c.instance_id, invoice_line.c.day)
            .where(invoice_line.c.provider == provider)
            .group_by(invoice_line.c.instance_id, invoice_line.c.day)
            .having(func.min(invoice_line.c.final) == 1)
        )
        with self._database.read() as connection:
            return {(instance_id, _date(day)) for instance_id, day in connection.execute(days)}

    def save(self, rows: Sequence[InvoiceRow]) -> int:
        """Save rows, each instance's day as a whole, over final rows only if they are final, too; return how many."""
        days: dict[tuple[str, str, int], list[InvoiceRow]] = {}
        for row in rows:
            days.setdefault((row.provider, row.instance_id, days_since_1970(row.day)), []).append(row)
        if not days:
            return 0
        with self._database.write() as connection:
            return sum(_replace_day(connection, key, day_rows) for key, day_rows in sorted(days.items()))


def _replace_day(connection: Connection, key: tuple[str, str, int], rows: Sequence[InvoiceRow]) -> int:
    provider, instance_id, day = key
    is_day = and_(
        invoice_line.c.provider == provider, invoice_line.c.instance_id == instance_id, invoice_line.c.day == day
    )
    is_final = connection.execute(select(func.min(invoice_line.c.final)).where(is_day)).scalar()
    if is_final == 1 and not all(row.final for row in rows):
        return 0
    connection.execute(delete(invoice_line).where(is_day))
    new_rows = [
        {
            "provider": provider,
            "instance_id": instance_id,
            "day": day,
            "kind": row.kind,
            "microusd": row.microusd,
            "final": int(row.final),
        }
        for row in rows
    ]
    connection.execute(insert(invoice_line), new_rows)
    return len(rows)


def days_since_1970(day: date) -> int:
    """Return a day as it is stored."""
    return (day - _EPOCH).days


def _date(number: int) -> date:
    return _EPOCH + timedelta(days=number)


class SqlUtilisationRepository:
    """The utilisation samples of all launches."""

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
