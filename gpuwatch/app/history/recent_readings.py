"""Readings of the last minutes, so that many clients of a page cause one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
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

    Args:
        kept_for: how long a reading is used.
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
        with kept.lock:
            found = kept.found
            is_basis = found is not None and (found[1] is basis or found[1] == basis)
            # on a busy machine a reading may last longer than it is kept: who waited for it uses it
            if found is None or not is_basis or not (found is not before or self._holds(found[0], now)):
                kept.found = found = (now, basis, read())
            return found[2]

    def _holds(self, read_at: datetime, now: datetime) -> bool:
        return timedelta(0) <= now - read_at < self._kept_for

    def forget(self) -> None:
        """Read everything again next time: something has changed."""
        with self._lock:
            self._kept.clear()
