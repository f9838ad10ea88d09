"""What the daemon remembers: watches, sights, words."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.ports import Sight
from gpuwatch.storage.database import Database
from gpuwatch.storage.health import load_sights, save_sight
from gpuwatch.storage.memory import load_memories, save_memory
from gpuwatch.storage.words import told_before
from gpuwatch.watches.decide import WatchMemory
from tests.storage.market import NOON


def test_a_memory_comes_back_as_it_was_kept(database: Database) -> None:
    memory = WatchMemory(
        fired_at=NOON + timedelta(milliseconds=1), fired_microusd_gpu_hour=1_234_567.5, under_since=NOON, misses=1
    )
    with database.write() as connection:
        save_memory(connection, "night", WatchMemory())
        save_memory(connection, "night", memory)
    with database.read() as connection:
        assert load_memories(connection) == {"night": memory}


def test_a_sight_comes_back_as_it_was_kept(database: Database) -> None:
    sight = Sight(complete_at=NOON, blind_since=NOON + timedelta(hours=1), last_error="503")
    with database.write() as connection:
        save_sight(connection, "vastai", Sight(complete_at=NOON))
        save_sight(connection, "vastai", sight)
    with database.read() as connection:
        assert load_sights(connection) == {"vastai": sight}


def test_a_word_is_told_once(database: Database) -> None:
    with database.write() as connection:
        assert not told_before(connection, "vastai", "gpu", "H900", NOON)
        assert told_before(connection, "vastai", "gpu", "H900", NOON)
        assert not told_before(connection, "runpod", "gpu", "H900", NOON)
        assert not told_before(connection, "vastai", "field", "H900", NOON)
