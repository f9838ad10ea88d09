"""What is known of each provider's answers, as rows."""

from __future__ import annotations

from sqlalchemy import Connection

from gpuwatch.ports import ProviderHealth
from gpuwatch.storage.answer_changes import clean
from gpuwatch.storage.executor import CoreExecutor
from gpuwatch.storage.watch_states import from_ms, to_ms

_ALL = "SELECT provider, complete_at_ms, blind_since_ms, last_error FROM provider_health"
_SAVE = """INSERT INTO provider_health (provider, complete_at_ms, blind_since_ms, last_error) VALUES (?, ?, ?, ?)
 ON CONFLICT (provider) DO UPDATE SET complete_at_ms = excluded.complete_at_ms,
 blind_since_ms = excluded.blind_since_ms, last_error = excluded.last_error"""


def load_provider_health(connection: Connection) -> dict[str, ProviderHealth]:
    """By provider."""
    return {
        provider: ProviderHealth(complete_at=from_ms(complete), blind_since=from_ms(blind), last_error=error)
        for provider, complete, blind, error in CoreExecutor(connection).rows(_ALL)
    }


def save_provider_health(connection: Connection, provider: str, sight: ProviderHealth) -> None:
    """Keep it."""
    error = None if sight.last_error is None else clean(sight.last_error, 500)
    CoreExecutor(connection).run(_SAVE, (provider, to_ms(sight.complete_at), to_ms(sight.blind_since), error))
