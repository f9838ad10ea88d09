"""`gpuwatch upgrade`, also named `gpuwatch store upgrade`: what would change, the backup, the upgrade, and back."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert

from gpuwatch.cli import Exit
from gpuwatch.storage.setup.backup import dump_command
from gpuwatch.storage.setup.daemon_lease import claim_daemon
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import newest_schema, pending_migrations, revision
from gpuwatch.storage.setup.tables import launch
from tests.checkout import ROOT, TESTS
from tests.cli.conftest import Shell
from tests.conftest import Postgres
from tests.test_older_store import create_older

NAMES = [("upgrade",), ("store", "upgrade"), ("db", "upgrade")]


@pytest.fixture
def older(shell: Shell) -> Path:
    """A database of schema 0004, named by the settings."""
    path = shell.folder / "gpuwatch.db"
    shell.settings(f'database_url = "sqlite:///{path}"\n')
    _create_older(f"sqlite:///{path}")
    return path


def _create_older(url: str) -> None:
    database = open_database(url)
    with database.write() as connection:
        create_older(connection)
    database.close()


def _schema(url: str) -> str | None:
    database = open_database(url, read_only=True)
    try:
        return revision(database)
    finally:
        database.close()


@pytest.mark.parametrize("name", NAMES, ids=" ".join)
def test_check_says_what_each_migration_does_and_changes_nothing(
    shell: Shell, older: Path, name: tuple[str, ...]
) -> None:
    before = older.read_bytes()
    ran = shell(*name, "--check")
    assert (ran.code, ran.err) == (Exit.DONE, "")
    assert f"schema     0004 → {newest_schema()}, {int(newest_schema()) - 4} migrations\n" in ran.out
    assert "  0005     Renames tables and columns to the field's words; every row stays.\n" in ran.out
    assert "gpuwatch.toml: valid for this version; no key has a new name\n" in ran.out
    assert re.search(r"backup     \S+/gpuwatch-schema-0004-\d{8}T\d{6}Z\.db: is written first\n", ran.out)
    assert older.read_bytes() == before
    assert not list(shell.folder.glob("gpuwatch-schema-*"))


@pytest.mark.parametrize("name", NAMES, ids=" ".join)
def test_it_writes_a_verified_backup_of_the_older_schema_first(
    shell: Shell, older: Path, name: tuple[str, ...]
) -> None:
    ran = shell(*name, "--json")
    assert (ran.code, ran.json["is_done"], ran.json["schema_from"]) == (Exit.DONE, True, "0004")
    assert ran.json["steps"] == list(ran.json["changes"]) == [f"{n:04}" for n in range(5, int(newest_schema()) + 1)]
    assert _schema(f"sqlite:///{older}") == newest_schema()
    assert _schema(f"sqlite:///{ran.json['backup']}") == "0004"
    assert Path(ran.json["backup"]).stat().st_size == ran.json["backup_bytes"]
    again = shell(*name)
    assert again.out.startswith("Nothing to upgrade: ")
    assert "nothing to do" in again.out
    assert len(list(shell.folder.glob("gpuwatch-schema-*"))) == 1


def test_without_a_backup_nothing_is_upgraded(shell: Shell, older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpuwatch.storage.setup.backup.publish", full)
    ran = shell("upgrade")
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    assert "cannot write the backup" in ran.err
    assert _schema(f"sqlite:///{older}") == "0004"
    assert shell("upgrade", "--backed-up").code == Exit.DONE
    assert _schema(f"sqlite:///{older}") == newest_schema()


def test_a_missing_database_is_created_and_check_creates_none(shell: Shell) -> None:
    shell.settings('database_url = "sqlite:///new.db"\n')
    assert "there is no database yet" in shell("upgrade", "--check").out
    assert not (shell.folder / "new.db").exists()
    ran = shell("upgrade")
    assert (ran.code, "created" in ran.out) == (Exit.DONE, True)
    assert [path.name for path in shell.folder.glob("*.db")] == ["new.db"]


def test_a_newer_schema_is_not_touched(shell: Shell, older: Path) -> None:
    database = open_database(f"sqlite:///{older}")
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    for words in (("upgrade",), ("upgrade", "--check")):
        ran = shell(*words)
        assert ran.code == Exit.FAILED
        assert "was written by a newer gpuwatch" in ran.err


def test_postgresql_is_upgraded_once_the_owner_has_a_dump(shell: Shell, postgres: Postgres) -> None:
    url = postgres.empty()
    _create_older(url)
    shell.settings(f'database_url = "{url}"\n')
    refused = shell("upgrade")
    assert refused.code == Exit.USAGE
    assert "pg_dump --format=custom --file=gpuwatch-schema-0004.dump" in refused.err
    assert "gpuwatch upgrade --backed-up" in refused.err
    assert _schema(url) == "0004"
    assert "pg_dump" in shell("upgrade", "--check").out
    assert shell("upgrade", "--backed-up").code == Exit.DONE
    assert _schema(url) == newest_schema()
    postgres.drop(url)


# --- the way back -----------------------------------------------------------------------------------------------------


def _add_launch(database_path: Path, state: str) -> None:
    database = open_database(f"sqlite:///{database_path}")
    with database.write() as connection:
        values = dict.fromkeys(column.name for column in launch.columns if not column.nullable)
        texts = {name: 0 if name.endswith(("_ms", "hour", "slot", "count")) else "x" for name in values}
        flags = {name: False for name in ("spot", "dry_run") if name in values}
        connection.execute(insert(launch).values(**texts | flags | {"launch_id": state, "state": state}))
    database.close()


def test_what_the_upgrade_wrote_is_put_back_and_the_database_of_today_is_kept(shell: Shell, older: Path) -> None:
    backup = shell("upgrade", "--json").json["backup"]
    _add_launch(older, "ended")
    planned = shell("store", "downgrade", "--check")
    assert (planned.code, planned.err, _schema(f"sqlite:///{older}")) == (Exit.DONE, "", newest_schema())
    assert f"schema     {newest_schema()} → 0004\nbackup     {backup}, written " in planned.out
    assert "missing    1 launch and everything else" in planned.out
    done = shell("db", "downgrade", "--json")
    assert (done.code, done.json["is_done"], done.json["launches_lost"]) == (Exit.DONE, True, 1)
    assert _schema(f"sqlite:///{older}") == "0004"
    assert _schema(f"sqlite:///{done.json['kept']}") == newest_schema()
    with closing(sqlite3.connect(older)) as after, closing(sqlite3.connect(backup)) as copy:
        assert list(after.iterdump()) == list(copy.iterdump())
    assert shell("upgrade", "--backed-up").code == Exit.DONE  # and forwards again


def test_what_runs_and_is_not_in_the_backup_is_not_forgotten(shell: Shell, older: Path) -> None:
    assert shell("upgrade").code == Exit.DONE
    _add_launch(older, "running")
    for words in (("store", "downgrade", "--check"), ("store", "downgrade")):
        ran = shell(*words)
        assert (ran.code, ran.out) == (Exit.FAILED, "")
        assert "does not have 1 launch that is not over (running): run `gpuwatch launches stop --all` first" in ran.err
    assert _schema(f"sqlite:///{older}") == newest_schema()


def test_there_is_nothing_to_go_back_to(shell: Shell, older: Path) -> None:
    assert shell("upgrade", "--backed-up").code == Exit.DONE
    ran = shell("store", "downgrade")
    assert (ran.code, "no backup of a schema before" in ran.err) == (Exit.FAILED, True)
    damaged = older.with_name("gpuwatch-schema-0004-20260101T000000Z.db")
    damaged.write_bytes(b"SQLite format 3\0" + bytes(5000))
    ran = shell("store", "downgrade")
    assert ran.code == Exit.FAILED
    assert str(damaged) in ran.err
    assert _schema(f"sqlite:///{older}") == newest_schema()
    shell.settings('database_url = "postgresql+psycopg://nobody@127.0.0.1:9/none"\n')
    assert "pg_restore --clean" in shell("store", "downgrade").err


def test_a_daemon_that_runs_keeps_its_database(shell: Shell, older: Path) -> None:
    assert shell("upgrade").code == Exit.DONE
    with claim_daemon(f"sqlite:///{older}"):
        ran = shell("store", "downgrade")
    assert (ran.code, _schema(f"sqlite:///{older}")) == (Exit.FAILED, newest_schema())


def test_the_command_that_dumps_names_no_password() -> None:
    text = dump_command("postgresql+psycopg://u:canary1@h/db?password=canary2&sslmode=require", "a.dump")
    assert "canary" not in text
    assert "--dbname=postgresql://u@h/db?sslmode=require" in text


def test_each_migration_says_in_a_sentence_what_it_does() -> None:
    texts = pending_migrations(None, "")
    assert len(texts) == int(newest_schema())
    assert [text for text in texts.values() if not re.fullmatch(r"[A-Z].{10,100}\.", text)] == []


def test_every_key_of_version_0_1_has_its_name_today() -> None:
    """`gpuwatch upgrade` says so. Whoever renames a key makes it name the key instead."""
    recorded = (TESTS / "recorded/settings-keys-0.1.txt").read_text().split()
    today = re.findall(r"(?m)^\| `([^`]+)`", (ROOT / "docs/settings.md").read_text())
    assert len(recorded) > 190
    assert set(recorded) <= {key.replace(" ", "") for key in today}
