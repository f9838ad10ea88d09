"""The port to the keeper's file: launches to end, stored so that ending them needs no database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from gpuwatch.domain.launches.instances.obligation import Obligation
from gpuwatch.domain.launches.launch import Launch


class ObligationLog(Protocol):
    """Where obligations are written, before and while instances exist."""

    def record_order(self, launch: Launch, hook_s: float) -> None:
        """Write it durably before its order is sent; does nothing if it is already there.

        Args:
            hook_s: time that `before_stop` may take; 0 without that hook.

        Raises:
            StoreError: it was not written, so the order must not be sent.
        """

    def record_extension(self, launch: Launch) -> None:
        """Write its later end durably before the row is updated. Raises StoreError: it must not be extended."""

    def record_changes(self, launches: Iterable[Launch]) -> None:
        """Write what changed. Never raises: the file is a copy, and the next call catches up."""

    def open_launch_ids(self) -> frozenset[str]:
        """Launches of the open obligations. Raises StoreError: the file cannot be read."""


class ObligationReader(Protocol):
    """How the keeper reads obligations; never waits for writers."""

    def open_obligations(self) -> Sequence[Obligation]:
        """Open obligations in the current file. Raises StoreError: it cannot be read."""

    def recently_closed(self, since: datetime) -> Sequence[Obligation]:
        """Obligations closed since the given time, as of the last call of `open_obligations`."""

    def close(self, obligation: Obligation) -> None:
        """Close it: the provider reports that its instance is gone. Raises StoreError."""

    def reopen(self, obligation: Obligation) -> None:
        """Reopen it: its instance exists. Raises StoreError."""


class NoObligationLog:
    """Writes nothing: for commands that only read, and for simulations."""

    def record_order(self, launch: Launch, hook_s: float) -> None:
        """Does nothing."""

    def record_extension(self, launch: Launch) -> None:
        """Does nothing."""

    def record_changes(self, launches: Iterable[Launch]) -> None:
        """Does nothing."""

    def open_launch_ids(self) -> frozenset[str]:
        """None."""
        return frozenset()


NO_OBLIGATION_LOG = NoObligationLog()
