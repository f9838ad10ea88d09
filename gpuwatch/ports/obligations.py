"""The port to the keeper's file: what must be ended, kept so that no database is needed to end it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.obligation import Obligation


class ObligationLog(Protocol):
    """Where obligations are written, before and while instances exist."""

    def record_order(self, launch: Launch, hook_s: float) -> None:
        """Write it down, durably, before its order is sent; nothing if it is there already.

        Args:
            hook_s: how long `before_stop` may take; 0 without that hook.

        Raises:
            StoreError: it was not written; the order must not be sent.
        """

    def record_extension(self, launch: Launch) -> None:
        """Write down its later end, durably, before the row has it. Raises StoreError: it must not be extended."""

    def follow(self, launches: Iterable[Launch]) -> None:
        """Write down what has changed of them. Never raises: the file is a copy, and the next call makes up for it."""


class ObligationReader(Protocol):
    """How the keeper reads them; it waits for nobody who writes."""

    def open_obligations(self) -> Sequence[Obligation]:
        """What is not over, as the file is now. Raises StoreError: it cannot be read."""

    def watched_obligations(self, since: datetime) -> Sequence[Obligation]:
        """What was closed since then, as it was when `open_obligations` was called last."""

    def close(self, obligation: Obligation) -> None:
        """Write down that it is over: the provider says that its instance is gone. Raises StoreError."""

    def reopen(self, obligation: Obligation) -> None:
        """Write down that what was closed is open again: its instance is there. Raises StoreError."""


class NoObligationLog:
    """Writes nothing: for commands that only read, and for simulations."""

    def record_order(self, launch: Launch, hook_s: float) -> None:
        """Nothing."""

    def record_extension(self, launch: Launch) -> None:
        """Nothing."""

    def follow(self, launches: Iterable[Launch]) -> None:
        """Nothing."""


NO_OBLIGATION_LOG = NoObligationLog()
