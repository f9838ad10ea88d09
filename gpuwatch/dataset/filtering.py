"""A copy of a data set without the removed rows. The input is never changed."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from gpuwatch.atomic_file import atomic_file
from gpuwatch.dataset.audit import Audit, RemovalReason
from gpuwatch.dataset.formats.file_lines import FileLine, RowCopier, is_packed
from gpuwatch.dataset.formats.row_files import format_of, read_lines
from gpuwatch.dataset.scan import fingerprint
from gpuwatch.errors import GpuwatchError, UsageError


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
    with ExitStack() as stack:
        kept = stack.enter_context(_new_file(target, audit.path, force))
        others = stack.enter_context(_new_file(removed, audit.path, force)) if removed else _Nowhere()
        written = _copy_rows(audit, kept, others, drop_unread)
        if not audit.scanned.of.startswith(fingerprint(audit.path) + "|"):
            raise UsageError(f"{audit.path} has changed since it was read; run the command again")
    return written


def _copy_rows(audit: Audit, kept: RowCopier, removed: RowCopier | _Nowhere, drop_unread: bool) -> FilteredCopy:
    numbers, reasons = audit.scanned.rows["line"], audit.reasons
    row = rows = size = unread = 0
    for line in read_lines(audit.path):
        is_row = bool(row < len(numbers) and numbers[row] == line.number)
        is_kept = reasons[row] == RemovalReason.KEPT if is_row else not drop_unread
        row += is_row
        (kept if is_kept else removed).write(line)
        if is_kept:
            rows, unread, size = rows + is_row, unread + (not is_row), size + line.length
    return FilteredCopy(rows, size, unread)


class _Nowhere:
    """Takes the rows that nobody wants to keep."""

    def write(self, line: FileLine) -> None: ...


@contextmanager
def _new_file(target: Path, source: Path, force: bool) -> Iterator[RowCopier]:
    """A file of the source's format that gets its final name only when it is complete."""
    try:
        with atomic_file(target, mode=0o600, is_durable=True, may_replace=force) as part:
            with part.open("wb") as file, _compressed(file, target) as written:
                copier = format_of(source).copier(written)
                yield copier
                copier.close()
            part.chmod(source.stat().st_mode & 0o777)
    except FileExistsError:
        raise UsageError(f"{target} was created in the meantime; it was not changed") from None
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's are of all three kinds
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise GpuwatchError(f"cannot write {target}: {reason}") from error


@contextmanager
def _compressed(file: IO[bytes], target: Path) -> Iterator[IO[bytes]]:
    if not is_packed(target):
        yield file
        return
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        yield packed  # type: ignore[misc]


def _is_same_file(first: Path, other: Path) -> bool:
    return first.absolute() == other.absolute() or (first.exists() and other.exists() and first.samefile(other))
