"""Commands that end or prevent costs work with partly invalid settings, or explain the manual steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.emulator import Marketplace
from tests.cli.conftest import Shell
from tests.cli.launches.test_launches import ID, Rows, rent

S = LaunchState
BROKEN = """
[[watch]]
name = "h100"
gpu = ["H100"]
max_price = 3.6
action = "launch"
[watch.launch]
max_runtime = "24h"
env = { X = { from_env = "GW_TEST_NOT_SET" } }
onstart_file = "nowhere.sh"
[[watch]]
name = "typo"
gpu = ["H100"]
max_prise = 3.6
"""
LEFT_OUT = 4  # lines: X, onstart_file, max_prise, and the missing max_price


@pytest.fixture
def rows(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rows]:
    monkeypatch.setenv("VAST_API_KEY", "demo-key")
    made = Rows(shell.folder)
    half_broken(shell, made)
    yield made
    made.store.close()


def half_broken(shell: Shell, rows: Rows) -> None:
    shell.settings(f'database_url = "{rows.url}"\n{BROKEN}')


def rented(shell: Shell, rows: Rows, market: Marketplace) -> None:
    """An active launch, created while the settings were valid."""
    shell.settings(f'database_url = "{rows.url}"\n')
    launch = rows.reserve()
    rows.move(launch, S.STARTING, instance_id=rent(market, launch.label))
    half_broken(shell, rows)


@pytest.mark.parametrize("argv", [("stop", ID), ("stop", "--all")])
def test_stop_ends_the_instance_and_says_what_was_left_out(
    shell: Shell, rows: Rows, market: Marketplace, argv: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    rented(shell, rows, market)
    ran = shell(*argv)
    assert (ran.code, market.ledger.alive(), rows.state()) == (0, (), S.ENDED)
    reported = [record.message for record in caplog.records if record.name == "gpuwatch.bootstrap.settings_loading"]
    assert len(reported) == LEFT_OUT
    assert all(line.endswith(" is ignored") for line in reported)


def test_what_reads_and_what_settles_goes_on(shell: Shell, rows: Rows, market: Marketplace) -> None:
    rows.move(rows.move(rows.reserve(), S.UNKNOWN), S.HELD)
    assert [one["launch_id"] for one in shell("launches", "--json").json] == [ID]
    assert shell("launches", "show", ID, "--json").json[-1]["to_state"] == "held"
    assert shell("costs", "--json").json["lines"][0]["launches"] == 1
    assert shell("launches", "resolve", ID, "--absent").code == 0
    assert rows.state() is S.FAILED


def test_pause_and_resume_know_a_watch_that_was_left_out(shell: Shell, rows: Rows) -> None:
    assert [one["watch"] for one in shell("pause", "typo", "--json").json] == ["typo"]
    assert shell("pause", "nosuch").code == 2
    assert shell("resume", "typo").code == 0
    assert [one["watch"] for one in shell("pause", "--json").json] == [None]


@pytest.mark.parametrize("argv", [("check",), ("run",), ("approve", ID), ("costs", "--calibrate"), ("adopt", "1")])
def test_what_may_rent_or_follow_on_wants_settings_that_are_right(
    shell: Shell, rows: Rows, argv: tuple[str, ...]
) -> None:
    ran = shell(*argv)
    assert ran.code == 2
    assert "max_prise" in ran.err


def test_a_file_that_is_no_toml_names_what_to_end_by_hand(shell: Shell, rows: Rows) -> None:
    launch = rows.move(rows.reserve(), S.STARTING, instance_id="4711")
    shell.settings(f'database_url = "{rows.url}"\nbroken = [\n')
    ran = shell("stop", ID)
    assert (ran.code, rows.state()) == (2, S.STARTING)
    assert "not valid TOML" in ran.err
    assert f"manually: end instance 4711 with the label {launch.label} at vastai" in ran.err


@pytest.mark.parametrize("database", ["", "database_url = broken\n", 'database_url = "sqlite:////no/such.db"\n'])
def test_without_a_store_the_label_alone_is_reported_and_none_is_made(shell: Shell, database: str) -> None:
    shell.settings(f"{database}broken = [\n")
    before = sorted(shell.folder.rglob("*"))
    ran = shell("stop", "--all")
    assert ran.code == 2
    assert "manually: end each instance whose label begins with gpuwatch-" in ran.err
    assert sorted(shell.folder.rglob("*")) == before


def test_without_a_key_instance_and_label_are_named(shell: Shell, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VAST_API_KEY")
    launch = rows.move(rows.reserve(), S.STARTING, instance_id="4711")
    ran = shell("stop", ID)
    assert ran.code == 2
    assert f"end instance 4711 with the label {launch.label} there manually" in ran.err
