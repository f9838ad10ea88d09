"""The kept copy of the settings: whatever is wrong with it, rescue mode starts without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpuwatch.secret import Secret
from gpuwatch.settings import load, store_last_good
from gpuwatch.settings.daily_warnings import read_private_file, write_private_file
from gpuwatch.settings.rescue import FILE, load_for_rescue, load_last_good

PROVIDER = '[providers.vastai]\nbase_url = "http://127.0.0.1:1"\n'
LAUNCH = """[[watch]]
name = "w"
gpu = "H100"
max_price = 2
[watch.launch]
max_runtime = "1h"
env = { ENV = { from_env = "A_TOKEN" } }
"""


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


def older(path: Path) -> None:
    """As before secrets were references: blanks in their place, and names of variables."""
    tree = msgspec.msgpack.decode(read_private_file(path) or b"")
    tree["watches"][0]["launch"] |= {"secret_env": [], "registry": {"server": "s", "username": "u", "password": ""}}
    write_private_file(path, msgspec.msgpack.encode(tree))


SPOILS: list[Callable[[Path], object]] = [flip, cut, link, older, lambda path: path.write_bytes(b""), Path.unlink]


@pytest.mark.parametrize("spoil", [*SPOILS, lambda path: path.chmod(0o666)])
def test_a_copy_that_is_damaged_foreign_or_older_is_as_if_there_were_none(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    file = tmp_path / "gpuwatch.toml"
    file.write_text(PROVIDER + LAUNCH)
    env = {"STATE_DIRECTORY": str(tmp_path / "state"), "VAST_API_KEY": "the-key", "A_TOKEN": "a-token"}
    store_last_good(load(env=env, cwd=tmp_path), env)
    assert load_last_good(env) is not None
    spoil(tmp_path / "state" / FILE)
    assert load_last_good(env) is None
    file.unlink()
    settings = load_for_rescue(str(file), env=env, cwd=tmp_path).settings
    assert (settings.providers, settings.watches) == ({}, ()), "the address is not guessed"


def test_a_copy_of_before_without_launches_gives_its_addresses(tmp_path: Path) -> None:
    """It knows no places, so the keys are found by their names alone."""
    file = tmp_path / "gpuwatch.toml"
    file.write_text(PROVIDER)
    env = {"STATE_DIRECTORY": str(tmp_path / "state"), "VAST_API_KEY": "the-key"}
    store_last_good(load(env=env, cwd=tmp_path), env)
    copy = tmp_path / "state" / FILE
    tree = msgspec.msgpack.decode(read_private_file(copy) or b"")
    tree["providers"]["vastai"]["api_key"] = None
    del tree["providers"]["vastai"]["secrets"]
    write_private_file(copy, msgspec.msgpack.encode(tree))
    file.unlink()
    vastai = load_for_rescue(str(file), env=env, cwd=tmp_path).settings.providers["vastai"]
    assert (vastai.base_url, vastai.api_key) == ("http://127.0.0.1:1", Secret("the-key"))
