"""Runs commands in this process, with the embedded marketplace, in a folder of their own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from alembic import command

from gpuwatch.cli import run
from gpuwatch.emulator import Marketplace
from gpuwatch.settings import load
from gpuwatch.storage.setup.database import sqlite_path
from gpuwatch.storage.setup.migrate import alembic_config, newest_schema, revision
from tests.checkout import TESTS
from tests.upgraded_store import empty_file, open_upgraded

SERIES = TESTS / "recorded" / "price-history" / "primeintellect-best-2025-10-19_11-03.csv.gz"
PACE = "20"  # three seconds between two requests are a seventh of one


class Ran(NamedTuple):
    """The results of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """A folder, an environment, and `gpuwatch …` in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def settings(self, text: str) -> None:
        (self.folder / "gpuwatch.toml").write_text(text)

    def new_store(self) -> Path:
        """Put an empty, upgraded database where the settings name it; all migrations take a tenth of a second."""
        path = sqlite_path(load(cwd=self.folder).database_url)
        assert path is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(empty_file())
        return path

    def __call__(self, *argv: str) -> Ran:
        self._capsys.readouterr()
        code = run(argv)
        out, err = self._capsys.readouterr()
        return Ran(int(code), out, err)


def older_schema(url: str) -> str:
    """Downgrade a database to the previous schema; returns its revision."""
    database = open_upgraded(url)
    with database.write() as connection:
        command.downgrade(alembic_config(connection), "-1")
    older = revision(database)
    database.close()
    assert older is not None
    assert older != newest_schema()
    return older


@pytest.fixture(scope="session")
def h100_prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A public series of one GPU, for output tests that read it hundreds of times."""
    path = tmp_path_factory.mktemp("prices") / "h100.csv.gz"
    with gzip.open(SERIES, "rt", encoding="utf-8") as series, gzip.open(path, "wt", encoding="utf-8") as kept:
        kept.writelines(line for number, line in enumerate(series) if number == 0 or "H100" in line)
    return path


@pytest.fixture
def market() -> Iterator[Marketplace]:
    """An empty market: a test publishes the offers that it needs."""
    with Marketplace(seed=1, key="demo-key", size=8, odd_rows=False) as opened:
        for row in opened.offers():
            opened.withdraw(row["id"])
        yield opened


@pytest.fixture
def shell(
    market: Marketplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Run `gpuwatch` with only the marketplace's address in its environment."""
    for name in ("VAST_API_KEY", "GPUWATCH_CONFIG", "STATE_DIRECTORY", "CREDENTIALS_DIRECTORY", "CACHE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("GPUWATCH_TEST_PACE", PACE)
    monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__BASE_URL", market.url)
    monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__SEARCH_INTERVAL", "0s")
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys)
