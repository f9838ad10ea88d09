"""A launch full of secrets, as text and as references: no output, log or kept copy of the settings contains one."""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
from pathlib import Path

import msgspec
import pytest

from gpuwatch.cli import Exit, run
from gpuwatch.settings import Settings, load, store_last_good
from gpuwatch.settings.external_values import account_secrets, launch_secrets

TOML = """
[providers.vastai]
api_key = "canary-key"
[budget]
max_usd_hour = 0.01
[[watch]]
name = "w"
gpu = "H100"
max_price = 1
action = "launch"
[watch.launch]
onstart_file = "start.sh"
env = { LITERAL = "canary-literal", ENV = { from_env = "A_CANARY" }, FILE = { from_file = "value" } }
registry = { server = "ghcr.io", username = "me", password = { from_file = "password" } }
on_running = { url = "https://me:canary-login@hooks.example.org/canary-path", secret = "canary-literal-secret" }
before_stop = { url = { from_env = "CANARY_URL" }, secret = { from_env = "A_CANARY" } }
on_ended = "curl -H 'Authorization: canary-command' http://x"
[[watch]]
name = "v"
gpu = "H100"
max_price = 1
[watch.launch]
onstart = "export KEY=canary-inline"
registry = { server = "ghcr.io", username = "me", password = "canary-literal-password" }
on_ended = { url = "http://hooks.example.org/canary-path" }
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with these settings, and its own state."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"HOME": tmp_path, "XDG_CONFIG_HOME": tmp_path / "c", "XDG_STATE_HOME": tmp_path / "s"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("VAST_API_KEY", raising=False)
    monkeypatch.setenv("A_CANARY", "canary-from-env")
    monkeypatch.setenv("CANARY_URL", "https://h/canary-url")
    for name in ("value", "password", "start.sh"):
        (tmp_path / name).write_text(f"canary-in-{name}")
    (tmp_path / "gpuwatch.toml").write_text(TOML)
    return tmp_path


def test_the_settings_themselves_hold_them_all(here: Path) -> None:
    """Otherwise the tests below could not fail."""
    settings = load()
    written = [secret.reveal() for secret in account_secrets(settings)]
    for launch in (watch.launch for watch in settings.watches):
        assert launch is not None
        written += [secret.reveal() for secret in launch_secrets(launch)]
        written += [*launch.env.values(), launch.onstart or "", (launch.on_ended and launch.on_ended.command) or ""]
    assert set(re.findall(r"canary[-\w.]*", "\n".join(written))) == {
        "canary-key", "canary-literal", "canary-from-env", "canary-in-value", "canary-in-password", "canary-login",
        "canary-path", "canary-literal-secret", "canary-url", "canary-command", "canary-in-start.sh", "canary-inline",
        "canary-literal-password",
    }  # fmt: skip


@pytest.mark.parametrize("command", [["show"], ["show", "--json"], ["schema"]])
def test_no_command_prints_one(here: Path, capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert run(["config", *command]) == Exit.DONE
    printed = capsys.readouterr()
    assert "env" in printed.out
    assert "canary" not in printed.out + printed.err


def test_what_is_shown_of_them_is_what_can_be_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["config", "show", "--json"])
    found = {one["key"]: one["value"] for one in json.loads(capsys.readouterr().out)["settings"]}
    first, second = 'watch "w".launch.', 'watch "v".launch.'
    mask = "********"
    assert found[first + "env"] == {"LITERAL": mask, "ENV": {"from_env": "A_CANARY"}, "FILE": {"from_file": "value"}}
    assert found[first + "registry.password"] == {"from_file": "password"}
    assert found[first + "on_running"] == {"url": f"https://hooks.example.org/{mask}", "secret": mask}
    assert found[first + "before_stop"] == {"url": {"from_env": "CANARY_URL"}, "secret": {"from_env": "A_CANARY"}}
    assert (found[first + "on_ended"], found[first + "onstart_file"]) == (mask, "start.sh")
    assert (found[second + "registry.password"], found[second + "onstart"]) == (mask, "(1 lines)")
    assert found[second + "registry.username"] == "me"
    assert not [key for key in found if key.startswith((first + "bid.", first + "volume."))]


def test_the_kept_copy_and_the_log_hold_none(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        store_last_good(load(), os.environ)
    (kept,) = (here / "s" / "gpuwatch").iterdir()
    assert b"vastai" in kept.read_bytes()
    assert b"canary" not in kept.read_bytes()
    assert "blocks every launch" in caplog.text
    assert "canary" not in caplog.text


def test_settings_cannot_be_encoded_by_accident(here: Path) -> None:
    settings = load()
    for part in (settings, settings.providers, settings.watches[0]):
        for encode in (msgspec.json.encode, msgspec.msgpack.encode, msgspec.to_builtins, pickle.dumps):
            with pytest.raises(TypeError) as refused:
                encode(part)
            assert "canary" not in str(refused.value)


def test_no_repr_of_settings_or_of_a_part_holds_one(here: Path) -> None:
    settings: Settings = load()
    parts = [settings, *settings.watches, *(watch.launch for watch in settings.watches)]
    assert "canary" not in "".join(repr(part) for part in parts)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_fault_among_them_prints_one(here: Path, capsys: pytest.CaptureFixture[str], form: list[str]) -> None:
    (here / "value").unlink()
    (here / "gpuwatch.toml").write_text(TOML.replace("max_price = 1\n", "max_price = 0\nlaunhc = 1\n"))
    assert run(["config", "show", *form]) == Exit.USAGE
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 5
    assert "canary" not in printed.out + printed.err
