"""Temporary files of the tests in memory: a commit to a disk waits for milliseconds, and the suite commits 100,000s."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
ROOM_BYTES = 6 << 30  # a run leaves 1.3 GB of files, until its end
_NAME = "gpuwatch-tests-"


def use_memory() -> None:
    """Keep temporary files in a folder in shared memory until the end of this process, unless $TMPDIR names a folder.

    Child processes use the same folder.
    """
    if os.environ.get("TMPDIR") or not is_usable(SHARED_MEMORY):
        return
    remove_left_over(SHARED_MEMORY)
    folder = SHARED_MEMORY / f"{_NAME}{os.getpid()}"
    folder.mkdir(mode=0o755, exist_ok=True)  # PostgreSQL runs as another user where the tests run as root
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # it is looked up once
    atexit.register(_remove, folder, os.getpid())


def is_usable(folder: Path) -> bool:
    """Whether files may be written and run there, and both the file system and the memory have room."""
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        return False
    state = os.statvfs(folder)
    room = min(state.f_bavail * state.f_frsize, _available_bytes())
    return room >= ROOM_BYTES and not state.f_flag & os.ST_NOEXEC


def remove_left_over(memory: Path) -> None:
    """Remove the folders of runs that were killed."""
    for folder in memory.glob(f"{_NAME}*"):
        if not Path("/proc", folder.name.removeprefix(_NAME)).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # and not one of its forks
        shutil.rmtree(folder, ignore_errors=True)


def _available_bytes() -> int:
    """Return the memory that may still be used, 0 if unknown. In a container its limit counts, too."""
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    free = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
    limit = CONTAINER_LIMIT.read_text().strip() if CONTAINER_LIMIT.exists() else "max"
    return free if limit == "max" else min(free, int(limit))
