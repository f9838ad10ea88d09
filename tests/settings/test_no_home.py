"""A user without a passwd entry and without HOME: no traceback, and no folder named `~`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.dataset import onnx_models as models
from gpuwatch.errors import SettingsError
from gpuwatch.home_folder import expand_home, home_folder, xdg_folder
from gpuwatch.settings import load
from gpuwatch.settings.external_values import database_url, state_folder
from gpuwatch.settings.rescue import load_last_good, store_last_good
from tests.checkout import ROOT

ASKS = "this user has no home folder for the database: set HOME, XDG_STATE_HOME or database_url"
# a real one needs another user: `os.path.expanduser` finds no passwd entry, as for `docker run --user 12345`
CHILD = """
import pwd, sys
def no_entry(_): raise KeyError("no passwd entry")
pwd.getpwuid = pwd.getpwnam = no_entry
from gpuwatch.cli import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No HOME, no passwd entry; returns the current folder."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "STATE_DIRECTORY", "GPUWATCH_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def no_entry(_user: object) -> None:
        raise KeyError("no passwd entry")

    monkeypatch.setattr("pwd.getpwuid", no_entry)
    monkeypatch.setattr("pwd.getpwnam", no_entry)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_database_needs_a_home_or_a_name(nobody: Path) -> None:
    with pytest.raises(SettingsError, match=ASKS):
        load(env={}, cwd=nobody)
    assert (
        load(env={"XDG_STATE_HOME": "/var/lib/x"}, cwd=nobody).database_url
        == "sqlite:////var/lib/x/gpuwatch/gpuwatch.db"
    )
    assert load(env={"HOME": "/home/x"}, cwd=nobody).database_url.startswith("sqlite:////home/x/.local/state/")
    named = load(env={"GPUWATCH_DATABASE_URL": "sqlite:///own.db"}, cwd=nobody)
    assert named.database_url == f"sqlite:///{nobody}/own.db"
    store_last_good(named, {})  # a fallback alone: nothing is stored, nothing raised
    assert load_last_good({}) is None
    assert list(nobody.iterdir()) == []


@pytest.mark.parametrize("name", ["~/x.toml", "~nobody-of-this-name/x.toml"])
@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_settings_file_below_no_home_is_one_line(nobody: Path, name: str, how: str) -> None:
    config, env = (name, {}) if how == "option" else (None, {"GPUWATCH_CONFIG": name})
    with pytest.raises(SettingsError, match=f"^{name}: no home folder for ~: set HOME") as fault:
        load(config, env=env, cwd=nobody)
    assert "\n" not in str(fault.value)


def test_a_database_below_a_home_is_never_in_a_folder_of_that_name(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="database_url: no home folder for ~"):
        database_url("sqlite:///~/own.db", {}, nobody)
    monkeypatch.setenv("HOME", "/home/x")
    assert database_url("sqlite:///~/own.db", {}, nobody) == "sqlite:////home/x/own.db"
    monkeypatch.setenv("HOME", "x")
    with pytest.raises(OSError, match="HOME is not a whole path"):
        expand_home("~/own.db")


def test_folders_that_are_not_absolute_are_ignored_as_the_specification_says(nobody: Path) -> None:
    assert xdg_folder({"XDG_STATE_HOME": "~/.local/state"}, "XDG_STATE_HOME") is None
    assert (home_folder({}), home_folder({"HOME": "~"}), home_folder({"HOME": "/h"})) == (None, None, Path("/h"))
    assert state_folder({"XDG_STATE_HOME": "~/s", "HOME": "/h"}) == Path("/h/.local/state/gpuwatch")
    assert models._hub({}) is None
    assert list(nobody.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "env", "said"),
    [
        (["check"], {"GPUWATCH_CONFIG": "~/x"}, "~/x: no home folder for ~: set HOME"),
        (["init", "--full"], {"GPUWATCH_CONFIG": "~/x"}, "~/x: no home folder for ~: set HOME"),
        (["launches"], {}, ASKS),
        (["run"], {}, ASKS),
        (["db", "upgrade"], {}, ASKS),
    ],
)
def test_commands_of_such_a_user_end_with_one_line(
    tmp_path: Path, argv: list[str], env: dict[str, str], said: str
) -> None:
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, *argv], cwd=tmp_path, env=kept | env, capture_output=True, text=True, check=False,
        timeout=100,
    )  # fmt: skip
    assert (ran.returncode, "Traceback" in ran.stderr) == (2, False), ran.stderr
    assert said in ran.stderr
    assert not (tmp_path / "~").exists()
