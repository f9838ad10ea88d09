"""A periodic task: what the scheduler runs again and again."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class PeriodicTask(msgspec.Struct, frozen=True, kw_only=True):
    """Runs at an interval, never twice at the same time."""

    name: str
    run: Callable[[], object]
    every_s: float
    jitter_s: float = 0.0
