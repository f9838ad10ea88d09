"""Secrets in `.env`: added below what is there, for its owner alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.atomic_file import atomic_file
from gpuwatch.errors import GpuwatchError

_PLAIN = re.compile(r"[A-Za-z0-9_.:/@%+,=~-]+")


def add_to_env_file(path: Path, variables: Mapping[str, str]) -> None:
    """Set variables in a `.env` file and keep every other line of it; its mode becomes 600.

    Raises:
        GpuwatchError: it cannot be read or written.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
        with atomic_file(path.resolve(), mode=0o600, is_durable=True) as part:
            part.write_text(with_variables(text, variables), encoding="utf-8")
    except OSError as error:
        raise GpuwatchError(f"cannot write {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GpuwatchError(f"{path}: expected UTF-8 text") from None


def with_variables(text: str, variables: Mapping[str, str]) -> str:
    """The text of a `.env` file with these variables: in the place of their last line, or at its end. Pure."""
    lines = text.splitlines()
    for name, value in variables.items():
        places = [at for at, line in enumerate(lines) if re.match(rf"\s*(export\s+)?{re.escape(name)}\s*=", line)]
        line = f"{name}={_quoted(value)}"
        if places:
            lines[places[-1]] = line
        else:
            lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def _quoted(value: str) -> str:
    """As python-dotenv reads it back: quoted if it has a space, a quote or a #."""
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
