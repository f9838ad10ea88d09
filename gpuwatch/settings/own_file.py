"""Files owned by this user only, written atomically and with a checksum."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from gpuwatch.atomic_file import atomic_file

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
