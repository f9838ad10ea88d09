"""A beat: something that the clockwork runs again and again."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class PeriodicTask(msgspec.Struct, frozen=True, kw_only=True):
    """Something that runs again and again, never twice at once."""

    name: str
    run: Callable[[], object]
    every_s: float
    jitter_s: float = 0.0
