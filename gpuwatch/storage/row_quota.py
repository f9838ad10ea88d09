"""How many rows a provider returned on a UTC day: the marketplace rations them."""

from __future__ import annotations

from datetime import datetime

from gpuwatch.storage.executor import Executor

_DAY_S = 86_400
_ADD = """INSERT INTO quota_day (provider, day, rows) VALUES (?, ?, ?)
 ON CONFLICT (provider, day) DO UPDATE SET rows = quota_day.rows + excluded.rows"""


def day_of(moment: datetime) -> int:
    """Days since 1970, UTC."""
    return int(moment.timestamp()) // _DAY_S


def add_rows(executor: Executor, provider: str, at: datetime, rows: int) -> None:
    """Count rows that an answer brought."""
    if rows > 0:
        executor.run(_ADD, (provider, day_of(at), rows))


def rows_used(executor: Executor, provider: str, at: datetime) -> int:
    """Rows counted since 00:00 UTC."""
    found = executor.rows("SELECT rows FROM quota_day WHERE provider = ? AND day = ?", (provider, day_of(at)))
    return int(found[0][0]) if found else 0
