"""How large each table is, how fast it grows, and what `[history] keep` deletes next, without reading rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Column, Connection, Table, UniqueConstraint, func, select

from gpuwatch.domain.setup.durations import DAY_S, format_duration
from gpuwatch.domain.setup.history_keep import FOREVER, HistoryKeep
from gpuwatch.storage.history.queries.history_queries import FIRST_HOUR
from gpuwatch.storage.history.table_ends import TABLE_ENDS, WHY_ROWS_STAY, horizons, is_kept_by_default
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.store_stats import POLL_ROWS_SPAN
from gpuwatch.storage.setup.stored_values import to_ms
from gpuwatch.storage.setup.tables import hourly, metadata, poll

_MONTH_DAYS = 30
_YEAR_DAYS = 365
_SAMPLED_ROWS = 200
_ROW_BYTES = 12  # of a row or of an entry of an index, beside its values
_MS = 1000 * DAY_S
# the column that says when a row was written, the first that a table has → how many of its unit are a day
_DATED_BY = {
    **dict.fromkeys(("at_s", "seen_from_s"), DAY_S),
    "hour": 24,
    "day": 1,
    **dict.fromkeys(("at_ms", "created_at_ms", "intended_at_ms", "submitted_at_ms", "received_at_ms"), _MS),
    **dict.fromkeys(("made_at_ms", "started_at_ms", "first_seen_ms", "set_at_ms", "next_try_at_ms"), _MS),
}


class TableGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """A table: today, its growth, and a year from now."""

    table: str
    rows: int
    bytes: int  # with its indexes
    rows_a_month: int | None  # 30 days; None: its rows span less than a day
    bytes_a_month: int | None
    bytes_in_a_year: int
    rows_over: int  # what is deleted next, or, where nothing is decided, would be
    ends: str  # when its rows end, or why they stay


class StoreGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """All tables, the largest first."""

    keep: dict[str, str]  # by default, if it is not in force
    is_in_force: bool  # False: an older store whose owner has not set it; nothing is deleted
    bytes_a_month: int
    bytes_in_a_year: int
    bytes_over: int
    are_bytes_estimated: bool  # SQLite without dbstat: from a sample of rows
    tables: tuple[TableGrowth, ...]


def read_growth(database: Database, keep: HistoryKeep | None, now: datetime, rows: Mapping[str, int]) -> StoreGrowth:
    """Measure every table.

    Args:
        keep: as the owner has set it.
        rows: of each table, as `read_store_stats` has counted them.

    Raises:
        StoreError: the store cannot be read.
    """
    with database.read() as connection:
        if keep is None and is_kept_by_default(connection):
            keep = HistoryKeep()
        sizes = _sizes(connection, rows)
        over = _rows_over(connection, keep or HistoryKeep(), now)
        days = {name: _days(connection, metadata.tables[name], now) for name in rows if rows[name]}
    tables = [_table_growth(name, rows[name], sizes[name], over.get(name, 0), days.get(name), keep) for name in rows]
    tables.sort(key=lambda one: (-one.bytes, one.table))
    return StoreGrowth(
        keep=_texts(keep or HistoryKeep()),
        is_in_force=keep is not None,
        bytes_a_month=sum(one.bytes_a_month or 0 for one in tables),
        bytes_in_a_year=sum(one.bytes_in_a_year for one in tables),
        bytes_over=sum(one.bytes * one.rows_over // max(one.rows, 1) for one in tables),
        are_bytes_estimated=database.is_sqlite,
        tables=tuple(tables),
    )


class UndecidedKeep(msgspec.Struct, frozen=True, kw_only=True):
    """What a store from before `[history] keep` would lose by its default."""

    rows: str  # of which tables, the most first
    keep: str  # the default, as in the settings

    @property
    def line(self) -> str:
        """All of it, with what to do."""
        return (
            f"[history] keep is not set, and the store has older rows: nothing is deleted. keep = {self.keep} would"
            f" delete {self.rows}: copy the store first (gpuwatch store backup FILE, or [history] lake), then set it"
        )


def undecided_keep(database: Database, now: datetime) -> UndecidedKeep | None:
    """What a store from before `[history] keep` would lose by it; None: it is new, or would lose nothing.

    Raises StoreError.
    """
    with database.read() as connection:
        if is_kept_by_default(connection):
            return None
        over = _rows_over(connection, HistoryKeep(), now)
    parts = [f"{count:,} rows of {name}" for name, count in sorted(over.items(), key=lambda one: -one[1]) if count]
    keep = ", ".join(f'{name} = "{span}"' for name, span in _texts(HistoryKeep()).items())
    if not parts:
        return None
    return UndecidedKeep(rows=", ".join(parts), keep=f"{{ {keep} }}")


def _texts(keep: HistoryKeep) -> dict[str, str]:
    spans = {"polls": keep.polls_s, "intervals": keep.intervals_s, "hourly": keep.hourly_s}
    return {name: format_duration(span_s) for name, span_s in spans.items()}


def _rows_over(connection: Connection, keep: HistoryKeep, now: datetime) -> dict[str, int]:
    until = horizons(connection, keep, now, FOREVER)
    counts = {}
    for end in TABLE_ENDS:
        is_over = end.is_over(until)
        if is_over is not None:
            query = select(func.count()).select_from(end.table).where(is_over)
            counts[end.table.name] = connection.execute(query).scalar_one()
    return counts


def _table_growth(
    name: str, rows: int, size: int, over: int, days: float | None, keep: HistoryKeep | None
) -> TableGrowth:
    end = next((one for one in TABLE_ENDS if one.table.name == name), None)
    rows_a_month = size_a_month = None
    in_a_year: float = size
    if days is not None:
        rows_a_month = round(rows / days * _MONTH_DAYS)
        size_a_month = round(size / days * _MONTH_DAYS)
        kept_s = FOREVER if end is None or keep is None else end.span_s(keep)
        in_a_year = size / days * min(days + _YEAR_DAYS, kept_s / DAY_S)
    return TableGrowth(
        table=name,
        rows=rows,
        bytes=size,
        rows_a_month=rows_a_month,
        bytes_a_month=size_a_month,
        bytes_in_a_year=round(in_a_year),
        rows_over=over,
        ends=WHY_ROWS_STAY[name] if end is None else end.words,
    )


def _days(connection: Connection, table: Table, now: datetime) -> float | None:
    """Return for how many days rows were written; None: for less than one, or they are not dated."""
    unit = next(((name, a_day) for name, a_day in _DATED_BY.items() if name in table.c), None)
    if unit is None:
        return None
    name, a_day = unit
    looked_up = {poll.name: POLL_ROWS_SPAN, hourly.name: FIRST_HOUR}  # where a scan would take long
    oldest = connection.execute(looked_up.get(table.name, select(func.min(table.c[name])))).scalar()
    days = None if oldest is None else to_ms(now) // 3_600_000 / 24 - oldest / a_day
    return days if days is not None and days >= 1 else None


# --- bytes ------------------------------------------------------------------------------------------------------------


def _sizes(connection: Connection, rows: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes of each table with its indexes."""
    if connection.dialect.name == "postgresql":
        return {
            name: connection.execute(select(func.pg_total_relation_size(func.to_regclass(name)))).scalar_one()
            for name in rows
        }
    # few builds of SQLite have dbstat: the bytes of the file, divided as a sample of each table's rows says
    weights = {name: rows[name] * _bytes_a_row(connection, metadata.tables[name]) for name in rows}
    pages, free, page = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        for name in ("page_count", "freelist_count", "page_size")
    )
    used = (pages - free) * page
    return {name: round(used * weight / max(sum(weights.values()), 1)) for name, weight in weights.items()}


def _bytes_a_row(connection: Connection, table: Table) -> float:
    sampled = connection.execute(select(table).limit(_SAMPLED_ROWS)).mappings().all()
    keys = [list(index.columns) for index in table.indexes]
    keys += [list(one.columns) for one in table.constraints if isinstance(one, UniqueConstraint)]
    if table.dialect_options["sqlite"]["with_rowid"] and not isinstance(table.autoincrement_column, Column):
        keys.append(list(table.primary_key))
    total = 0
    for row in sampled:
        total += _ROW_BYTES + sum(_bytes_of(value) for value in row.values())
        total += sum(_ROW_BYTES + sum(_bytes_of(row[column.name]) for column in key) for key in keys)
    return total / max(len(sampled), 1)


def _bytes_of(value: Any) -> int:
    """Return the bytes of a value in SQLite, with its type."""
    if isinstance(value, bytes):
        return 1 + len(value)
    if isinstance(value, str):
        return 1 + len(value.encode())
    if isinstance(value, int) and not isinstance(value, bool):
        return 1 + next(
            size for size in (0, 1, 2, 3, 4, 6, 8) if -(2 ** max(8 * size - 1, 0)) <= value < 2 ** max(8 * size - 1, 1)
        )
    return 9 if isinstance(value, float) else 1
