"""Notes of a daemon about watches whose matches cannot be rented, because no provider is ready for an order.

What a provider lacks (its balance, its list of instances) only the daemon knows. The notes are holds in the store, so
that every command, page and program can say it; they expire unless the daemon finds the same again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from gpuwatch.ports import UnitOfWork
from gpuwatch.ports.market import Hold, HoldStore

_REASON_LENGTH = 400
_KIND_LENGTH = 64
_KEPT_FOR = timedelta(minutes=5)  # longer than most intervals between two polls


class ReadinessNotes:
    """Writes the notes, each in the transaction of its decision."""

    def __init__(self) -> None:
        self._noted: dict[str, str] = {}  # watch → the provider of its best offer

    def not_ready(
        self, uow: UnitOfWork, watch: str, provider: str, why: str, now: datetime, kept_for: timedelta
    ) -> None:
        """Note why nothing can be rented for a watch.

        Args:
            kept_for: the interval between two observations, if it is long.
        """
        until = now + max(_KEPT_FOR, kept_for)
        hold = Hold(provider=provider, kind=_kind(watch), set_at=now, until=until, reason=why[:_REASON_LENGTH])
        uow.save_hold(hold)
        self._noted[watch] = provider

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget all other watches; what is stored ends by itself."""
        self._noted = {watch: provider for watch, provider in self._noted.items() if watch in watches}

    def ready(self, uow: UnitOfWork, watch: str, now: datetime) -> None:
        """Note that its matches can be rented as far as the providers are concerned."""
        if (provider := self._noted.pop(watch, None)) is not None:
            uow.save_hold(Hold(provider=provider, kind=_kind(watch), set_at=now, until=now, reason=""))


def noted_reason(holds: HoldStore, watch: str, providers: Iterable[str], now: datetime) -> str | None:
    """Return why a daemon lately could rent none of a watch's matches, in one line; None: it could."""
    for name in providers:
        for hold in holds.load(name):
            if hold.kind == _kind(watch) and hold.set_at <= now < hold.until:
                return hold.reason
    return None


def _kind(watch: str) -> str:
    return f"orders of {watch}"[:_KIND_LENGTH]
