"""Reading commands create, upgrade and lock nothing; without a usable store they exit 3 and name the command to run."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command

from gpuwatch.cli import Exit
from gpuwatch.emulator import Marketplace
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import alembic_config
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver
from tests.cli.conftest import Shell, older_schema

WATCH = """
[[watch]]
name = "w"
gpu = ["H100"]
max_price = 3.5
action = "launch"
require = ["amp"]
[watch.launch]
max_runtime = "24h"
"""
PROVIDERS = ("providers",)  # shows what the settings say of them
READING = [
    ("launches",),
    ("launches", "show", "aaaaaaaaaaaa"),
    ("costs",),
    ("alerts",),
    ("silence", "--list"),
    ("asks",),
    ("machines",),
    ("machines", "--scopes"),
    ("machines", "--reputation"),
    ("checklist",),
    ("job", "list"),
    ("job", "show", "train"),
    ("job", "plan"),
    ("job", "simulate"),
    ("job", "logs", "train"),
    ("job", "results", "train"),
    PROVIDERS,
    ("history", "H100"),
    ("market",),
    ("calendar", "H100"),
    ("advise", "H100"),
    ("scores",),
    ("backtest",),
    ("export", "out.csv"),
    ("import", "prices.csv", "--dry-run"),
    ("db", "stats"),
]
PRICES = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour\n"


@pytest.fixture(autouse=True)
def _settings(shell: Shell) -> None:
    shell.settings(f'database_url = "sqlite:///{shell.folder}/store/gpuwatch.db"\n{WATCH}')
    (shell.folder / "store").mkdir()
    (shell.folder / "prices.csv").write_text(PRICES)


def _store(shell: Shell) -> Path:
    return shell.folder / "store" / "gpuwatch.db"


def _left(shell: Shell) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (shell.folder / "store").iterdir()}


@pytest.mark.parametrize("argv", READING, ids=" ".join)
def test_without_a_database_it_exits_3_and_creates_none(shell: Shell, argv: tuple[str, ...]) -> None:
    ran = shell(*argv)
    assert ran.code == Exit.CANNOT_TELL, ran.err
    assert argv == PROVIDERS or ran.out == ""
    assert "there is no database" in ran.err
    assert "create it with `gpuwatch run`" in ran.err
    assert _left(shell) == {}


@pytest.mark.parametrize("argv", READING, ids=" ".join)
def test_an_older_schema_is_left_alone(shell: Shell, argv: tuple[str, ...]) -> None:
    older = older_schema(f"sqlite:///{_store(shell)}")
    before = _left(shell)
    ran = shell(*argv)
    assert ran.code == Exit.CANNOT_TELL, ran.err
    assert argv == PROVIDERS or ran.out == ""
    assert f"older schema ({older}" in ran.err
    assert "run `gpuwatch store upgrade`" in ran.err
    assert _left(shell) == before


def test_providers_without_a_store_shows_the_plan_of_the_settings_and_no_figure_of_polls(shell: Shell) -> None:
    ran = shell(*PROVIDERS)
    assert "vastai  on; live prices, spot too; no key; cannot rent without a key" in ran.out
    assert "rows    at most 20000 a day" in ran.out
    assert "[providers.runpod] enabled = true" in ran.out
    assert "used" not in ran.out
    assert "never" not in ran.out
    assert "no provider has been polled yet" in ran.err
    as_json = shell(*PROVIDERS, "--json")
    assert (as_json.code, as_json.out) == (Exit.CANNOT_TELL, "")
    older_schema(f"sqlite:///{_store(shell)}")
    older = shell(*PROVIDERS)
    assert (older.code, older.out) == (Exit.CANNOT_TELL, ran.out)
    assert "no provider has been polled" not in older.err


def test_a_reader_leaves_the_folder_as_it_was(shell: Shell) -> None:
    shell.new_store()
    before = _left(shell)
    for argv in (("launches",), ("history", "H100"), ("market",), ("asks",), ("costs",), ("db", "stats")):
        shell(*argv)
        assert _left(shell) == before, argv


def test_a_reader_does_not_wait_for_a_writer(shell: Shell) -> None:
    shell.new_store()
    writer = sqlite_driver().connect(_store(shell), isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    try:
        assert shell("launches", "--json").json == []
    finally:
        writer.close()


def test_backup_copies_an_older_schema_and_makes_no_new_store(shell: Shell) -> None:
    assert shell("db", "backup", "copy.db").code == Exit.CANNOT_TELL
    assert _left(shell) == {}
    older_schema(f"sqlite:///{_store(shell)}")
    assert shell("db", "backup", "copy.db").code == Exit.DONE
    assert (shell.folder / "copy.db").exists()


def test_check_answers_with_an_older_schema_warns_and_stores_nothing(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    older_schema(f"sqlite:///{_store(shell)}")
    before = _left(shell)
    for argv in (("check",), ("check", "--explain", "--no-store")):
        ran = shell(*argv)
        assert ran.code == Exit.DONE
        assert "run `gpuwatch store upgrade`" in ran.err
        assert _left(shell) == before
    assert shell("offers").code == Exit.DONE
    assert _left(shell) == before


def test_check_that_stores_nothing_creates_nothing(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    assert shell("check", "--explain", "--no-store").code == Exit.DONE
    assert _left(shell) == {}


def test_doctor_reports_a_missing_and_an_older_store_and_changes_neither(shell: Shell) -> None:
    def store_line() -> tuple[str, str]:
        (found,) = [one for one in shell("doctor", "--json").json if one["area"] == "database"]
        return found["state"], found["text"]

    state, text = store_line()
    assert state == "note"
    assert "there is no database" in text
    assert _left(shell) == {}
    older_schema(f"sqlite:///{_store(shell)}")
    before = _left(shell)
    state, text = store_line()
    assert state == "note"
    assert "run `gpuwatch store upgrade`" in text
    assert _left(shell) == before


def test_a_watch_may_name_a_gpu_that_only_an_older_store_has_met(shell: Shell) -> None:
    """`run` reads the settings before it upgrades: that must not make them invalid."""
    shell.new_store()
    database = open_database(f"sqlite:///{_store(shell)}")
    with database.write() as connection:
        connection.exec_driver_sql("INSERT INTO seen_value VALUES ('vastai', 'gpu', 'Z900', 0)")
        command.downgrade(alembic_config(connection), "-1")
    database.close()
    shell.settings((shell.folder / "gpuwatch.toml").read_text().replace('"H100"', '"Z900"'))
    assert shell("launches").code == Exit.CANNOT_TELL  # and not USAGE
