"""Readings of the last minutes, so that many clients of a page cause one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T = TypeVar("T")


class RecentReadings(Generic[T]):
    """What was read in the last minutes, by key. Thread-safe: while one thread reads, the others wait for it.

    Args:
        kept_for: how long a reading is used.
        most: the oldest are dropped beyond this many.
    """

    def __init__(self, kept_for: timedelta, most: int = 200) -> None:
        self._kept_for = kept_for
        self._most = most
        self._lock = threading.Lock()
        self._read: dict[Hashable, tuple[datetime, object, T]] = {}

    def reading(self, key: Hashable, basis: object, now: datetime, read: Callable[[], T]) -> T:
        """Return the reading of a key; `read` is called if it is too old, or rests on something else than `basis`."""
        with self._lock:
            found = self._read.get(key)
            if found is None or found[1] != basis or not timedelta(0) <= now - found[0] < self._kept_for:
                found = (now, basis, read())
                self._read = dict([*self._read.items(), (key, found)][-self._most :])
            return found[2]
