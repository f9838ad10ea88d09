"""The files that an audit keeps beside its input, so that a killed audit continues and `filter` need not read again.

Tables are written before the state that counts their rows: at the next start, rows beyond the count are cut off.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from gpuwatch.atomic_file import atomic_file
from gpuwatch.errors import GpuwatchError, UsageError

_STATE = "state.json"
_Item = TypeVar("_Item")


class PassState(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of one pass over the file.

    Attributes:
        of: identifies everything that its result depends on.
        bytes: of the lines so far, as `FileLine` counts them.
        seconds: step → how long it has taken, over all runs.
    """

    of: str
    rows: int = 0
    line: int = 0
    offset: int = 0
    finished: bool = False
    skipped: dict[str, int] = {}
    bytes: int = 0
    seconds: dict[str, float] = {}


class StepClock:
    """Measures the steps of a pass, which goes on where an earlier run ended.

    Args:
        seconds: what earlier runs measured.
    """

    def __init__(
        self, seconds: Mapping[str, float] | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = dict(seconds or {})

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time of a block to a step."""
        begun = self._clock()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._clock() - begun

    def each(self, name: str, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items; the time that it takes to make each belongs to a step."""
        iterator, end = iter(items), object()
        while True:
            with self.step(name):
                item = next(iterator, end)
            if item is end:
                return
            yield item  # type: ignore[misc]


class WorkFolder:
    """A folder that one audit at a time may use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._states: dict[str, PassState] = {}
        with suppress(FileNotFoundError, msgspec.DecodeError):  # without a state, everything starts over
            self._states = msgspec.json.decode((path / _STATE).read_bytes(), type=dict[str, PassState])

    def state(self, name: str, of: str) -> PassState:
        """The state of a pass; the initial state if something that it depends on has changed."""
        stored = self._states.get(name)
        return stored if stored is not None and stored.of == of else PassState(of=of)

    def seconds(self, *names: str) -> dict[str, float]:
        """How long the steps of these passes have taken."""
        states = [self._states[name] for name in names if name in self._states]
        return {step: seconds for state in states for step, seconds in state.seconds.items()}

    def save_state(self, name: str, state: PassState) -> None:
        """Save the state of a pass durably."""
        self._states[name] = state
        with atomic_file(self.path / _STATE, is_durable=True) as part:
            part.write_bytes(msgspec.json.encode(self._states))

    @contextmanager
    def open_table(self, name: str, kind: np.dtype[Any], width: int, rows: int) -> Iterator[AppendedTable]:
        """A table for appending rows, cut to the rows that count."""
        file = AppendedTable(self.path / name, kind, width, rows)
        try:
            yield file
        finally:
            file.close()

    def table(self, name: str, kind: np.dtype[Any], width: int, rows: int) -> np.ndarray[Any, Any]:
        """A table, memory-mapped."""
        shape = (rows, width) if width > 1 else (rows,)
        if not rows:
            return np.empty(shape, kind)
        return np.memmap(self.path / name, dtype=kind, mode="r", shape=shape)


class AppendedTable:
    """A file of rows of one type, for appending."""

    def __init__(self, path: Path, kind: np.dtype[Any], width: int, rows: int) -> None:
        self._kind = kind
        size = kind.itemsize * width * rows
        self._file = path.open("r+b" if path.exists() else "w+b")
        if os.fstat(self._file.fileno()).st_size < size:
            self._file.close()
            raise GpuwatchError(f"{path} is shorter than before; start over with --anew")
        self._file.truncate(size)
        self._file.seek(size)

    def append(self, rows: np.ndarray[Any, Any]) -> None:
        """Append rows durably."""
        self._file.write(np.ascontiguousarray(rows, self._kind).tobytes())
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


@contextmanager
def open_work_folder(path: Path, *, start_over: bool = False) -> Iterator[WorkFolder]:
    """Open the folder for this audit alone, creating it if necessary.

    Raises:
        UsageError: it cannot be created, or contains something else.
        GpuwatchError: another audit uses it.
    """
    try:
        path.mkdir(exist_ok=True)
        if not (path / "lock").exists() and any(path.iterdir()):
            raise UsageError(f"{path} contains other files; choose an empty folder with --work")
        with (path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise GpuwatchError(f"another audit is using {path}") from error
            if start_over:
                (path / _STATE).unlink(missing_ok=True)
            yield WorkFolder(path)
    except OSError as error:
        raise UsageError(
            f"{error.filename or path}: {error.strerror or error}; choose another folder with --work"
        ) from error
