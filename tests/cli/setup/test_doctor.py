"""`gpuwatch doctor` on accounts: permissions of the key, the balance, pending decisions, budgets."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.app.setup.doctor_account import KnownLaunches, account_findings
from gpuwatch.domain.launches.launch import EndReason, LaunchState
from gpuwatch.emulator import Marketplace
from gpuwatch.settings import load
from tests.cli.conftest import Shell
from tests.cli.launches.test_launches import ID, Rows, rent

S = LaunchState
WATCH = """
[[watch]]
name = "h100"
gpu = ["H100"]
gpu_count = { min = 1, max = 2 }
max_price = 3.6
action = "launch"
[watch.launch]
max_runtime = "24h"
"""


@pytest.fixture
def rows(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rows]:
    monkeypatch.setenv("VAST_API_KEY", "demo-key")
    made = Rows(shell.folder)
    shell.settings(f'database_url = "{made.url}"\n{WATCH}')
    yield made
    made.store.close()


def found(shell: Shell, area: str) -> list[dict[str, Any]]:
    return [one for one in shell("doctor", "--json").json if one["area"] == area]


def the(findings: list[dict[str, Any]], words: str) -> dict[str, Any]:
    (one,) = [finding for finding in findings if words in finding["text"]]
    return one


def test_a_key_that_may_everything_is_said_to(shell: Shell, rows: Rows, market: Marketplace) -> None:
    findings = found(shell, "vastai")
    works = the(findings, "the key works")
    assert works["state"] == "ok"
    assert "it may list instances, read the credit, read charges; credit " in works["text"]
    assert the(findings, "instance_write")["state"] == "note"  # no query can tell, and there are no launches yet
    assert {request.method for request in market.requests} == {"GET"}


@pytest.mark.parametrize(
    ("endpoint", "words", "reported"),
    [
        ("instances", "may not list instances", ("fault", "grant the key the permission instance_read")),
        ("user", "may not read the credit", ("note", "grant the key the permission user_read")),
        ("charges", "may not read charges", ("note", "grant the key the permission billing_read")),
    ],
)
def test_what_a_key_may_not_is_named_with_the_permission_that_it_lacks(
    shell: Shell, rows: Rows, market: Marketplace, endpoint: str, words: str, reported: tuple[str, str]
) -> None:
    market.faults.add(endpoint, "403", times=None)
    one = the(found(shell, "vastai"), words)
    assert (one["state"], one["mend"]) == reported


def test_a_key_that_may_not_list_is_no_fault_where_nothing_rents(shell: Shell, rows: Rows, market: Marketplace) -> None:
    shell.settings(f'database_url = "{rows.url}"\n')
    market.faults.add("instances", "403", times=None)
    assert the(found(shell, "vastai"), "may not list")["state"] == "note"
    assert shell("doctor").code == 0


def test_silence_is_not_taken_for_a_missing_permission(shell: Shell, rows: Rows, market: Marketplace) -> None:
    market.faults.add("charges", "502", times=None)
    assert the(found(shell, "vastai"), "no answer to the request to read charges")["state"] == "note"


def test_the_last_rent_tells_whether_the_key_may_rent(shell: Shell, rows: Rows, market: Marketplace) -> None:
    launch = rows.reserve()
    rows.move(launch, S.STARTING, instance_id=rent(market, launch.label))
    assert the(found(shell, "vastai"), "instance_write")["state"] == "ok"


def test_a_rent_that_was_refused_for_the_key_is_a_fault(shell: Shell, rows: Rows) -> None:
    reason = EndReason.KEY.text("403 no permission")
    rows.move(rows.reserve(), S.FAILED, end_reason=reason)
    one = the(found(shell, "vastai"), "the last order was refused because of the key")
    assert (one["state"], one["mend"]) == ("fault", "grant the key the permission to rent (instance_write)")


@pytest.mark.parametrize(("price", "state"), [("3.6", "ok"), ("4000", "note")])
def test_the_balance_is_compared_with_an_hour_of_the_dearest_that_a_watch_may_rent(
    shell: Shell, rows: Rows, price: str, state: str
) -> None:
    shell.settings(f'database_url = "{rows.url}"\n' + WATCH.replace("3.6", price))
    one = the(found(shell, "vastai"), "one hour of 'h100'")
    assert one["state"] == state
    assert f"(2 GPUs, at most ${2 * float(price):,.2f})" in one["text"]


def test_what_is_held_unlisted_or_unknown_waits_for_its_owner(shell: Shell, rows: Rows, market: Marketplace) -> None:
    rows.move(rows.move(rows.reserve(), S.UNKNOWN), S.HELD)
    foreign = rent(market, "gpuwatch-zzzzzzzzzzzz")
    findings = found(shell, "vastai")
    held = the(findings, f"launch {ID} is held")
    assert held["mend"] == f"run gpuwatch launches resolve {ID} --absent, or --adopt INSTANCE"
    assert the(findings, f"instance {foreign} has a label")["mend"] == f"gpuwatch launches adopt {foreign}"
    launch = rows.repository.get(ID)
    assert launch is not None
    rows.move(launch, S.STARTING, instance_id="4711")
    unlisted = the(found(shell, "vastai"), f"launch {ID} is starting, but instance 4711 is not listed")
    assert (held["state"], unlisted["state"], shell("doctor").code) == ("fault", "fault", 1)


def test_what_lives_where_there_is_no_key_is_a_fault(shell: Shell, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    rows.move(rows.reserve(), S.STARTING, instance_id="4711")
    monkeypatch.delenv("VAST_API_KEY")
    assert the(found(shell, "vastai"), f"gpuwatch cannot manage the launches there ({ID})")["state"] == "fault"


def test_budgets_say_how_much_of_them_is_used(shell: Shell, rows: Rows, market: Marketplace) -> None:
    limits = "[budget]\nmax_usd_hour = 4\nmax_usd_month = 1000000\nmax_instances = 1\n"
    shell.settings(f'database_url = "{rows.url}"\n{limits}')
    unused = the(found(shell, "budget"), "max_usd_hour")
    launch = rows.reserve()
    rows.move(launch, S.UNKNOWN)
    findings = found(shell, "budget")
    assert (unused["state"], unused["text"]) == ("ok", "max_usd_hour: $0.00 of $4.00 used, 0 %")
    assert the(findings, "max_usd_hour")["text"] == "max_usd_hour: $3.60 of $4.00 used, 90 %"
    assert the(findings, "max_usd_hour")["state"] == "note"
    assert the(findings, "max_instances")["text"] == "max_instances: 1 of 1 active"


def test_asking_twice_changes_nothing(shell: Shell, rows: Rows, market: Marketplace) -> None:
    rows.move(rows.reserve(), S.UNKNOWN)
    first = shell("doctor")
    assert shell("doctor").code == first.code
    assert rows.state() is S.UNKNOWN
    assert {request.method for request in market.requests} == {"GET"}


def test_without_a_key_nothing_is_said_to_be_seen_where_searching_needs_one(shell: Shell, rows: Rows) -> None:
    shell.settings(f'database_url = "{rows.url}"\n[providers.lambda]\n')
    assert the(found(shell, "lambda"), "no key:")["text"] == "no key: gpuwatch can neither poll nor rent"


class Taciturn:
    """Lists instances, but reports neither credit nor charges."""

    def list_instances(self) -> list[Any]:
        return []

    def credit_usd(self) -> None:
        return None

    def charges(self, since: date, until: date) -> None:
        return None


def test_what_a_provider_tells_nobody_is_no_right_of_the_key(tmp_path: Path) -> None:
    findings = account_findings(load(env={}, cwd=tmp_path), "lambda", Taciturn(), {}, KnownLaunches())  # type: ignore[arg-type] what is asked
    assert [finding.text for finding in findings] == ["the key works; it may list instances"]
