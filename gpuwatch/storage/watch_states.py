"""What a watch remembers between looks, as rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from gpuwatch.domain.watches.decide import WatchMemory
from gpuwatch.storage.executor import CoreExecutor

_ALL = "SELECT watch, fired_at_ms, fired_microusd_gpu_hour, under_since_ms, misses FROM watch_memory"
_SAVE = """INSERT INTO watch_memory (watch, fired_at_ms, fired_microusd_gpu_hour, under_since_ms, misses)
 VALUES (?, ?, ?, ?, ?) ON CONFLICT (watch) DO UPDATE SET fired_at_ms = excluded.fired_at_ms,
 fired_microusd_gpu_hour = excluded.fired_microusd_gpu_hour, under_since_ms = excluded.under_since_ms,
 misses = excluded.misses"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def load_watch_states(connection: Connection) -> dict[str, WatchMemory]:
    """What every watch remembers, by its name; a watch that never saw anything is not there."""
    return {
        watch: WatchMemory(
            fired_at=from_ms(fired), fired_microusd_gpu_hour=price, under_since=from_ms(under), misses=misses
        )
        for watch, fired, price, under, misses in CoreExecutor(connection).rows(_ALL)
    }


def save_watch_state(connection: Connection, watch: str, memory: WatchMemory) -> None:
    """Keep it, in the transaction of what follows from it."""
    row = (watch, to_ms(memory.fired_at), memory.fired_microusd_gpu_hour, to_ms(memory.under_since), memory.misses)
    CoreExecutor(connection).run(_SAVE, row)


def to_ms(moment: datetime | None) -> int | None:
    """Whole milliseconds since 1970."""
    return None if moment is None else (moment - _EPOCH) // timedelta(milliseconds=1)


def from_ms(stored: int | None) -> datetime | None:
    """The moment, in UTC."""
    return None if stored is None else _EPOCH + timedelta(milliseconds=stored)
