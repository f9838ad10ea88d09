"""What pruned rows still add to counters: a counter of /metrics never falls."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, String, Table, func, literal, select, union_all

from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.schema.job_tables import job
from gpuwatch.storage.setup.side_tables import alert
from gpuwatch.storage.setup.stored_values import upsert
from gpuwatch.storage.setup.tables import pruned_total

_NONE = literal("", String)
# table → what its rows add: kind, severity, total
_COUNTED: dict[Table, Select[Any]] = {
    alert: select(alert.c.kind, alert.c.severity, func.count()).group_by(alert.c.kind, alert.c.severity),
    job: select(_NONE, _NONE, func.coalesce(func.sum(job.c.spent_microusd), 0)),
}


def keep_totals(connection: Connection, table: Table, where: list[ColumnElement[bool]]) -> None:
    """Add what rows count, in the transaction that deletes them."""
    if table not in _COUNTED:
        return
    kept = {(kind, severity): total for kind, severity, total in connection.execute(_kept(table))}
    for kind, severity, added in connection.execute(_COUNTED[table].where(*where)).all():
        row = {"counter": table.name, "kind": kind, "severity": severity}
        upsert(connection, pruned_total, row | {"total": kept.get((kind, severity), 0) + int(added)})


def counted_ever(connection: Connection, table: Table) -> dict[tuple[str, str], int]:
    """Return (kind, severity) → what all rows add that there are or were."""
    totals: dict[tuple[str, str], int] = {}
    # one statement: between two, rows may be pruned
    for kind, severity, total in connection.execute(union_all(_COUNTED[table], _kept(table))):
        totals[kind, severity] = totals.get((kind, severity), 0) + int(total)
    return totals


def alerts_stored(database: Database) -> dict[tuple[str, str], int]:
    """Return (kind, severity) → number of alerts that were ever stored. Raises StoreError."""
    with database.read() as connection:
        return counted_ever(connection, alert)


def _kept(table: Table) -> Select[Any]:
    kept = select(pruned_total.c.kind, pruned_total.c.severity, pruned_total.c.total)
    return kept.where(pruned_total.c.counter == table.name)
