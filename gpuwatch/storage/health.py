"""What is known of each provider's answers, as rows."""

from __future__ import annotations

from sqlalchemy import Connection

from gpuwatch.ports import Sight
from gpuwatch.storage.changes import clean
from gpuwatch.storage.executor import CoreExecutor
from gpuwatch.storage.memory import from_ms, to_ms

_ALL = "SELECT provider, complete_at_ms, blind_since_ms, last_error FROM provider_health"
_SAVE = """INSERT INTO provider_health (provider, complete_at_ms, blind_since_ms, last_error) VALUES (?, ?, ?, ?)
 ON CONFLICT (provider) DO UPDATE SET complete_at_ms = excluded.complete_at_ms,
 blind_since_ms = excluded.blind_since_ms, last_error = excluded.last_error"""


def load_sights(connection: Connection) -> dict[str, Sight]:
    """By provider."""
    return {
        provider: Sight(complete_at=from_ms(complete), blind_since=from_ms(blind), last_error=error)
        for provider, complete, blind, error in CoreExecutor(connection).rows(_ALL)
    }


def save_sight(connection: Connection, provider: str, sight: Sight) -> None:
    """Keep it."""
    error = None if sight.last_error is None else clean(sight.last_error, 500)
    CoreExecutor(connection).run(_SAVE, (provider, to_ms(sight.complete_at), to_ms(sight.blind_since), error))
