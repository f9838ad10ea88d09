"""The engines of a worker share what they compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.side_tables import alert
from tests.shared_statements import share_statements
from tests.upgraded_store import empty_file


def test_a_statement_is_compiled_once_for_all_databases(tmp_path: Path) -> None:
    hits = []
    for name in ("one.db", "other.db"):
        (tmp_path / name).write_bytes(empty_file())
        database = share_statements(open_database(f"sqlite:///{tmp_path / name}"))
        hits.append(_cache_hit(database))
        database.close()
    assert hits == ["CACHE_MISS", "CACHE_HIT"]


def _cache_hit(database: Database) -> str:
    """Run a statement that no other test runs."""
    with database.read() as connection:
        result: Any = connection.execute(select(func.count().label("only_here")).select_from(alert))
        assert result.scalar() == 0
        return str(result.context.cache_hit.name)
