"""A copy of a data set without the rows that go. The input is never written to."""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from gpuwatch.app.dataset.audit import Audit
from gpuwatch.app.dataset.lines import FileLine, open_lines, read_lines
from gpuwatch.app.dataset.removal import RemovalReason
from gpuwatch.app.dataset.scan import fingerprint
from gpuwatch.errors import GpuwatchError, UsageError

_PIECE = 1 << 20  # bytes


class FilteredCopy(NamedTuple):
    """What came into the copy."""

    rows: int
    bytes: int
    unread: int  # lines that no row could be made of, and that were taken over all the same


def check_target(source: Path, target: Path, *, force: bool) -> None:
    """Refuse what would write over the input, by whatever name, or over anything unasked. Raises UsageError."""
    try:
        if target.exists() and target.samefile(source):
            raise UsageError(f"{target} is the input itself; name another file")
        if target.is_dir() or not target.parent.is_dir():
            raise UsageError(f"{target} cannot be a file: name one in a folder that exists")
        if (target.exists() or target.is_symlink()) and not force:
            raise UsageError(f"{target} exists; name another file, or use --force to replace it")
    except OSError as fault:
        raise UsageError(f"{target}: {fault.strerror or fault}") from fault


def write_kept(
    audit: Audit, target: Path, removed: Path | None = None, *, drop_unread: bool = False, force: bool = False
) -> FilteredCopy:
    """Write the rows that stay, byte for byte, in their order; whole, or not at all.

    Args:
        removed: the other rows go there.
        drop_unread: lines that no row could be made of go, too; else they stay, since nobody judged them.

    Raises:
        UsageError: a target is no good, or the input was changed since it was read.
        GpuwatchError: the copy cannot be written.
    """
    for path in (target, removed) if removed else (target,):
        check_target(audit.path, path, force=force)
    if removed is not None and _same(removed, target):
        raise UsageError(f"{removed}: the rows that go want another file than those that stay")
    with _new_file(target, audit.path, force) as kept, _new_file(removed, audit.path, force) as gone:
        written = _copied(audit, kept, gone, drop_unread)
        if not audit.scanned.of.startswith(fingerprint(audit.path) + "|"):
            raise UsageError(f"{audit.path} was changed since it was read; run it again")
    return written


def _copied(audit: Audit, kept: IO[bytes], gone: IO[bytes], drop_unread: bool) -> FilteredCopy:
    numbers, reasons = audit.scanned.rows["line"], audit.reasons
    row = rows = size = unread = 0
    for line in read_lines(audit.path):
        is_row = bool(row < len(numbers) and numbers[row] == line.number)
        stays = reasons[row] == RemovalReason.KEPT if is_row else not drop_unread
        row += is_row
        _copy(line, audit.path, kept if stays else gone)
        if stays:
            rows, unread, size = rows + is_row, unread + (not is_row), size + line.length
    return FilteredCopy(rows, size, unread)


def _copy(line: FileLine, source: Path, target: IO[bytes]) -> None:
    """One line; one that is too long to be held, piece by piece."""
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
    """A file that gets its name only when it is whole."""
    if target is None:
        with open(os.devnull, "wb") as nowhere:
            yield nowhere
        return
    try:
        number, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        part = Path(name)
        try:
            with os.fdopen(number, "wb") as file:
                with _packed(file, target) as written:
                    yield written
                file.flush()
                os.fsync(file.fileno())
            part.chmod(source.stat().st_mode & 0o777)
            _publish(part, target, force)
        finally:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()
    except OSError as fault:
        raise GpuwatchError(f"{target}: it cannot be written: {fault.strerror or fault}") from fault


@contextmanager
def _packed(file: IO[bytes], target: Path) -> Iterator[IO[bytes]]:
    if target.suffix != ".gz":
        yield file
        return
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        yield packed  # type: ignore[misc]


def _publish(part: Path, target: Path, force: bool) -> None:
    """Its name, at once; without --force never that of a file that came up meanwhile."""
    if force:
        part.replace(target)
        return
    try:
        target.hardlink_to(part)
    except FileExistsError:
        raise UsageError(f"{target} exists by now; it is left as it is") from None
    except OSError:  # a file system without hard links
        part.replace(target)


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))
