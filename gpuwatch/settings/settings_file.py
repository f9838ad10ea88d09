"""The settings file: where it is, its bytes, and its tables with exact numbers."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpuwatch.errors import SettingsError
from gpuwatch.home_folder import expand_home, xdg_folder

MAX_FILE_BYTES = 4 * 1024 * 1024


def find_file(config: str | None, env: Mapping[str, str], cwd: Path) -> Path | None:
    """The settings file: the first that exists, be it unreadable. A named file must exist."""
    for configured, origin in ((config, "--config"), (env.get("GPUWATCH_CONFIG"), "$GPUWATCH_CONFIG")):
        if configured:
            try:
                path = cwd / expand_home(configured)
            except OSError as error:
                raise SettingsError([f"{configured}: {error.strerror} ({origin})"]) from None
            if not path.exists() or path.is_dir():
                raise SettingsError([f"{configured}: no such file ({origin})"])
            return path
    home = Path(env["HOME"], ".config") if os.path.isabs(env.get("HOME", "")) else None
    config_home = xdg_folder(env, "XDG_CONFIG_HOME") or home
    candidates = [cwd / "gpuwatch.toml", *([config_home / "gpuwatch" / "gpuwatch.toml"] if config_home else [])]
    return next((path for path in [*candidates, Path("/etc/gpuwatch/gpuwatch.toml")] if os.path.lexists(path)), None)


def read_file(file: Path | None) -> bytes:
    """Its content; empty without a file. Raises SettingsError: it cannot be read."""
    if file is None:
        return b""
    try:
        with open(file, "rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError([f"{file}: cannot read the file: {error.strerror}"]) from None
    if len(content) > MAX_FILE_BYTES:
        raise SettingsError([f"{file}: expected a file of at most 4 MiB"])
    return content


def parse_toml(content: bytes, name: str) -> dict[str, Any]:
    """The file's tables; decimal numbers are exact Decimals.

    Raises:
        SettingsError: it is not TOML; one line with its line number.
    """
    try:
        text = content.decode("utf-8-sig")
        return tomllib.loads(text, parse_float=Decimal)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingsError([f"{name}:{line}: expected UTF-8 text"]) from None
    except (tomllib.TOMLDecodeError, ValueError, ArithmeticError, RecursionError) as error:
        raise SettingsError([_syntax_error(name, text, error)]) from None


def _syntax_error(name: str, text: str, error: Exception) -> str:
    position = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
    line = int(position[1]) if position else text.count("\n") + 1
    reason = str(error).split(" (at ")[0].split(":")[0]
    reason = re.sub(r"'[^']*'|\"[^\"]*\"", "…", reason)  # never show a value
    return f"{name}:{line}: not valid TOML: {reason[:1].lower()}{reason[1:]}"
