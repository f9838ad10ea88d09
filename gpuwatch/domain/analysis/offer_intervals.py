"""Polls that prove what was on offer."""

from __future__ import annotations

from typing import NamedTuple


class CompletePoll(NamedTuple):
    """A poll that read every offer of a scope."""

    at_s: int
    to_microusd: int | None = None  # the offers at or under this; None: all
