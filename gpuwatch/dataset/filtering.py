"""A copy of a data set without the removed rows. The input is never changed."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from gpuwatch.atomic_file import atomic_file
from gpuwatch.dataset.audit import Audit, RemovalReason
from gpuwatch.dataset.scan import fingerprint
from gpuwatch.dataset.text_rows import FileLine, open_lines, read_lines
from gpuwatch.errors import GpuwatchError, UsageError

_PIECE = 1 << 20  # bytes


class FilteredCopy(NamedTuple):
    """What the copy contains."""

    rows: int
    bytes: int
    unread: int  # unusable lines, which are copied as well


def check_target(source: Path, target: Path, *, force: bool) -> None:
    """Refuse to overwrite the input under any name, or another file without --force. Raises UsageError."""
    try:
        if target.exists() and target.samefile(source):
            raise UsageError(f"{target} is the input itself; choose another file")
        if target.is_dir() or not target.parent.is_dir():
            raise UsageError(f"cannot write {target}; choose a file in an existing folder")
        if (target.exists() or target.is_symlink()) and not force:
            raise UsageError(f"{target} exists; choose another file, or replace it with --force")
    except OSError as error:
        raise UsageError(f"{target}: {error.strerror or error}") from error


def write_kept(
    audit: Audit, target: Path, removed: Path | None = None, *, drop_unread: bool = False, force: bool = False
) -> FilteredCopy:
    """Write the rows that stay, byte for byte and in order; either completely or not at all.

    Args:
        removed: a file for the other rows.
        drop_unread: drop unusable lines, too; by default they stay, because nothing has judged them.

    Raises:
        UsageError: a target is unusable, or the input has changed since it was read.
        GpuwatchError: the copy cannot be written.
    """
    for path in (target, removed) if removed else (target,):
        check_target(audit.path, path, force=force)
    if removed is not None and _is_same_file(removed, target):
        raise UsageError(f"{removed}: choose another file for the removed rows than for the kept rows")
    with _new_file(target, audit.path, force) as kept, _new_file(removed, audit.path, force) as removed_file:
        written = _copy_rows(audit, kept, removed_file, drop_unread)
        if not audit.scanned.of.startswith(fingerprint(audit.path) + "|"):
            raise UsageError(f"{audit.path} has changed since it was read; run the command again")
    return written


def _copy_rows(audit: Audit, kept: IO[bytes], removed: IO[bytes], drop_unread: bool) -> FilteredCopy:
    numbers, reasons = audit.scanned.rows["line"], audit.reasons
    row = rows = size = unread = 0
    for line in read_lines(audit.path):
        is_row = bool(row < len(numbers) and numbers[row] == line.number)
        is_kept = reasons[row] == RemovalReason.KEPT if is_row else not drop_unread
        row += is_row
        copy_line(line, audit.path, kept if is_kept else removed)
        if is_kept:
            rows, unread, size = rows + is_row, unread + (not is_row), size + line.length
    return FilteredCopy(rows, size, unread)


def copy_line(line: FileLine, source: Path, target: IO[bytes]) -> None:
    """Copy one line; a line that is too long for memory is copied in pieces."""
    if line.content is not None:
        target.write(line.content)
        return
    with open_lines(source) as file:
        file.seek(line.after - line.length)
        left = line.length
        while left and (piece := file.read(min(left, _PIECE))):
            target.write(piece)
            left -= len(piece)


@contextmanager
def _new_file(target: Path | None, source: Path, force: bool) -> Iterator[IO[bytes]]:
    """A file that gets its final name only when it is complete."""
    if target is None:
        with open(os.devnull, "wb") as nowhere:
            yield nowhere
        return
    try:
        with atomic_file(target, mode=0o600, is_durable=True, may_replace=force) as part:
            with part.open("wb") as file, _compressed(file, target) as written:
                yield written
            part.chmod(source.stat().st_mode & 0o777)
    except FileExistsError:
        raise UsageError(f"{target} was created in the meantime; it was not changed") from None
    except OSError as error:
        raise GpuwatchError(f"cannot write {target}: {error.strerror or error}") from error


@contextmanager
def _compressed(file: IO[bytes], target: Path) -> Iterator[IO[bytes]]:
    if target.suffix != ".gz":
        yield file
        return
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        yield packed  # type: ignore[misc]


def _is_same_file(first: Path, other: Path) -> bool:
    return first.absolute() == other.absolute() or (first.exists() and other.exists() and first.samefile(other))
