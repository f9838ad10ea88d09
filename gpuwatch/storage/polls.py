"""What the recorded polls tell about asking: when the market was swept last, and what that cost."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor

_ONE_ROUND_S = 86_400  # a sweep of another day belongs to GPUs that are no longer swept
_NEWEST = """SELECT p.at_s, p.rows FROM poll p WHERE p.id IN (SELECT max(id) FROM poll
 WHERE provider = ? AND covers = 1 AND completeness = 'complete' GROUP BY gpu, spot)"""

_COMPLETE = """SELECT at_s FROM poll WHERE provider = ? AND completeness IN ('complete', 'truncated')
 ORDER BY at_s DESC LIMIT 1"""


class LastSweep(msgspec.Struct, frozen=True, kw_only=True):
    """The newest complete sweep of every GPU and rental type that is swept."""

    at: datetime  # the newest of them
    rows: int  # what all of them cost


def last_sweep(database: Database, provider: str) -> LastSweep | None:
    """When a provider's market was read last; None: never. Raises StoreError."""
    with database.read() as connection:
        found = CoreExecutor(connection).rows(_NEWEST, (provider,))
    if not found:
        return None
    newest_s = max(at_s for at_s, _ in found)
    rows = sum(rows for at_s, rows in found if at_s > newest_s - _ONE_ROUND_S)
    return LastSweep(at=datetime.fromtimestamp(newest_s, UTC), rows=rows)


def last_complete(database: Database, provider: str) -> datetime | None:
    """When a provider last answered a question completely; None: never. Raises StoreError."""
    with database.read() as connection:
        found = CoreExecutor(connection).rows(_COMPLETE, (provider,))
    return datetime.fromtimestamp(found[0][0], UTC) if found else None
