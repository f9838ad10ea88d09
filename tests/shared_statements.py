"""All tests of a worker compile each SQL statement once: an engine compiles for itself, and each test opens its own."""

from __future__ import annotations

from sqlalchemy import Dialect
from sqlalchemy.util import LRUCache

from gpuwatch.storage.setup.database import Database

_STATEMENTS = 500  # as many as an engine keeps
_shared: dict[str, tuple[Dialect, LRUCache]] = {}


def share_statements(database: Database) -> Database:
    """Use the statements that the engines of other tests compiled. The compiler is SQLAlchemy's own."""
    engine = database.engine
    if engine.dialect.name not in _shared:
        engine.connect().close()  # its dialect learns from the first connection
        engine.dispose()
        _shared[engine.dialect.name] = engine.dialect, LRUCache(_STATEMENTS)
    engine.dialect, compiled = _shared[engine.dialect.name]  # a statement is cached with its dialect
    engine.update_execution_options(compiled_cache=compiled)
    return database
