"""Files that other processes only ever see complete: written under a temporary name, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_file(
    target: Path, *, mode: int = 0o666, is_durable: bool = False, may_replace: bool = True
) -> Iterator[Path]:
    """Yield a new, empty file beside `target`; it gets that name when the block ends without an error.

    Args:
        mode: permissions of the new file, before the umask.
        is_durable: the complete file survives a power cut.
        may_replace: False: never replace a file that appears in the meantime.

    Raises:
        FileExistsError: the target exists and may not be replaced.
        OSError: the file cannot be written; no partial file is left behind.
    """
    beginning = os.fsdecode(os.fsencode(target.name)[:100])  # a file system limits bytes, not letters
    part = target.with_name(f".{beginning}.{os.urandom(6).hex()}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield part
        publish(part, target, is_durable=is_durable, may_replace=may_replace)
    finally:
        part.unlink(missing_ok=True)


def publish(part: Path, target: Path, *, is_durable: bool = False, may_replace: bool = True) -> None:
    """Give a complete file its name in one step. The arguments and errors are those of `atomic_file`."""
    if is_durable:
        _sync(part)
    if may_replace:
        part.replace(target)
    else:
        _link(part, target)
    if is_durable:
        _sync(target.parent)


def _link(part: Path, target: Path) -> None:
    """Unlike a rename, a link never replaces a file."""
    try:
        target.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        part.replace(target)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
