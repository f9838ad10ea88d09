"""Files owned by this user only, written atomically and with a checksum."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from gpuwatch.atomic_file import atomic_file

_MAX_BYTES = 16 * 1024 * 1024
_SUM_BYTES = 32


def read_own(path: Path | str) -> bytes | None:
    """Its content; None: missing, damaged, or possibly written by another user."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as opened:
            about = os.fstat(opened.fileno())
            mine = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o022
            content = opened.read() if mine and about.st_size <= _MAX_BYTES else b""
    except OSError:
        return None
    body = content[_SUM_BYTES:]
    return body if content and hashlib.sha256(body).digest() == content[:_SUM_BYTES] else None


def write_own(path: Path, body: bytes) -> None:
    """Atomic: concurrent processes never see a partial file. Raises OSError."""
    with atomic_file(path, mode=0o600) as part:
        part.write_bytes(hashlib.sha256(body).digest() + body)
