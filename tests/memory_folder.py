"""Temporary files of the tests in memory: a commit to a disk waits for milliseconds, and the suite commits 100,000s."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
ROOM_BYTES = 6 << 30  # a run leaves 1.3 GB of files


def use_memory() -> None:
    """Make the shared memory the folder of temporary files, also of child processes, unless $TMPDIR names another."""
    if not os.environ.get("TMPDIR") and is_usable(SHARED_MEMORY):
        os.environ["TMPDIR"] = str(SHARED_MEMORY)
        tempfile.tempdir = None  # it is looked up once


def is_usable(folder: Path) -> bool:
    """Whether files may be written and run there, and both the file system and the memory have room."""
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        return False
    state = os.statvfs(folder)
    room = min(state.f_bavail * state.f_frsize, _available_bytes())
    return room >= ROOM_BYTES and not state.f_flag & os.ST_NOEXEC


def _available_bytes() -> int:
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
