"""Readings of the last minutes, so that many clients of a page cause one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T = TypeVar("T")


class _Kept(Generic[T]):
    """One reading, and the lock of who reads it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.found: tuple[datetime, object, T] | None = None


class RecentReadings(Generic[T]):
    """What was read in the last minutes, by key. Thread-safe: while one thread reads a key, others wait for it.

    What is read often is read again before anybody waits for it: a reading that is too old is returned for as long
    again, while a thread of its own reads the next.

    Args:
        kept_for: how long a reading is used; never for more than twice this time.
        most: the oldest keys are dropped beyond this many.
    """

    def __init__(self, kept_for: timedelta, most: int = 200) -> None:
        self._kept_for = kept_for
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[Hashable, _Kept[T]] = {}

    def reading(self, key: Hashable, basis: object, now: datetime, read: Callable[[], T]) -> T:
        """Return the reading of a key; `read` is called if it is too old, or rests on something else than `basis`."""
        with self._lock:
            kept = self._kept.setdefault(key, _Kept())
            for oldest in [*self._kept][: -self._most]:
                del self._kept[oldest]
        before = kept.found
        if before is not None and _rests_on(before[1], basis):
            age = now - before[0]
            if timedelta(0) <= age < self._kept_for:
                return before[2]
            if self._kept_for <= age < 2 * self._kept_for:
                if not kept.lock.locked():
                    _read_next(kept, before, (now, basis), read)
                return before[2]
        with kept.lock:
            found = kept.found
            # on a busy machine a reading may last longer than it is kept: who waited for it uses it
            if found is None or found is before or not _rests_on(found[1], basis):
                kept.found = found = (now, basis, read())
            return found[2]

    def forget(self) -> None:
        """Read everything again next time: something has changed."""
        with self._lock:
            self._kept.clear()


def _read_next(kept: _Kept[T], before: object, at: tuple[datetime, object], read: Callable[[], T]) -> None:
    """Read on a thread of its own, in the caller's language, unless another thread already has."""

    def run() -> None:
        with kept.lock, suppress(Exception):  # after an error, whoever asks next reads, and learns why
            if kept.found is before:
                kept.found = (*at, read())

    threading.Thread(target=copy_context().run, args=(run,), name="next reading", daemon=True).start()


def _rests_on(basis: object, wanted: object) -> bool:
    return basis is wanted or basis == wanted
