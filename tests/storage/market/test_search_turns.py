"""Turns of searches with one account, which leaders of several owners share, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from gpuwatch.storage.market.search_turns import SqlSearchTurns, turns_by_provider
from gpuwatch.storage.setup.account_rows import SqlAccountRepository
from gpuwatch.storage.setup.daemon_lease import (
    NO_LEASE,
    OTHERS_FOR_S,
    RENEW_EVERY_S,
    STEP_DOWN_AFTER_S,
    HostIdentity,
    RowLease,
)
from gpuwatch.storage.setup.database import Database, open_database
from tests.conftest import Postgres

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)


class Leader:
    """A daemon of an owner, with a clock that only the test moves."""

    def __init__(self, database: Database, role: str) -> None:
        self.s = 100.0
        self.database = database
        identity = HostIdentity(holder=f"of {role}", role=role, host="a.example", version="1.0")
        self.lease = RowLease(database, identity, lambda: self.s)

    def turns(self, provider: str = "vastai", key: str = "k1") -> SqlSearchTurns:
        return SqlSearchTurns(self.database, self.lease, provider, lambda: key, lambda: NOW)


@pytest.fixture
def leaders(postgres: Postgres) -> Iterator[tuple[Leader, Leader]]:
    url = postgres.upgraded()
    with ExitStack() as stack:
        own, lab = (Leader(stack.enter_context(closing(open_database(url))), role) for role in ("main", "main/lab"))
        yield own, lab
    postgres.give_back(url)


def pass_s(leaders: tuple[Leader, ...], seconds: float) -> None:
    """Let time pass, by the clock of the database and of these daemons."""
    with leaders[0].database.write() as connection:
        connection.execute(text(f"UPDATE daemon_lease SET expires_at_ms = expires_at_ms - {seconds * 1000:.0f}"))
    for leader in leaders:
        leader.s += seconds


def put_off(database: Database, seconds: float) -> None:
    """Let the turns lie that much farther ahead."""
    late = f"UPDATE daemon_lease SET expires_at_ms = expires_at_ms + {seconds * 1000:.0f} WHERE role LIKE '%/%'"
    with database.write() as connection:
        connection.execute(text(f"{late} AND role NOT LIKE 'main%'"))


def roles(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.execute(text("SELECT role FROM daemon_lease ORDER BY role")).scalars())


def test_one_owner_alone_needs_no_turn_and_asks_nobody(leaders: tuple[Leader, Leader]) -> None:
    own, _ = leaders
    own.lease.tick()
    assert not own.turns().is_shared
    assert turns_by_provider(own.database, own.lease, {"vastai": lambda: "k1"}, lambda: NOW).keys() == {"vastai"}
    assert roles(own.database) == ["main"]


def test_on_sqlite_there_are_no_turns() -> None:
    assert turns_by_provider(open_database("sqlite:///x.db"), NO_LEASE, {"vastai": lambda: "k1"}, lambda: NOW) == {}


def test_whoever_joins_searches_only_when_the_others_know(leaders: tuple[Leader, Leader]) -> None:
    own, lab = leaders
    own.lease.tick()
    lab.lease.tick()
    assert (own.turns().is_shared, lab.turns().is_shared) == (False, True)
    assert lab.turns().take(6.0) is None
    pass_s(leaders, RENEW_EVERY_S)
    own.lease.tick()
    assert own.turns().is_shared
    assert own.turns().take(6.0) == 0.0
    lab.s += STEP_DOWN_AFTER_S
    assert lab.turns().take(6.0) == pytest.approx(6.0, abs=1.0)


def test_turns_follow_each_other_whoever_takes_them(leaders: tuple[Leader, Leader]) -> None:
    own, lab = both(leaders)
    taken = [one.turns().take(60.0) for one in (own, lab, own, lab, lab)]
    assert taken == [pytest.approx(60.0 * n, abs=5.0) for n in range(5)]
    pass_s(leaders, 400.0)
    assert own.turns().take(60.0) == 0.0
    assert lab.turns("runpod").take(60.0) == 0.0
    assert lab.turns(key="k2").take(60.0) == 0.0  # another account


def both(leaders: tuple[Leader, Leader]) -> tuple[Leader, Leader]:
    """Both lead, and know it of each other."""
    for leader in leaders:
        leader.lease.tick()
    pass_s(leaders, RENEW_EVERY_S)
    for leader in leaders:
        leader.lease.tick()
        leader.s += STEP_DOWN_AFTER_S
    return leaders


def test_two_keys_of_one_account_share_its_turns_and_no_key_is_stored(leaders: tuple[Leader, Leader]) -> None:
    own, lab = both(leaders)
    accounts = SqlAccountRepository(own.database)
    for key in ("k1", "k2"):
        accounts.record("vastai", accounts.ensure_key_account("vastai", key, NOW), "4711", NOW)
    assert own.turns(key="k1").take(60.0) == 0.0
    assert lab.turns(key="k2").take(60.0) == pytest.approx(60.0, abs=5.0)
    assert lab.turns(key="k3").take(60.0) == 0.0
    stored = roles(own.database)
    assert stored[:3] == ["main", "main/lab", "vastai/4711"]
    assert "k3" not in stored[3].split(":")[1]


def test_a_host_that_takes_over_has_its_owners_turns_at_once(leaders: tuple[Leader, Leader]) -> None:
    """The others go on minding that owner for a minute."""
    own, lab = both(leaders)
    pass_s(leaders[:1], 20.0)  # the leader of lab died
    own.lease.tick()
    assert own.lease.has_others
    other = Leader(lab.database, "main/lab")
    other.lease = RowLease(
        lab.database, HostIdentity(holder="2nd", role="main/lab", host="b", version="1.0"), lambda: other.s
    )
    other.lease.tick()
    assert other.lease.leads
    assert other.turns().take(6.0) == 0.0
    pass_s(leaders[:1], 15.0 + OTHERS_FOR_S)
    own.lease.tick()
    own.lease.tick()
    assert not own.lease.has_others


def test_without_the_database_there_is_no_turn(leaders: tuple[Leader, Leader]) -> None:
    own, _ = both(leaders)
    own.database.engine.pool = open_database("postgresql://me@127.0.0.1:9/gone").engine.pool
    assert own.turns().take(6.0) is None


def test_turns_beyond_any_queue_are_void(leaders: tuple[Leader, Leader]) -> None:
    """The clock of the database was set back by two hours: nobody waits for them."""
    own, lab = leaders
    own.lease.tick()
    lab.lease.tick()
    pass_s(leaders, STEP_DOWN_AFTER_S + 1)
    for leader in leaders:
        leader.lease.tick()
    assert own.turns().take(6.0) == 0.0
    put_off(own.database, 7200)
    taken = [leader.turns().take(6.0) for leader in (lab, own)]
    assert taken[0] == 0.0
    assert taken[1] == pytest.approx(6.0, abs=2.0)
    put_off(own.database, 600)
    waited = lab.turns().take(6.0)
    assert waited is not None
    assert waited > 500, "ten minutes may be a queue"
