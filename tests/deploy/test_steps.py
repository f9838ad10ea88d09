"""docs/deploy.md and docs/upgrade.md name only what exists: files, commands, options, credentials."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from gpuwatch.cli import main
from gpuwatch.cli.base import LazyGroup
from gpuwatch.secret import Secret
from gpuwatch.settings import load
from tests.checkout import ROOT

TEXT = "\n".join((ROOT / "docs" / page).read_text() for page in ("deploy.md", "upgrade.md"))
SHELL = "\n".join(re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL))
USED = sorted({tuple(shlex.split(one)) for one in re.findall(r"gpuwatch-as-service ([a-z][^#`\n|&]*)", TEXT)})


def test_the_files_it_installs_are_there() -> None:
    named = set(re.findall(r"deploy/[\w.*-]+", SHELL))
    assert len(named) > 3
    for name in named:
        assert list(ROOT.glob(name)), name


@pytest.mark.parametrize("words", USED, ids=" ".join)
def test_a_command_is_one_that_gpuwatch_has(words: tuple[str, ...]) -> None:
    command: click.Command | None = main
    rest = [word for word in words if word not in {"…", "LAUNCH"}]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        command = command.get_command(click.Context(command), rest.pop(0))
    assert command is not None
    known = {option for param in command.params for option in param.opts}
    assert {word for word in rest if word.startswith("--")} <= known


def test_commands_were_found_at_all() -> None:
    assert {words[0] for words in USED} >= {"doctor", "alerts", "launches", "store"}
    assert isinstance(main, LazyGroup)
    assert {words[0] for words in USED} <= set(main.entries)


def test_credentials_are_taken_by_the_names_that_it_tells(tmp_path: Path) -> None:
    """systemd replaces the folder by the unit's name and an underscore before each file name."""
    named = set(re.findall(r"/etc/gpuwatch/credentials/(\w+)", SHELL))
    assert named == {"vast_api_key", "notify__telegram__bot_token", "notify__email__password", "database_url"}
    for name in named:
        secret = "postgresql+psycopg://u:p@h/db" if name == "database_url" else f"secret-{name}"
        (tmp_path / f"gpuwatch_{name}").write_text(secret + "\n")
    (tmp_path / "gpuwatch.toml").write_text(
        '[notify.telegram]\nchat_id = "1"\n'
        '[notify.email]\nhost = "h"\nusername = "u"\nsender = "a@example.org"\nrecipients = ["b@example.org"]\n'
    )
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path), "HOME": str(tmp_path)}
    settings = load(str(tmp_path / "gpuwatch.toml"), env=env, cwd=tmp_path)
    assert settings.providers["vastai"].api_key == Secret("secret-vast_api_key")
    assert "telegram" in settings.channels
    assert settings.channels["telegram"].secrets["bot_token"].reveal() == "secret-notify__telegram__bot_token"
    assert "email" in settings.channels
    assert settings.channels["email"].secrets["password"].reveal() == "secret-notify__email__password"
    assert settings.database_url == "postgresql+psycopg://u:p@h/db"


def test_commands_run_as_the_service_does() -> None:
    """They have the same user, folders and credentials; otherwise they would use different databases."""
    unit = (ROOT / "deploy/gpuwatch.service").read_text()
    script = (ROOT / "deploy/gpuwatch-as-service").read_text()
    shared = re.findall(r"(?m)^((?:DynamicUser|User|StateDirectory|LoadCredential)\w*=.*)$", unit)
    assert len(shared) == 5
    for line in shared:
        assert f"--property={line} " in script, line
    assert re.search(r"(?m)^ExecStart=(\S+)", unit).group(1) + ' "$@"' in script  # type: ignore[union-attr]
