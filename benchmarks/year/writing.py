"""Writes columns of arrays into tables, millions of rows: executemany on SQLite, COPY on PostgreSQL."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import numpy as np
from sqlalchemy import Connection, Table
from sqlalchemy.schema import CreateIndex, DropIndex

from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import upgrade

Columns = Mapping[str, Any]  # an array (-1: NULL in a nullable column), a list, or one value for all rows


class TableWriter:
    """Appends rows; nothing is durable before the end."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def write(self, table: Table, columns: Columns) -> None:
        """Append the rows."""
        size = next(len(values) for values in columns.values() if isinstance(values, list | np.ndarray))
        lists = {name: _values(table, name, values, size) for name, values in columns.items()}
        if self.connection.dialect.name == "postgresql":
            self._copy(table, lists, size)
            return
        marks = ", ".join("?" * len(lists))
        sql = f"INSERT INTO {table.name} ({_names(lists)}) VALUES ({marks})"
        rows = list(zip(*lists.values(), strict=False))[:size]
        if rows:
            self.connection.exec_driver_sql(sql, rows)

    def _copy(self, table: Table, lists: Mapping[str, Any], size: int) -> None:
        import pyarrow as pa
        from pyarrow import csv

        arrays = [_arrow(pa, values, size) for values in lists.values()]
        text = io.BytesIO()
        csv.write_csv(pa.table(arrays, names=list(lists)), text, csv.WriteOptions(include_header=False))
        cursor = self.connection.connection.cursor()
        with cursor.copy(f"COPY {table.name} ({_names(lists)}) FROM STDIN (FORMAT csv)") as copy:
            copy.write(text.getbuffer())
        cursor.close()


@contextmanager
def new_store(url: str, filled: tuple[Table, ...]) -> Iterator[TableWriter]:
    """Create a store to write; the indexes of the filled tables are built at the end."""
    database = open_database(url)
    upgrade(database)
    indexes = [index for table in filled for index in table.indexes]
    with database.engine.connect() as connection:
        fast = (
            ("PRAGMA synchronous=OFF", "PRAGMA foreign_keys=OFF", "PRAGMA cache_size=-100000")
            if database.is_sqlite
            else (
                "SET session_replication_role = replica",
                "SET maintenance_work_mem = '256MB'",
                "SET synchronous_commit = off",
            )
        )
        for statement in fast:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql("BEGIN" if database.is_sqlite else "SELECT 1")
        for index in indexes:
            connection.execute(DropIndex(index))
        yield TableWriter(connection)
        for index in indexes:
            connection.execute(CreateIndex(index))
        connection.commit()
        if not database.is_sqlite:
            connection.exec_driver_sql("RESET session_replication_role")
            connection.exec_driver_sql("ANALYZE")
            connection.commit()
    database.close()


def _names(columns: Columns) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _values(table: Table, name: str, values: Any, size: int) -> Any:
    if isinstance(values, np.ndarray):
        if table.c[name].nullable and (values < 0).any():
            return [None if one < 0 else one for one in values.tolist()]
        return values.tolist()
    return values if isinstance(values, list) else repeat(values, size)


def _arrow(pa: Any, values: Any, size: int) -> Any:
    values = values if isinstance(values, list) else list(values)
    if values and isinstance(values[0], bytes):
        return pa.array(["\\x" + one.hex() for one in values])
    return pa.array(values)
