"""What providers charged, as rows. An instance's day is replaced whole; what is final is never taken back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from gpuwatch.domain.launches.invoices import InvoiceRow
from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor

_EPOCH = date(1970, 1, 1)
_COLUMNS = "provider, instance_id, day, kind, microusd, final"
_ALL = f"SELECT {_COLUMNS} FROM charge ORDER BY day, provider, instance_id, kind"  # noqa: S608 our own words
_OF = f"SELECT {_COLUMNS} FROM charge WHERE provider = ? ORDER BY day, instance_id, kind"  # noqa: S608
_FINAL = "SELECT instance_id, day FROM charge WHERE provider = ? GROUP BY instance_id, day HAVING MIN(final) = 1"
_IS_FINAL = "SELECT MIN(final) FROM charge WHERE provider = ? AND instance_id = ? AND day = ?"
_FORGET = "DELETE FROM charge WHERE provider = ? AND instance_id = ? AND day = ?"
_KEEP = f"INSERT INTO charge ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608


class SqlInvoiceRepository:
    """Implements `ports.ChargeBook` over the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self, provider: str | None = None) -> list[InvoiceRow]:
        """What is known, oldest day first."""
        with self._database.read() as connection:
            executor = CoreExecutor(connection)
            found = executor.rows(_ALL) if provider is None else executor.rows(_OF, (provider,))
        return [
            InvoiceRow(
                provider=name, instance_id=instance_id, day=_date(day), kind=kind, microusd=amount, final=bool(final)
            )
            for name, instance_id, day, kind, amount, final in found
        ]

    def final(self, provider: str) -> set[tuple[str, date]]:
        """(instance, day) whose charges will not change any more."""
        with self._database.read() as connection:
            return {
                (instance_id, _date(day)) for instance_id, day in CoreExecutor(connection).rows(_FINAL, (provider,))
            }

    def keep(self, rows: Sequence[InvoiceRow]) -> int:
        """Keep rows, each instance's day whole; answers how many."""
        days: dict[tuple[str, str, int], list[InvoiceRow]] = {}
        for row in rows:
            days.setdefault((row.provider, row.instance_id, _number(row.day)), []).append(row)
        if not days:
            return 0
        with self._database.write() as connection:
            executor = CoreExecutor(connection)
            return sum(_keep_day(executor, key, of_day) for key, of_day in sorted(days.items()))


def _keep_day(executor: CoreExecutor, key: tuple[str, str, int], rows: Sequence[InvoiceRow]) -> int:
    known = executor.rows(_IS_FINAL, key)[0][0]
    if known == 1 and not all(row.final for row in rows):
        return 0
    executor.run(_FORGET, key)
    executor.run_many(_KEEP, [(*key, row.kind, row.microusd, int(row.final)) for row in rows])
    return len(rows)


def _number(day: date) -> int:
    return (day - _EPOCH).days


def _date(number: int) -> date:
    return _EPOCH + timedelta(days=number)
