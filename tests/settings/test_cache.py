"""Settings are validated once and cached by content: without secrets, and never with a wrong result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpuwatch.errors import SettingsError
from gpuwatch.settings import Settings, load
from gpuwatch.settings import cache as memory

TOML = """
timezone = "Europe/Berlin"
[providers.vastai]
api_key = "canary-in-file"
[notify.telegram]
chat_id = 1
[notify.email]
host = "h"
username = "u"
sender = "a@b"
recipients = ["c@d"]
[[watch]]
name = "one"
gpu = ["H100", "A100 80GB"]
max_price = 3.60
[watch.launch]
onstart = "export KEY=canary-in-onstart"
env = { KEY = "canary-in-env" }
[[watch]]
name = "two"
gpu = "RTX 4090"
max_price = 0.333333333
repeat_every = "never"
"""


class Home:
    """A user's folder with settings and a cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            "HOME": str(folder),
            "GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN": "canary:telegram",
            "GPUWATCH_NOTIFY__EMAIL__PASSWORD": "canary mail",
            "GPUWATCH_NOTIFY__APPRISE__URLS": '["ntfy://canary"]',
            "GPUWATCH_DATABASE_URL": "postgresql+psycopg://u:canary@h/db",
        }
        self.write(TOML)

    def write(self, toml: str) -> None:
        (self.folder / "gpuwatch.toml").write_text(toml)

    def load(self) -> Settings:
        return load(env=self.env, cwd=self.folder)

    @property
    def kept(self) -> list[Path]:
        return sorted((self.folder / ".cache" / "gpuwatch").glob("*"))


@pytest.fixture
def user(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_what_is_remembered_is_what_was_judged(user: Home) -> None:
    first = user.load()
    assert len(user.kept) == 1
    assert msgspec.json.encode(user.load()) == msgspec.json.encode(first)
    assert first.providers["vastai"].api_key == "canary-in-file"
    launch = first.watches[0].launch
    assert launch is not None
    assert launch.env == {"KEY": "canary-in-env"}


def test_a_second_start_needs_neither_pydantic_nor_what_else_is_heavy(user: Home) -> None:
    (user.folder / "gpuwatch.toml").chmod(0o600)
    user.load()
    heavy = ("pydantic", "httpcore", "sqlalchemy", "rich", "dotenv")
    code = (
        "import sys; from gpuwatch.settings import load; "
        "assert load().channels['telegram'].options['bot_token'] == 'canary:telegram'; "
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=user.env, cwd=user.folder, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_no_secret_is_kept(user: Home) -> None:
    user.load()
    assert b"canary" not in user.kept[0].read_bytes()
    assert b"one" in user.kept[0].read_bytes()


def test_what_is_kept_is_for_its_owner_alone(user: Home) -> None:
    user.load()
    assert user.kept[0].stat().st_mode & 0o777 == 0o600
    assert user.kept[0].parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["GPUWATCH_TIMEZONE", "GPUWATCH_PROVIDERS__VASTAI__POLL_EVERY"])
def test_a_changed_environment_is_judged_anew(user: Home, name: str) -> None:
    user.load()
    user.env[name] = "nonsense"
    with pytest.raises(SettingsError):
        user.load()


def test_a_changed_file_is_judged_anew(user: Home) -> None:
    user.load()
    user.write(TOML.replace("3.60", "3.61"))
    assert str(user.load().watches[0].max_price_usd_gpu_hour) == "3.61"


def test_a_changed_secret_is_judged_and_used(user: Home, tmp_path: Path) -> None:
    user.load()
    user.env["VAST_API_KEY"] = "other"
    assert user.load().providers["vastai"].api_key == "other"
    user.env["VAST_API_KEY"] = "no key at all"
    with pytest.raises(SettingsError):
        user.load()


def test_the_default_database_is_found_afresh(user: Home) -> None:
    del user.env["GPUWATCH_DATABASE_URL"]
    user.load()
    user.env["STATE_DIRECTORY"] = "/var/lib/gw"
    assert user.load().database_url == "sqlite:////var/lib/gw/gpuwatch.db"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    place = content.index(b"3.60")
    content[place : place + 4] = b"9.60"
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "spoil", [flip, cut, link, folder, lambda path: path.write_bytes(b""), lambda path: path.chmod(0o666)]
)
def test_what_was_tampered_with_is_ignored(user: Home, spoil: Callable[[Path], object]) -> None:
    first = user.load()
    kept = user.kept[0]
    spoil(kept)
    assert memory.load_cached(kept.stem.removeprefix("settings-"), user.env) is None
    assert user.load() == first


def test_without_a_cache_folder_settings_still_load(user: Home) -> None:
    user.env["XDG_CACHE_HOME"] = "/dev/null"
    assert user.load() == user.load()


def test_old_ones_are_cleared_away(user: Home) -> None:
    for number in range(memory.MAX_FILES + 3):
        user.write(TOML + f"# {number}\n")
        user.load()
    assert len(user.kept) == memory.MAX_FILES


def test_systemds_cache_folder_comes_first(user: Home) -> None:
    user.env["CACHE_DIRECTORY"] = str(user.folder / "systemd")
    user.load()
    assert os.listdir(user.folder / "systemd")
