"""How fast this machine writes and reads a folder, and downloads from an address."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, NamedTuple
from urllib.request import Request, urlopen

from gpuwatch.ports.measuring import CannotMeasure

_BLOCK: Final = 4 << 20
_MB: Final = 1e6


class DiskSpeed(NamedTuple):
    """MB a second; reading bypasses the cache where the system can drop it."""

    write_mb_s: float
    read_mb_s: float


def disk_speed(folder: Path, megabytes: int = 256, seconds: Callable[[], float] = time.perf_counter) -> DiskSpeed:
    """Write a file without a name, in full to the disk, and read it again. Raises CannotMeasure."""
    block, blocks = os.urandom(_BLOCK), max(1, megabytes * 1_000_000 // _BLOCK)
    try:
        with TemporaryFile(dir=folder, buffering=0) as file:
            began = seconds()
            for _ in range(blocks):
                file.write(block)
            os.fsync(file.fileno())
            written = seconds()
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            reading = seconds()
            while file.read(_BLOCK):
                pass
            read = seconds()
    except OSError as error:
        raise CannotMeasure(f"cannot write to {folder}: {error.strerror}") from error
    megabyte = blocks * _BLOCK / _MB
    return DiskSpeed(megabyte / (written - began), megabyte / (read - reading))


def download_mbps(
    url: str, within_s: float = 10.0, max_bytes: int = 500_000_000, seconds: Callable[[], float] = time.perf_counter
) -> float:
    """Megabits a second of a download, which ends after so many seconds or bytes. Raises CannotMeasure."""
    if not url.startswith(("https://", "http://")):
        raise CannotMeasure(f"{url}: expected an address that begins with https://")
    received = 0
    try:
        with urlopen(Request(url, headers={"User-Agent": "gpuwatch"}), timeout=within_s) as answer:  # noqa: S310 checked
            began = seconds()
            while received < max_bytes and seconds() - began < within_s:
                part = answer.read(1 << 20)
                if not part:
                    break
                received += len(part)
            took = seconds() - began
    except (OSError, ValueError) as error:
        why = str(error).removeprefix("<urlopen error ").removesuffix(">")
        raise CannotMeasure(f"cannot download {url}: {why}") from error
    if not received:
        raise CannotMeasure(f"{url} sent nothing")
    return received * 8 / _MB / max(took, 1e-6)
