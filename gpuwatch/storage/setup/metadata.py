"""The metadata object of all tables, and the names of their constraints."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Index, MetaData, TextClause, event

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def partial_index(name: str, *columns: str, where: ColumnElement[bool] | TextClause, unique: bool = False) -> Index:
    """A partial index. `postgresql_where` is set only when needed: checking it loads that dialect, 2 MB."""
    return Index(name, *columns, unique=unique, sqlite_where=where, info={"where": where})


@event.listens_for(metadata, "before_create")
def _on_create(target: MetaData, connection: Connection, **_: Any) -> None:
    if connection.dialect.name == "postgresql":
        for index in (one for table in target.tables.values() for one in table.indexes if "where" in one.info):
            index.dialect_options["postgresql"]["where"] = index.info["where"]
