"""The lake: the same answers from a store that was pruned as from one that was not."""

from __future__ import annotations

import re
import shutil
import sqlite3
import sys
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from sqlalchemy import delete

from gpuwatch.cli import Exit
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.tables import hourly, poll_day
from tests.cli.conftest import Ran, Shell
from tests.storage.aged_store import DAYS, END, MIDDLE_DAY, START, age
from tests.upgraded_store import open_upgraded

COMMANDS = (
    ("history", "H100 SXM", "--since", "all", "--json", "--under", "2.4"),
    ("history", "RTX 4090", "--since", "60d", "--until", "2026-02-20", "--json"),
    ("history", "H100 SXM", "--since", "all", "--every", "1d", "--provider", "vastai:listed", "--json"),
    ("forecasts", "calendar", "H100 SXM", "--since", "all", "--json"),
    ("forecasts", "advise", "H100 SXM", "--under", "2.5", "--since", "all", "--json"),
    ("forecasts", "backtest", "--gpu", "H100 SXM", "--max-price", "2.5", "--since", "all", "--json"),
    ("market", "--since", "60d", "--json"),
    ("history", "H100 SXM", "--since", "60d", "--every", "1d", "--json"),
    ("store", "export", "-", "--since", "all"),
)


@pytest.fixture(scope="module")
def half_aged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("aged") / "gpuwatch.db"
    database = open_upgraded(f"sqlite:///{path}")
    age(database, 0, MIDDLE_DAY)
    database.close()
    return path


@pytest.fixture
def stored(shell: Shell, half_aged: Path) -> Shell:
    """The store in the middle of its time, and a lake."""
    shutil.copy(half_aged, shell.folder / "gpuwatch.db")
    shell.settings(f'{database_line(shell)}[history]\nlake = "{shell.folder}/lake"\n')
    return shell


def database_line(shell: Shell) -> str:
    return f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\ntimezone = "UTC"\n'


def answer(shell: Shell, command: tuple[str, ...]) -> Ran:
    """Days are asked for where midnight lies within an hour of UTC."""
    zone = "Asia/Kolkata" if "1d" in command else "UTC"
    lines = (shell.folder / "gpuwatch.toml").read_text()
    shell.settings(re.sub('timezone = ".*"', f'timezone = "{zone}"', lines))
    return shell(*command)


def go_on(shell: Shell) -> None:
    database = open_database(f"sqlite:///{shell.folder}/gpuwatch.db")
    age(database, MIDDLE_DAY, DAYS)
    database.close()


def write_and_prune(shell: Shell, at: datetime, keep_days: int) -> dict[str, Any]:
    """Write the lake, and drop from the store what is older, the hourly figures, too."""
    with time_machine.travel(at, tick=False):
        written = shell("store", "export", "--lake", f"{shell.folder}/lake", "--json")
    assert written.code == Exit.DONE, written.err
    database = open_database(f"sqlite:///{shell.folder}/gpuwatch.db")
    report = prune(database, timedelta(days=keep_days), at)
    assert report.intervals > 100
    assert report.kept_from is not None
    with database.write() as connection:
        connection.execute(delete(hourly).where(hourly.c.hour < report.kept_from.timestamp() // 3600))
        connection.execute(delete(poll_day).where(poll_day.c.day < report.kept_from.timestamp() // 86400))
    database.close()
    return dict(written.json)


def bring_hours_back(shell: Shell) -> None:
    with closing(sqlite3.connect(shell.folder / "gpuwatch.db")) as connection, connection:
        connection.execute("ATTACH ? AS whole", (f"{shell.folder}/whole.db",))
        added = connection.execute("INSERT OR IGNORE INTO hourly SELECT * FROM whole.hourly").rowcount
        assert added > 100


@pytest.mark.slow
def test_a_pruned_store_with_its_lake_answers_as_the_whole_store(stored: Shell, half_aged: Path) -> None:
    """Also where a machine went, its rows were dropped, and it came back; with the hourly prices dropped or kept."""
    write_and_prune(stored, START + timedelta(days=MIDDLE_DAY), 6)
    go_on(stored)
    second = write_and_prune(stored, END, 5)
    shown = stored("store", "stats").out
    assert re.search(rf"lake +{stored.folder}/lake, complete until 2026-03-11 00:00:00 UTC", shown), shown
    assert second["verified_until"] == "2026-03-11T00:00:00Z"  # an hour after midnight, the day before is over
    pruned = stored.folder / "gpuwatch.db"
    pruned.rename(stored.folder / "pruned.db")
    shutil.copy(half_aged, pruned)
    go_on(stored)
    with time_machine.travel(END, tick=False):
        whole = [answer(stored, command) for command in COMMANDS]
        assert {ran.code for ran in whole} == {Exit.DONE}, [ran.err for ran in whole]
        pruned.rename(stored.folder / "whole.db")
        (stored.folder / "pruned.db").rename(pruned)
        for are_kept in (False, True):
            if are_kept:
                shutil.copy(pruned, stored.folder / "pruned.db")
                bring_hours_back(stored)
            for command, before in zip(COMMANDS, whole, strict=True):
                assert answer(stored, command).out == before.out, (command, are_kept)
        (stored.folder / "pruned.db").rename(pruned)
        shutil.rmtree(stored.folder / "lake")
        for command in COMMANDS:
            ran = answer(stored, command)
            assert (ran.code, ran.out) == (Exit.FAILED, ""), command
            assert "is missing, and the store no longer has its prices" in ran.err
        stored.settings(database_line(stored))
        for command, before in zip(COMMANDS, whole, strict=True):
            assert answer(stored, command).out != before.out, "the lake was not needed"


def test_without_the_extra_its_install_line_is_named(stored: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    write_and_prune(stored, START + timedelta(days=MIDDLE_DAY), 6)
    command = ("history", "H100 SXM", "--since", "all", "--json")
    with time_machine.travel(START + timedelta(days=MIDDLE_DAY), tick=False):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        assert stored(*command).code == Exit.DONE  # a folder is read without it
        ran = stored("store", "export", "--lake", f"{stored.folder}/new")
        assert ran.code == Exit.USAGE
        assert "[lake]" in ran.err
        monkeypatch.setitem(sys.modules, "duckdb", None)
        ran = stored(*command)
        assert (ran.code, ran.out) == (Exit.USAGE, "")
        assert "[lake]" in ran.err
        assert stored("history", "H100 SXM", "--since", "3d", "--json").code == Exit.DONE  # all in the store


def test_a_file_or_a_lake(stored: Shell) -> None:
    for words in ((), ("prices.csv", "--lake", "x")):
        assert "name either a FILE or --lake" in stored("store", "export", *words).err
