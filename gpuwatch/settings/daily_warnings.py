"""Prints the same warning once a day, not at every command.

What was printed is remembered in the state folder, not in the store: a command that reads creates no database.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpuwatch.atomic_file import atomic_file
from gpuwatch.errors import SettingsError
from gpuwatch.settings.external_values import state_folder

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


# --- files of this user only, with a checksum -------------------------------------------------------------------------


_MAX_BYTES = 16 * 1024 * 1024
_DIGEST_BYTES = 32


def read_private_file(path: Path | str) -> bytes | None:
    """Its content; None: missing, damaged, or possibly written by another user."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            info = os.fstat(file.fileno())
            is_trusted = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022
            content = file.read() if is_trusted and info.st_size <= _MAX_BYTES else b""
    except OSError:
        return None
    body = content[_DIGEST_BYTES:]
    return body if content and hashlib.sha256(body).digest() == content[:_DIGEST_BYTES] else None


def write_private_file(path: Path, body: bytes) -> None:
    """Atomic: concurrent processes never see a partial file. Raises OSError."""
    with atomic_file(path, mode=0o600) as temporary:
        temporary.write_bytes(hashlib.sha256(body).digest() + body)
