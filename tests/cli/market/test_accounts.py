"""`gpuwatch providers accounts`: active launches by account, and two accounts that the owner confirms to be one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuwatch.emulator import Marketplace
from tests.cli.conftest import Shell
from tests.cli.launches.test_launches import ID, Rows, S, key, rent, rows, what_followed

__all__ = ["key", "rows"]
pytestmark = pytest.mark.usefixtures("key")


def alive_under(rows: Rows, account_id: str | None, instance_id: str = "77") -> None:
    launch = rows.move(rows.reserve(), S.STARTING, instance_id=instance_id)
    rows.move(launch, S.RUNNING, account_id=account_id, running_at=launch.intended_at)


def listed(shell: Shell) -> list[dict[str, Any]]:
    return list(json.loads(shell("accounts", "--json").out))


def test_nothing_is_known_before_the_first_list(shell: Shell, rows: Rows) -> None:
    ran = shell("accounts")
    assert (ran.code, listed(shell)) == (0, [])
    assert "no account is known" in ran.out


def test_a_launch_of_another_account_is_shown_there_and_not_ended_with_this_key(
    shell: Shell, rows: Rows, market: Marketplace
) -> None:
    alive_under(rows, "999")
    ran = shell("stop", ID)
    assert ran.code == 2
    assert "the configured key of vastai belongs to another account" in ran.err
    assert rows.state() is S.STOPPING
    assert [(one["account"], one["current"], one["launches"]) for one in listed(shell)] == [
        ("123456", True, []), ("999", False, [ID]),
    ]  # fmt: skip
    assert "999" in shell("accounts").out


def test_a_launch_that_no_key_reaches_is_closed_when_its_owner_says_that_it_is_gone(
    shell: Shell, rows: Rows, market: Marketplace
) -> None:
    alive_under(rows, "999")
    assert shell("launches", "resolve", ID, "--absent").code == 0
    assert rows.state() is S.ENDED
    assert what_followed(rows) == (["h100: ended"], ["on_ended"])


def test_a_launch_of_this_account_is_not_closed_so(shell: Shell, rows: Rows, market: Marketplace) -> None:
    alive_under(rows, "123456")
    assert shell("launches", "resolve", ID, "--absent").code == 2
    assert rows.state() is S.RUNNING


def test_the_owner_confirms_a_rotated_key(shell: Shell, rows: Rows, market: Marketplace) -> None:
    """The old key was known only by its hash; a launch of an older gpuwatch has no account."""
    instance_id = rent(market, f"gpuwatch-{ID}")
    alive_under(rows, "key:0123456789abcdef", instance_id)
    assert shell("accounts", "--same").code == 0
    (one,) = [one for one in listed(shell) if one["launches"]]
    assert (one["account"], one["current"]) == ("123456", True)
    assert shell("stop", ID).code == 0
    assert rows.state() is S.ENDED


def test_two_accounts_that_the_provider_names_are_never_the_same(shell: Shell, rows: Rows, market: Marketplace) -> None:
    alive_under(rows, "999")
    ran = shell("accounts", "--same")
    assert ran.code == 2
    assert "reports two different accounts" in ran.err


def test_same_and_json_exclude_each_other(shell: Shell, rows: Rows) -> None:
    assert shell("accounts", "--same", "--json").code == 2
