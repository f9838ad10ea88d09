"""A rename changes every row with the watch's name as its key, once, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import insert, select

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal, RefusalReason
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.storage.alerts.pauses import load_pauses, save_pause
from gpuwatch.storage.launches.launch_admission import reserve
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup import side_tables, tables
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.stored_values import to_ms
from gpuwatch.storage.watches.watch_identities import SqlWatchIdentities
from tests.builders import NOON, a_match, a_watch, an_offer

LATER = NOON + timedelta(minutes=1)


def renting(name: str, renamed_from: str | None = None, total: int = 9) -> Watch:
    spec = LaunchSpec(max_active=2, max_total=total)
    return a_watch(name=name, action=Action.LAUNCH, launch=spec, renamed_from=renamed_from)


def rent(database: Database, watch: Watch, number: int) -> Launch | LaunchRefusal:
    match = a_match(an_offer(offer_id=str(number), machine_id=str(number)))
    intent = Intent(watch=watch, match=match, launch_id="abcdefghijk" + "abcdefgh"[number], dry_run=False)
    with database.write() as connection:
        got = reserve(connection, intent, Budget(), NOON)
    return got if isinstance(got, LaunchRefusal) else got[0]


def rented(database: Database, watch: Watch, number: int) -> Launch:
    got = rent(database, watch, number)
    assert isinstance(got, Launch)
    return got


@pytest.fixture
def identities(database: Database) -> SqlWatchIdentities:
    return SqlWatchIdentities(database)


def test_a_launch_says_which_installation_and_which_watch_it_is_of(
    database: Database, identities: SqlWatchIdentities
) -> None:
    identities.apply([renting("old")], NOON)
    first, second = rented(database, renting("old"), 1), rented(database, renting("old"), 2)
    assert first.install_id is not None
    assert (first.install_id, first.watch_id) == (second.install_id, second.watch_id)
    assert first.label == f"gpuwatch-{first.launch_id}-{first.install_id}-{first.watch_id}"


def test_a_rename_keeps_the_launches_their_slots_and_the_id(database: Database, identities: SqlWatchIdentities) -> None:
    identities.apply([renting("old")], NOON)
    first = rented(database, renting("old"), 1)
    settled = identities.apply([renting("new", "old")], LATER)
    assert (settled.changes.renamed, settled.abandoned) == ({"old": "new"}, [])
    [found] = SqlLaunchRepository(database).all()
    assert (found.watch, found.slot, found.watch_id) == ("new", first.slot, first.watch_id)
    assert found.version == first.version + 1
    assert rented(database, renting("new", "old"), 2).watch_id == first.watch_id
    refused = rent(database, renting("new", "old"), 3)
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.MAX_ACTIVE
    again = identities.apply([renting("new", "old")], LATER)
    assert again.changes.renamed == {}


def test_a_rename_moves_what_the_name_keys(database: Database, identities: SqlWatchIdentities) -> None:
    identities.apply([renting("old")], NOON)
    with database.write() as connection:
        connection.execute(insert(tables.watch_state), {"watch": "old", "misses": 7})
        connection.execute(insert(tables.checklist_tick), {"watch": "old", "item": "one", "at_ms": 1})
        connection.execute(insert(tables.checklist_tick), {"watch": "other", "item": "one", "at_ms": 1})
        save_pause(connection, Pause(watch="old", at=NOON))
    identities.apply([renting("new", "old"), renting("other")], LATER)
    with database.read() as connection:
        assert connection.execute(select(tables.watch_state.c.watch, tables.watch_state.c.misses)).all() == [("new", 7)]
        ticks = connection.execute(select(tables.checklist_tick.c.watch)).scalars()
        assert sorted(ticks) == ["new", "other"]
        assert [pause.watch for pause in load_pauses(connection).by_hand] == ["new"]


def test_where_both_names_have_a_row_the_new_name_s_stays(database: Database, identities: SqlWatchIdentities) -> None:
    """The watch was first renamed without `renamed_from`, which followed after both had rented."""
    identities.apply([renting("old")], NOON)
    first = rented(database, renting("old"), 1)
    identities.apply([renting("new", "")], NOON)
    second = rented(database, renting("new", ""), 2)
    with database.write() as connection:
        connection.execute(insert(tables.watch_state), [{"watch": "old", "misses": 7}, {"watch": "new", "misses": 3}])
    identities.apply([renting("new", "old")], LATER)
    with database.read() as connection:
        assert connection.execute(select(tables.watch_state.c.watch, tables.watch_state.c.misses)).all() == [("new", 3)]
    found = {launch.launch_id: (launch.watch, launch.slot) for launch in SqlLaunchRepository(database).all()}
    assert found == {first.launch_id: ("new", 1), second.launch_id: ("new", 0)}


def test_what_is_new_beside_an_abandoned_launch_rents_nothing(
    database: Database, identities: SqlWatchIdentities
) -> None:
    identities.apply([renting("old")], NOON)
    first = rented(database, renting("old"), 1)
    settled = identities.apply([renting("new")], NOON)
    assert ([one.launch_id for one in settled.abandoned], settled.changes.blocked) == ([first.launch_id], ["new"])
    refused = rent(database, renting("new"), 2)
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.RENAMED
    assert 'renamed_from = "old"' in refused.text
    identities.apply([renting("new")], LATER)  # a start finds the same
    assert isinstance(rent(database, renting("new"), 2), LaunchRefusal)


def test_it_rents_once_nothing_of_the_other_is_alive(database: Database, identities: SqlWatchIdentities) -> None:
    identities.apply([renting("old")], NOON)
    rented(database, renting("old"), 1)
    identities.apply([renting("new")], NOON)
    with database.write() as connection:
        connection.execute(tables.launch.update().values(state="ended", ended_at_ms=to_ms(NOON)))
    assert rented(database, renting("new"), 2).watch_id is not None


def test_the_store_of_an_older_gpuwatch_holds_up_no_watch_that_it_knows(
    database: Database, identities: SqlWatchIdentities
) -> None:
    rented(database, renting("old"), 1)
    with database.write() as connection:
        connection.execute(side_tables.watch_identity.delete())
        connection.execute(insert(tables.watch_state), {"watch": "fired", "misses": 0})
    settled = identities.apply([renting("fired"), renting("fresh")], NOON)
    assert settled.changes.blocked == ["fresh"]
    rented(database, renting("fired"), 2)
