"""The keeper's file `obligations.jsonl`, beside the database: every process appends to it; a start compacts it.

There is no lock, because a process that hangs while holding one would delay an order or the keeper. A line is one
`write` to a file opened for appending. A compaction replaces the file; a process that appended to the old one notices,
and appends again.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from gpuwatch.domain.launches.instances.obligation import (
    Obligation,
    ReadObligations,
    as_extended,
    changes,
    compacted,
    disk_kept,
    earliest_end,
    encode_line,
    is_extended,
    moved_by_extension,
    obligation_of,
    read_obligation_lines,
    reopened_obligation,
    watched_since,
)
from gpuwatch.domain.launches.launch import WATCH_ENDED, Launch
from gpuwatch.errors import StoreError
from gpuwatch.storage.setup.database import sqlite_path

log = logging.getLogger(__name__)

FILE_NAME = "obligations.jsonl"
_MAY_PASS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})  # of a disk: the daemon starts, rents nothing and waits
_MAX_REPLACED = 5  # how often the file may be replaced while a line is appended


def obligation_path(database_url: str, state_folder: Callable[[], Path]) -> Path:
    """Return the path of a database's file: beside an SQLite file, else in the state folder. Raises StoreError."""
    database = sqlite_path(database_url)
    return state_folder() / FILE_NAME if database is None else database.resolve().with_name(FILE_NAME)


def require_writable_folder(path: Path) -> None:
    """Check that the file can be written, or created with its folder; creates nothing.

    Raises:
        StoreError: it cannot; the message says what to do.
    """
    from tempfile import TemporaryFile  # noqa: PLC0415 at a start alone

    try:
        folder = next(existing for existing in path.parents if existing.exists())
        with TemporaryFile(dir=folder):
            pass
        if path.exists():
            with _open_file(path, os.O_RDWR | os.O_APPEND):
                pass
    except OSError as error:
        if error.errno in _MAY_PASS:
            return
        raise StoreError(
            f"cannot write the state folder {path.parent}: {error.strerror}; gpuwatch records there what it must end, "
            "before it rents: make it writable, or set STATE_DIRECTORY or XDG_STATE_HOME"
        ) from None


class ObligationFile:
    """One user's view of the file: the daemon's tasks share one, the keeper has its own.

    Args:
        now: the wall clock.
        key_hash: returns the hash of the key that is used for a launch; see `Obligation`.
        keep_s: returns for how long a launch's disk is kept after the end of its run; see `Obligation`.
    """

    def __init__(
        self,
        path: Path,
        now: Callable[[], datetime],
        key_hash: Callable[[Launch], str | None] = lambda launch: None,
        keep_s: Callable[[Launch], float] = lambda launch: 0.0,
    ) -> None:
        self.path = path
        self._now = now
        self._key_hash = key_hash
        self._keep_s = keep_s
        self._lock = threading.Lock()  # of this object alone: threads of the tasks, or the keeper, never both
        self._read = ReadObligations()
        self._position: tuple[int, int] = (-1, 0)  # the file's inode, and the offset up to which it was read
        self._error: str | None = None

    def require_writable(self) -> None:
        """Check that the file can be written. Raises StoreError."""
        require_writable_folder(self.path)

    # --- writing ------------------------------------------------------------------------------------------------------

    def record_order(self, launch: Launch, hook_s: float) -> None:
        """Record an order durably before it is sent; see the port. Raises StoreError."""
        with self._lock:
            self._catch_up()
            self._record(launch, hook_s, self._key_hash(launch))

    def record_extension(self, launch: Launch) -> None:
        """Record a later end durably before the row has it. Raises StoreError."""
        with self._lock:
            self._catch_up()
            self._record(launch, is_later=True)

    def record_changes(self, launches: Iterable[Launch]) -> None:
        """Record changes of launches; a write error is logged once, and the write is retried."""
        with self._lock:
            try:
                self._catch_up()
                for launch in launches:
                    self._record(launch)
            except StoreError as error:
                if self._error != str(error):
                    log.error("%s", error)  # noqa: TRY400 one line
                self._error = str(error)
            else:
                self._error = None

    def extend(self, obligation: Obligation, runtime_s: float, revision: int) -> None:
        """Record the later end of a longer runtime that its row proves. Raises StoreError."""
        with self._lock:
            self._append(moved_by_extension(obligation, runtime_s, revision))

    def close(self, obligation: Obligation) -> None:
        """Record that it is over: its instance is gone. Raises StoreError."""
        with self._lock:
            closed = msgspec.structs.replace(obligation, is_over=True, over_at=self._now(), by_keeper=True)
            self._append(closed)

    def note_disk_kept(self, obligation: Obligation) -> None:
        """Record that it was stopped at its end, with its disk kept. Raises StoreError."""
        with self._lock:
            self._append(disk_kept(obligation))

    def note_report(self, obligation: Obligation) -> None:
        """Record what its owner was alerted about. Raises StoreError."""
        with self._lock:
            self._append(obligation)

    def reopen(self, obligation: Obligation) -> None:
        """Record that a closed obligation is open again. Raises StoreError."""
        with self._lock:
            self._append(reopened_obligation(obligation))

    def _record(
        self, launch: Launch, hook_s: float = 0.0, key_hash: str | None = None, *, is_later: bool = False
    ) -> None:
        """Record it, unless it is a dry run, is already recorded, or was closed since."""
        if launch.is_by_command:  # the keeper cannot end what the command rented
            return
        recorded = self._read.newest(launch.launch_id)
        updated = obligation_of(launch, recorded, self._now(), hook_s, key_hash, self._keep_s(launch))
        is_later = is_later or is_extended(recorded, updated.runtime_s)
        updated = as_extended(recorded, updated) if is_later else earliest_end(recorded, updated)
        is_relevant = not launch.dry_run and updated.revision >= self._read.least_revision(launch.launch_id)
        if is_relevant and changes(self._read.open.get(launch.launch_id), updated):
            self._append(updated)

    def _append(self, obligation: Obligation) -> None:
        """Append durably; raises StoreError. A torn last line is terminated first."""
        line = encode_line(obligation)
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for _ in range(_MAX_REPLACED):
                with _open_file(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as handle:
                    size = os.fstat(handle).st_size
                    is_torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
                    _write_all(handle, b"\n" * is_torn + line)
                    os.fsync(handle)
                    if size == 0:
                        _sync_folder(self.path)
                    if _is_current(handle, self.path):
                        return
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        raise StoreError(f"{self.path} keeps being replaced")

    # --- reading ------------------------------------------------------------------------------------------------------

    def open_obligations(self) -> Sequence[Obligation]:
        """Return the open obligations; if the file was deleted, the last known ones. Raises StoreError."""
        with self._lock:
            if self.path.exists():
                self._catch_up()
            return tuple(self._read.open.values())

    def open_launch_ids(self) -> frozenset[str]:
        """Return the launches of the open obligations. Raises StoreError."""
        return frozenset(obligation.launch_id for obligation in self.open_obligations())

    def recently_closed(self, since: datetime) -> Sequence[Obligation]:
        """Return obligations closed since then, as of the last read."""
        with self._lock:
            return watched_since(self._read, since)

    def _catch_up(self) -> None:
        """Read what was appended since the last time, or the whole file if it was replaced."""
        try:
            info = os.stat(self.path)
            if (info.st_ino, info.st_size) == self._position:
                return
            with _open_file(self.path, os.O_RDONLY) as handle:
                self._read_appended(handle)
        except FileNotFoundError:
            self._read, self._position = ReadObligations(), (-1, 0)
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror}") from error

    def _read_appended(self, handle: int) -> None:
        info = os.fstat(handle)
        inode, offset = self._position
        if inode != info.st_ino or offset > info.st_size:
            self._read, offset = ReadObligations(), 0
        complete = _complete_lines(_read_from(handle, offset))
        self._read = read_obligation_lines(complete.splitlines(keepends=True), self._read)
        self._position = info.st_ino, offset + len(complete)

    # --- compaction ---------------------------------------------------------------------------------------------------

    def compact(self, watch_ended: timedelta = WATCH_ENDED) -> None:
        """Remove obligations that closed long enough ago.

        A file that cannot be rewritten stays as it is; the error is logged.
        """
        with self._lock:
            try:
                self._compact(self._now() - watch_ended)
            except FileNotFoundError:
                return  # nothing was ever written
            except OSError as error:
                log.warning("cannot compact %s: %s", self.path, error.strerror)

    def _compact(self, since: datetime) -> None:
        # not `atomic_file`: the new file stays open, to take what another process appends until the rename
        new_path = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with _open_file(self.path, os.O_RDONLY) as old_handle:
            complete = _complete_lines(_read_from(old_handle, 0))
            read = read_obligation_lines(complete.splitlines(keepends=True))
            with _open_file(new_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND) as new_handle:
                _write_all(new_handle, compacted(read, since))
                os.fsync(new_handle)
                os.replace(new_path, self.path)
                _sync_folder(self.path)
                # what another process appended meanwhile, and the line that it was just writing
                _write_all(new_handle, _read_from(old_handle, len(complete)))
                os.fsync(new_handle)
        if read.foreign:
            log.warning("%s has %d unreadable lines; keeping them", self.path, len(read.foreign))


class _open_file:  # noqa: N801 a context manager, like `open`
    def __init__(self, path: Path, flags: int) -> None:
        self._handle = os.open(path, flags | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> int:
        return self._handle

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def _write_all(handle: int, data: bytes) -> None:
    """Write all bytes or raise: on a full disk a partial write leaves a torn line."""
    while data:
        data = data[os.write(handle, data) :]


def _read_from(handle: int, offset: int) -> bytes:
    content = b""
    while chunk := os.pread(handle, 1 << 20, offset + len(content)):
        content += chunk
    return content


def _complete_lines(data: bytes) -> bytes:
    """Without an unterminated line: it is still being written, or torn."""
    return data[: data.rfind(b"\n") + 1]


def _is_current(handle: int, path: Path) -> bool:
    try:
        return os.stat(path).st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


def _sync_folder(path: Path) -> None:
    """Sync a folder: only then is a new name durable."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
