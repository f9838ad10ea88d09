"""What the daemon remembers between polls, as rows: the watches, the providers' health, and values seen before."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from gpuwatch.domain.watches.decide import WatchMemory
from gpuwatch.ports import ProviderHealth
from gpuwatch.storage.answer_changes import clean
from gpuwatch.storage.rows import from_ms, insert_if_absent, to_ms, upsert
from gpuwatch.storage.tables import provider_health, seen_value, watch_state

_ALL_WATCHES, _ALL_PROVIDERS = select(watch_state), select(provider_health)


def load_watch_states(connection: Connection) -> dict[str, WatchMemory]:
    """By the watch's name; a watch that has not seen anything yet is missing."""
    return {
        row.watch: WatchMemory(
            fired_at=from_ms(row.fired_at_ms),
            fired_microusd_gpu_hour=row.fired_microusd_gpu_hour,
            under_since=from_ms(row.under_since_ms),
            misses=row.misses,
        )
        for row in connection.execute(_ALL_WATCHES)
    }


def save_watch_state(connection: Connection, watch: str, memory: WatchMemory) -> None:
    """Save it, in the transaction of what follows from it."""
    row = {
        "watch": watch,
        "fired_at_ms": to_ms(memory.fired_at),
        "fired_microusd_gpu_hour": memory.fired_microusd_gpu_hour,
        "under_since_ms": to_ms(memory.under_since),
        "misses": memory.misses,
    }
    upsert(connection, watch_state, row)


def load_provider_health(connection: Connection) -> dict[str, ProviderHealth]:
    """By the provider's name."""
    return {
        row.provider: ProviderHealth(
            complete_at=from_ms(row.complete_at_ms),
            blind_since=from_ms(row.blind_since_ms),
            last_error=row.last_error,
        )
        for row in connection.execute(_ALL_PROVIDERS)
    }


def save_provider_health(connection: Connection, provider: str, health: ProviderHealth) -> None:
    """Save it."""
    row = {
        "provider": provider,
        "complete_at_ms": to_ms(health.complete_at),
        "blind_since_ms": to_ms(health.blind_since),
        "last_error": None if health.last_error is None else clean(health.last_error, 500),
    }
    upsert(connection, provider_health, row)


def was_seen_before(connection: Connection, provider: str, kind: str, value: str, now: datetime) -> bool:
    """Was this GPU spelling, field or skip reason seen before? From now on it was: the first to ask reports it."""
    row = {
        "provider": provider,
        "kind": clean(kind, 16),
        "value": clean(value, 200),
        "first_seen_ms": to_ms(now),
    }
    return not insert_if_absent(connection, seen_value, row)
