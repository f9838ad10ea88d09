"""Databases at the newest schema. An SQLite file is copied, because the migrations take a hundred times as long."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.migrate import upgrade

_LOCK = threading.Lock()  # alembic keeps its state in a module: two threads must not migrate at the same moment


def empty_file() -> bytes:
    """Return the contents of a new database. Thread-safe."""
    with _LOCK:
        return _empty_file()


@cache
def _empty_file() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "gpuwatch.db"
        database = open_database(f"sqlite:///{path}")
        upgrade(database)
        database.close()
        return path.read_bytes()


def open_upgraded(url: str) -> Database:
    """Open it; creates a missing SQLite file. Existing contents stay."""
    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not path.exists():
        path.write_bytes(empty_file())
    database = open_database(url)
    upgrade(database)
    return database
