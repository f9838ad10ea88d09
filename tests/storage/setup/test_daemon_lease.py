"""The lease by which one of several daemons leads, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from sqlalchemy import text

from gpuwatch.engine.setup.leadership import Leadership
from gpuwatch.errors import LeaseLost, StoreError
from gpuwatch.storage.setup.daemon_lease import (
    LEASE_S,
    LEASE_SESSION,
    NO_LEASE,
    REST_S,
    STEP_DOWN_AFTER_S,
    HostIdentity,
    LeaseOfTerm,
    RowLease,
)
from gpuwatch.storage.setup.database import Database, SessionLimits, open_database
from gpuwatch.storage.watches.running_hosts import load_hosts, request_step_down
from tests.conftest import Postgres


class Host:
    """A daemon with a clock of its own, which only the test moves."""

    def __init__(self, url: str, name: str, limits: SessionLimits = LEASE_SESSION) -> None:
        self.s = 0.0
        identity = HostIdentity(holder=name, role="main", host=f"{name}.example", version="1.0")
        self.database = open_database(url, limits=limits)
        self.lease = RowLease(self.database, identity, lambda: self.s)

    def acts(self) -> bool:
        """Whether it may decide and order now."""
        with suppress(LeaseLost), self.database.write() as connection:
            self.lease.verify(connection)
            return True
        return False


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    made = postgres.upgraded()
    yield made
    postgres.give_back(made)


@pytest.fixture
def pair(url: str) -> Iterator[tuple[Host, Host]]:
    a, b = Host(url, "a"), Host(url, "b")
    a.lease.tick()
    b.lease.tick()
    yield a, b
    for host in (a, b):
        host.database.close()


def expire(database: Database) -> None:
    """Let the database's clock pass the end of the lease."""
    with database.write() as connection:
        connection.execute(text("UPDATE daemon_lease SET expires_at_ms = expires_at_ms - 60000"))


def test_the_first_leads_and_the_second_stands_by(pair: tuple[Host, Host]) -> None:
    a, b = pair
    assert [host.lease.leads for host in pair] == [True, False]
    assert [host.acts() for host in pair] == [True, False]
    assert b.lease.is_led
    a.s = b.s = 3.0
    assert a.lease.tick() == 3.0
    assert b.lease.tick() == 2.0
    assert [host.acts() for host in pair] == [True, False]
    with a.database.read() as connection:
        (lease,), hosts = load_hosts(connection)
    assert (lease.role, lease.holder, lease.epoch) == ("main", "a", 1)
    assert 14.0 < lease.expires_in_s <= LEASE_S
    assert [(host.host, host.version) for host in hosts] == [("a.example", "1.0"), ("b.example", "1.0")]


def test_whoever_did_not_renew_for_ten_seconds_acts_no_more_without_asking_anybody(pair: tuple[Host, Host]) -> None:
    a, _ = pair
    term = a.lease.term
    a.s = STEP_DOWN_AFTER_S
    assert not a.lease.is_held
    assert not a.acts()
    assert a.lease.term == term  # until the database says who leads now
    a.lease.tick()  # its lease did not end by the database's clock: it leads again, in another term
    assert a.lease.term != term
    assert a.acts()


def test_the_fence_refuses_the_one_before_by_the_epoch_whatever_it_believes(pair: tuple[Host, Host]) -> None:
    a, b = pair
    expire(a.database)
    assert a.lease.is_held
    assert not a.acts()  # by the database's clock its lease is over, before anybody took it
    b.lease.tick()
    assert [host.acts() for host in pair] == [False, True]
    a.lease.tick()
    assert not a.lease.leads
    with a.database.read() as connection:
        (lease,), _ = load_hosts(connection)
    assert (lease.holder, lease.epoch) == ("b", 2)


def test_a_service_of_a_former_term_orders_nothing_even_if_its_process_leads_again(pair: tuple[Host, Host]) -> None:
    """It slept before it sent its order; meanwhile another host led, proved the order's absence, and died."""
    a, b = pair
    former = LeaseOfTerm(a.lease)
    assert former.is_held
    expire(a.database)
    b.lease.tick()
    b.lease.release()
    a.s = 3600.0
    a.lease.tick()
    assert a.acts(), "the process leads, in a later term"
    assert not former.is_held
    with a.database.write() as connection, pytest.raises(LeaseLost):
        former.verify(connection)
    assert LeaseOfTerm(a.lease).is_held


def test_a_host_without_progress_lets_another_one_lead(url: str) -> None:
    """Its lease is renewed by a thread that lives: it proves nothing about its tasks."""
    database, b = open_database(url), Host(url, "b")
    lead = Leadership(database, HostIdentity(holder="a", role="main", host="a", version="1.0"), lambda: 0.0)
    assert lead.lease.is_held
    assert lead.renew_if_due(["hunt vastai"])
    assert not lead.lease.leads
    assert not lead.renew_if_due(["hunt vastai"])
    expire(database)
    b.lease.tick()
    assert b.lease.leads
    lead.close(0.0)
    for one in (database, b.database):
        one.close()


def test_a_host_in_rescue_mode_leads_only_if_no_other_does(url: str, pair: tuple[Host, Host]) -> None:
    """It rents nothing: if it took the lease first, the healthy host would stand by for ever."""
    a, b = pair
    database = open_database(url)
    identity = HostIdentity(holder="r", role="main", host="r", version="1.0")
    rescued = Leadership(database, identity, lambda: a.s, is_rescued=True)
    with database.write() as connection:
        connection.execute(text("UPDATE daemon_lease SET expires_at_ms = expires_at_ms - 16000"))
    a.s = 10.0
    rescued.renew_if_due()
    assert not rescued.lease.leads
    b.lease.tick()
    assert b.lease.leads
    expire(database)
    a.s = 20.0
    rescued.renew_if_due()
    assert rescued.lease.leads
    rescued.close(0.0)
    database.close()


def test_a_leader_in_rescue_mode_hands_over_to_a_healthy_host(url: str) -> None:
    """Between two in rescue mode the lead stays; whoever got correct settings keeps it."""
    rescued, other, healthy = (Host(url, name) for name in ("r", "o", "h"))
    rescued.lease.is_rescued = other.lease.is_rescued = True
    for host in (rescued, other):
        host.lease.tick()
    rescued.lease.tick()
    assert (rescued.lease.leads, rescued.lease.hands_over) == (True, False)
    healthy.lease.tick()
    assert not healthy.lease.leads
    rescued.lease.is_rescued = False
    rescued.lease.tick()
    assert not rescued.lease.hands_over
    rescued.lease.is_rescued = True
    rescued.lease.tick()
    assert rescued.lease.hands_over
    rescued.lease.release()
    for host in (rescued, other, healthy):
        host.lease.tick()
    assert [host.lease.leads for host in (rescued, other, healthy)] == [False, False, True]
    for host in (rescued, other, healthy):
        host.database.close()


def test_nobody_takes_the_lease_while_a_decision_is_open(pair: tuple[Host, Host]) -> None:
    a, b = pair
    with a.database.engine.connect() as connection, connection.begin():
        a.lease.verify(connection)
        with open_database(a.database.url).write() as other:
            other.execute(text("SET LOCAL lock_timeout = 200"))
            with pytest.raises(Exception, match="lock timeout"):
                other.execute(text("UPDATE daemon_lease SET holder = 'b'"))
            other.rollback()
    assert not b.lease.leads


def test_a_host_that_is_asked_to_step_down_hands_over_and_rests(pair: tuple[Host, Host]) -> None:
    a, b = pair
    with b.database.write() as connection:
        assert request_step_down(connection, "main")
    term = a.lease.term
    a.lease.tick()
    assert (a.lease.hands_over, a.lease.is_held, a.lease.term != term) == (True, False, True)
    assert not a.acts()
    b.lease.tick()
    assert not b.lease.leads  # not before the other one has stopped
    a.lease.release()
    a.lease.tick()
    b.lease.tick()
    assert [host.acts() for host in pair] == [False, True]
    b.lease.release()
    a.s = REST_S - 1
    a.lease.tick()
    assert not a.lease.leads
    a.s = REST_S
    a.lease.tick()
    assert a.lease.leads


def test_a_released_lease_is_free_after_the_spacing_of_searches(pair: tuple[Host, Host]) -> None:
    a, b = pair
    a.lease.release(after_s=60.0)
    b.lease.tick()
    assert not b.lease.leads
    expire(a.database)
    b.lease.tick()
    assert b.lease.leads


def test_a_daemon_that_ends_is_forgotten(pair: tuple[Host, Host]) -> None:
    a, b = pair
    a.lease.remove_host()
    with b.database.read() as connection:
        assert [host.holder for host in load_hosts(connection)[1]] == ["b"]


def test_a_leader_of_another_timeline_looks_the_launches_up_again(pair: tuple[Host, Host]) -> None:
    """A fresh process did not see the promotion: the lease's row says on which timeline the one before led."""
    a, b = pair
    with a.database.write() as connection:
        connection.execute(text("UPDATE daemon_lease SET lineage = 'earlier/00000001'"))
    expire(a.database)
    b.lease.tick()
    assert (b.lease.leads, b.database.generation) == (True, 1)


def test_an_old_lease_of_a_database_that_does_not_answer_is_over_in_time(url: str) -> None:
    a = Host(url, "a")
    a.lease.tick()
    a.s, a.database.engine.pool = 5.0, open_database("postgresql://me@127.0.0.1:9/gone").engine.pool
    with pytest.raises(StoreError):
        a.lease.tick()
    assert a.lease.is_held
    a.s = STEP_DOWN_AFTER_S
    assert not a.lease.is_held
    a.database.close()


def test_what_needs_no_lease_is_never_refused() -> None:
    assert (NO_LEASE.leads, NO_LEASE.is_held, NO_LEASE.hands_over) == (True, True, False)
