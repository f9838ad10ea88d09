"""What the daemon remembers: watches, sights, words."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.domain.watches.decide import WatchMemory
from gpuwatch.ports import ProviderHealth
from gpuwatch.storage.database import Database
from gpuwatch.storage.decision_rows import (
    load_provider_health,
    load_watch_states,
    save_provider_health,
    save_watch_state,
    was_seen_before,
)
from tests.storage.market import NOON


def test_a_memory_comes_back_as_it_was_kept(database: Database) -> None:
    memory = WatchMemory(
        fired_at=NOON + timedelta(milliseconds=1), fired_microusd_gpu_hour=1_234_567.5, under_since=NOON, misses=1
    )
    with database.write() as connection:
        save_watch_state(connection, "night", WatchMemory())
        save_watch_state(connection, "night", memory)
    with database.read() as connection:
        assert load_watch_states(connection) == {"night": memory}


def test_a_sight_comes_back_as_it_was_kept(database: Database) -> None:
    sight = ProviderHealth(complete_at=NOON, blind_since=NOON + timedelta(hours=1), last_error="503")
    with database.write() as connection:
        save_provider_health(connection, "vastai", ProviderHealth(complete_at=NOON))
        save_provider_health(connection, "vastai", sight)
    with database.read() as connection:
        assert load_provider_health(connection) == {"vastai": sight}


def test_a_word_is_reported_once(database: Database) -> None:
    with database.write() as connection:
        assert not was_seen_before(connection, "vastai", "gpu", "H900", NOON)
        assert was_seen_before(connection, "vastai", "gpu", "H900", NOON)
        assert not was_seen_before(connection, "runpod", "gpu", "H900", NOON)
        assert not was_seen_before(connection, "vastai", "field", "H900", NOON)
