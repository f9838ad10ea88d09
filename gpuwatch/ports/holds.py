"""The port for holds: until when a provider accepts no more requests, stored over a restart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A provider accepts no more requests of one class before a given time."""

    provider: str
    kind: str  # the class of requests: "search"
    set_at: datetime
    until: datetime  # from then on, one request is allowed
    reason: str  # one line: what the provider said
    quota_resets_at: datetime | None = None  # the day's quota is used up until then; None: only asked too often


class HoldStore(Protocol):
    """The holds of all providers, one per class. No method raises: a broken store must not stop polling."""

    def load(self, provider: str) -> Sequence[Hold]:
        """The last hold of each class, current or past; none if they cannot be read."""

    def save(self, hold: Hold) -> None:
        """Store it in place of the last one of its class, if possible."""
