"""Status words that gpuwatch does not know are reported once each, also over a restart."""

from __future__ import annotations

from gpuwatch.engine.launches.guarding.instance_lists import UnknownStatuses
from gpuwatch.ports import Instance, InstanceState
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.builders import NOON
from tests.outbox import new_alerts


def instance(word: str | None) -> Instance:
    return Instance(instance_id="1", label=None, state=InstanceState.UNKNOWN, status="x", unknown_status=word)


def test_each_word_is_reported_once(sqlite_database: Database) -> None:
    ids = iter("abcdefgh")

    def process(provider: str = "verda") -> UnknownStatuses:
        return UnknownStatuses(provider, SqlDecisionStore(sqlite_database), lambda: next(ids))

    first = process()
    first.check([instance("haywire"), instance("haywire"), instance(None)], NOON)
    first.check([instance("haywire")], NOON)
    [alert] = new_alerts(sqlite_database)
    assert alert.headline == "verda: unknown status of an instance: haywire"
    second = process()
    second.check([instance("haywire"), instance("odd")], NOON)
    [alert] = new_alerts(sqlite_database)
    assert dict(alert.facts)["Status"] == "odd"
    process("lambda").check([instance("haywire")], NOON)
    assert len(new_alerts(sqlite_database)) == 1
