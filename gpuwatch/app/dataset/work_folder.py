"""What an audit keeps beside its file: one that was killed goes on where it was, and `filter` need not read again.

Files that grow are written before the state that counts them: what lies behind the count is cut off at the next start.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gpuwatch.errors import GpuwatchError, UsageError

_STATE = "state.json"


class PassState(msgspec.Struct, frozen=True, kw_only=True):
    """How far one pass over the file has come. `of` names all that its result depends on."""

    of: str
    rows: int = 0
    line: int = 0
    offset: int = 0
    finished: bool = False
    skipped: dict[str, int] = {}


class WorkFolder:
    """A folder that one audit at a time may use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stages: dict[str, PassState] = {}
        with suppress(FileNotFoundError, msgspec.DecodeError):  # without a state everything is done anew
            self._stages = msgspec.json.decode((path / _STATE).read_bytes(), type=dict[str, PassState])

    def stage(self, name: str, of: str) -> PassState:
        """Where this pass stands; at the beginning, if what it depends on has changed."""
        known = self._stages.get(name)
        return known if known is not None and known.of == of else PassState(of=of)

    def keep(self, name: str, stage: PassState) -> None:
        """Write down how far it is, for good."""
        self._stages[name] = stage
        part = self.path / f"{_STATE}.part"
        with part.open("wb") as file:
            file.write(msgspec.json.encode(self._stages))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path / _STATE)

    @contextmanager
    def grown(self, name: str, kind: np.dtype[Any], width: int, rows: int) -> Iterator[AppendedTable]:
        """A file of rows to append to, cut to those that count."""
        file = AppendedTable(self.path / name, kind, width, rows)
        try:
            yield file
        finally:
            file.close()

    def table(self, name: str, kind: np.dtype[Any], width: int, rows: int) -> np.ndarray[Any, Any]:
        """A file of rows, to be read as if it were in memory."""
        shape = (rows, width) if width > 1 else (rows,)
        if not rows:
            return np.empty(shape, kind)
        return np.memmap(self.path / name, dtype=kind, mode="r", shape=shape)


class AppendedTable:
    """A file of rows of one kind, to append to."""

    def __init__(self, path: Path, kind: np.dtype[Any], width: int, rows: int) -> None:
        self._kind = kind
        size = kind.itemsize * width * rows
        self._file = path.open("r+b" if path.exists() else "w+b")
        if os.fstat(self._file.fileno()).st_size < size:
            self._file.close()
            raise GpuwatchError(f"{path} is shorter than it was; --anew begins again")
        self._file.truncate(size)
        self._file.seek(size)

    def append(self, rows: np.ndarray[Any, Any]) -> None:
        """On disk when it returns."""
        self._file.write(np.ascontiguousarray(rows, self._kind).tobytes())
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


@contextmanager
def open_work_folder(path: Path, *, anew: bool = False) -> Iterator[WorkFolder]:
    """The folder, made if need be, and nobody else's meanwhile.

    Raises:
        UsageError: it cannot be made, or holds something else.
        GpuwatchError: another audit uses it.
    """
    try:
        path.mkdir(exist_ok=True)
        if not (path / "lock").exists() and any(path.iterdir()):
            raise UsageError(f"{path} holds other files; name a folder of its own with --work")
        with (path / "lock").open("w") as lock:
            _take(lock.fileno(), path)
            if anew:
                (path / _STATE).unlink(missing_ok=True)
            yield WorkFolder(path)
    except OSError as fault:
        raise UsageError(f"{fault.filename or path}: {fault.strerror or fault}; --work names another folder") from fault


def _take(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as fault:
        raise GpuwatchError(f"another audit is at work in {path}") from fault
