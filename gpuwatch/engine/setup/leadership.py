"""Which daemon of several leads: when the lease is renewed, and the database of each role.

A change of the role is a new service, as after a reload of the settings: so a new leader reads everything that it
remembers anew, and rents nothing before it has listed the instances.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from gpuwatch.errors import StoreError
from gpuwatch.storage.setup.daemon_lease import (
    LEASE_S,
    LEASE_SESSION,
    NO_LEASE,
    RETRY_AFTER_S,
    HostIdentity,
    Lease,
    RowLease,
)
from gpuwatch.storage.setup.database import Database, open_database

log = logging.getLogger(__name__)

CHECK_EVERY_S = 0.5  # whether the lease is to be renewed, or was lost


def role_of(owner: str) -> str:
    """Return the role that the daemons of an owner compete for."""
    return f"main/{owner}" if owner else "main"


class Leadership:
    """The lease of this process, and the database that its service uses.

    Args:
        database: the leader's.
        identity: None: this process leads without a lease.
        monotonic: seconds, at real pace.
        is_rescued: its settings are wrong, so that it rents nothing: any other host is to lead rather.

    Raises:
        StoreError: the lease cannot be read.
    """

    def __init__(
        self,
        database: Database,
        identity: HostIdentity | None,
        monotonic: Callable[[], float],
        *,
        is_rescued: bool = False,
    ) -> None:
        self._database = database
        self._monotonic = monotonic
        self._rows: RowLease | None = None
        self._due_s = 0.0
        self._error = ""
        if identity is not None and not database.is_sqlite:
            own = open_database(database.url, limits=LEASE_SESSION, lineage=database.lineage)
            own.owner = database.owner
            self._rows = RowLease(own, identity, monotonic, is_rescued)
            self._due_s = monotonic() + self._rows.tick()
            log.info("this host leads" if self._rows.leads else "another host leads; this one stands by")

    @property
    def lease(self) -> Lease:
        """The lease."""
        return self._rows or NO_LEASE

    def note_rescue(self, is_rescued: bool) -> None:
        """Note whether new settings end the rescue mode of this process, or begin it."""
        if self._rows is not None:
            self._rows.is_rescued = is_rescued

    def open_for_role(self) -> Database:
        """Return the database for the present role: a standby has one connection, which it shares with its lease."""
        if self._rows is None or self._rows.leads:
            return self._database
        self._database.engine.dispose()
        return self._rows.database

    def renew_if_due(self, stalled: Sequence[str] = ()) -> bool:
        """Renew the lease, or take it if it is free; return whether this process is now something else.

        Args:
            stalled: what makes no progress here. Then another host is to lead: a lease says only that a process lives.
        """
        if self._rows is None:
            return False
        if stalled:
            return self._give_up(self._rows, stalled)
        if self._monotonic() < self._due_s:
            return False
        term = self._rows.term
        try:
            wait_s, self._error = self._rows.tick(), ""
        except StoreError as error:
            wait_s = RETRY_AFTER_S
            if self._error != str(error):
                log.warning("the lease is not renewed: %s", error)
            self._error = str(error)
        self._due_s = self._monotonic() + wait_s
        if self._rows.term == term:
            return False
        log.warning("%s", _changed(self._rows))
        return True

    @staticmethod
    def _give_up(rows: RowLease, stalled: Sequence[str]) -> bool:
        if not rows.leads:
            return False
        log.error("no progress for too long: %s; another host will lead", ", ".join(stalled))
        with suppress(StoreError):  # then it ends by itself
            rows.release(LEASE_S)
        return True

    def hand_over(self, spacing_s: float) -> None:
        """Let another host lead, if the owner asked for that and nothing acts here any more.

        Args:
            spacing_s: how long no provider may be searched after the last search of this process.
        """
        if self.lease.hands_over:
            log.warning("this host stepped down; it stands by")
            with suppress(StoreError):  # then it ends by itself
                self.lease.release(spacing_s)

    def close(self, spacing_s: float) -> None:
        """Let another host lead, because this process ends."""
        if self._rows is None:
            return
        with suppress(StoreError):  # then it ends by itself
            self._rows.release(spacing_s)
            self._rows.remove_host()
        self._rows.database.close()


def _changed(lease: RowLease) -> str:
    if lease.hands_over and lease.is_rescued:
        return "this host is in rescue mode; a healthy one that stands by will lead"
    if lease.hands_over:
        return "the owner asked this host to step down; another one will lead"
    if lease.leads:
        return "this host leads now: it looks up the launches before it rents"
    return "this host no longer leads; it stands by"
