"""`gpuwatch hosts`: who leads on a PostgreSQL, who stands by, and the owner's wish that another one lead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from gpuwatch.storage.market.search_turns import SqlSearchTurns
from gpuwatch.storage.setup.daemon_lease import LEASE_SESSION, HostIdentity, RowLease
from gpuwatch.storage.setup.database import open_database
from tests.builders import NOON
from tests.cli.conftest import Shell
from tests.conftest import Postgres


@pytest.fixture
def leases(postgres: Postgres, shell: Shell) -> Iterator[list[RowLease]]:
    url = postgres.upgraded()
    shell.settings(f'database_url = "{url}"\n')
    with ExitStack() as stack:
        made = []
        for name in ("a", "b"):
            database = stack.enter_context(closing(open_database(url, limits=LEASE_SESSION)))
            one = HostIdentity(holder=name, role="main", host=f"{name}.example", version="1.0")
            made.append(RowLease(database, one, lambda: 0.0))
        yield made
    postgres.give_back(url)


def test_the_list_says_who_leads_since_when_and_who_stands_by(leases: list[RowLease], shell: Shell) -> None:
    assert "no host was seen" in shell("hosts").out
    for lease in leases:
        lease.tick()
    found = json.loads(shell("hosts", "--json").out)
    assert [(host["host"], host["state"], host["epoch"], host["version"]) for host in found] == [
        ("a.example", "leads", 1, "1.0"),
        ("b.example", "stands by", None, "1.0"),
    ]
    assert found[0]["since"] == found[0]["started_at"]
    assert "stands by" in shell("hosts").out


def test_the_leader_is_asked_to_step_down_only_if_another_one_stands_by(leases: list[RowLease], shell: Shell) -> None:
    a, b = leases
    assert shell("hosts", "step-down").code == 1
    a.tick()
    refused = shell("hosts", "step-down", "--json")
    assert (refused.code, json.loads(refused.out)["host"]) == (1, None)
    b.tick()
    asked = shell("hosts", "step-down")
    assert (asked.code, asked.out) == (0, "a.example steps down; see: gpuwatch hosts\n")
    assert json.loads(shell("hosts", "--json").out)[0]["state"] == "steps down"
    a.tick()
    assert a.hands_over


def test_a_daemon_on_sqlite_is_alone(shell: Shell) -> None:
    shell.settings("")
    shell.new_store()
    assert json.loads(shell("hosts", "--json").out) == []


def test_an_account_that_owners_share_has_a_line_with_whose_turn_it_is(leases: list[RowLease], shell: Shell) -> None:
    a, _ = leases
    other, clock = HostIdentity(holder="c", role="main/lab", host="c.example", version="1.0"), iter((0.0, 0.0, 60.0))
    lab = RowLease(a.database, other, lambda: next(clock))
    for lease in (a, lab):
        lease.tick()
    assert [host["role"] for host in json.loads(shell("hosts", "--json").out)] == ["main", "main/lab"]
    assert SqlSearchTurns(a.database, lab, "vastai", lambda: "a key", lambda: NOON).take(6.0) == 0.0
    *_, account = json.loads(shell("hosts", "--json").out)
    assert account["role"].startswith("vastai/key:")
    assert [account[key] for key in ("host", "state", "epoch", "holder")] == ["c.example", "searches", 1, "c"]
    assert account["role"] in shell("hosts").out
