"""The daemon's stored state: watches, health, seen values."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.domain.watches.decide import WatchMemory
from gpuwatch.ports import ProviderHealth
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.storage.stored_answers import NOON


def test_a_memory_comes_back_as_it_was_kept(database: Database) -> None:
    memory = WatchMemory(
        fired_at=NOON + timedelta(milliseconds=1), fired_microusd_gpu_hour=1_234_567.5, under_since=NOON, misses=1
    )
    store = SqlDecisionStore(database)
    with store.open() as uow:
        uow.save_memory("night", WatchMemory())
        uow.save_memory("night", memory)
    assert store.memories() == {"night": memory}


def test_a_sight_comes_back_as_it_was_kept(database: Database) -> None:
    sight = ProviderHealth(complete_at=NOON, blind_since=NOON + timedelta(hours=1), last_error="503")
    unread = ProviderHealth(blind_since=NOON, last_error="no row", not_understood=True, reported=False)
    store = SqlDecisionStore(database)
    with store.open() as uow:
        uow.save_health("vastai", "hunt", ProviderHealth(complete_at=NOON))
        uow.save_health("vastai", "hunt", sight)
        uow.save_health("vastai", "sweep", unread)
    assert store.provider_health() == {("vastai", "hunt"): sight, ("vastai", "sweep"): unread}


def test_a_word_is_reported_once(database: Database) -> None:
    with SqlDecisionStore(database).open() as uow:
        assert uow.record_new_value("vastai", "gpu", "H900", NOON)
        assert not uow.record_new_value("vastai", "gpu", "H900", NOON)
        assert uow.record_new_value("runpod", "gpu", "H900", NOON)
        assert uow.record_new_value("vastai", "field", "H900", NOON)
