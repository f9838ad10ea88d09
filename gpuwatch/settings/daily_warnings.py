"""Prints the same warning once a day, not at every command.

What was printed is remembered in the state folder, not in the store: a command that reads creates no database.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpuwatch.errors import SettingsError
from gpuwatch.settings.own_file import read_private_file, write_private_file
from gpuwatch.settings.secrets import state_folder

REPEAT_AFTER_S = 86_400.0
_FILE = "warnings.bin"
_MAX_TEXTS = 1000


def due_today(texts: Sequence[str], env: Mapping[str, str], unix: Callable[[], float] = time.time) -> list[str]:
    """The texts that were not printed within a day; they count as printed now.

    Args:
        env: for the state folder; without a usable one, every text is due.
        unix: seconds since 1970.
    """
    try:
        folder = state_folder(env)
    except SettingsError:
        return list(texts)
    file, now_s = folder / _FILE, unix()
    # a clock that was set back silences nothing
    printed = {name: at_s for name, at_s in _read(file).items() if 0 <= now_s - at_s < REPEAT_AFTER_S}
    due = {_name(text): text for text in texts if _name(text) not in printed}
    if due:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(file, _lines(printed | dict.fromkeys(due, now_s)))
    return list(due.values())


def _name(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _lines(printed: Mapping[str, float]) -> bytes:
    """Whole seconds, rounded down: a time in the future would count as a clock that was set back."""
    return "\n".join(f"{name} {int(at_s)}" for name, at_s in list(printed.items())[-_MAX_TEXTS:]).encode()


def _read(file: Path) -> dict[str, float]:
    """Name of a text → when it was printed; empty if the file is missing or damaged."""
    with suppress(ValueError):
        lines = (read_private_file(file) or b"").decode().splitlines()
        return {name: float(at) for name, _, at in (line.partition(" ") for line in lines)}
    return {}
