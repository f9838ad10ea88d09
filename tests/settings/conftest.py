"""A separate folder for loading settings: no test sees the settings of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.errors import SettingsError
from gpuwatch.settings import Settings, load

WATCH = '[[watch]]\nname = "one"\ngpu = "H100"\nmax_price = 3.60\n'

Loader = Callable[..., Settings]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The current folder of `loaded`."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def loaded(home: Path) -> Loader:
    """Run `load` in that folder; `toml` is its gpuwatch.toml, `dotenv` its .env."""

    def run(toml: str | bytes | None = None, dotenv: str | None = None, **kwargs: Any) -> Settings:
        if toml is not None:
            (home / "gpuwatch.toml").write_bytes(toml.encode() if isinstance(toml, str) else toml)
        if dotenv is not None:
            (home / ".env").write_text(dotenv)
        return load(**{"env": {}, "cwd": home, **kwargs})

    return run


@pytest.fixture
def faults(loaded: Loader) -> Callable[..., tuple[str, ...]]:
    """Return the errors of settings that must not load."""

    def run(*args: Any, **kwargs: Any) -> tuple[str, ...]:
        with pytest.raises(SettingsError) as caught:
            loaded(*args, **kwargs)
        return caught.value.faults

    return run
