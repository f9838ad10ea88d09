"""Compares the watch lists of two hosts of one owner: only that of the host that leads applies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gpuwatch.domain.alerts.alert import OutboxAlert, alert_id_from
from gpuwatch.domain.alerts.launch_texts import LISTS_DIFFER
from gpuwatch.domain.watches.watch import Watch

if TYPE_CHECKING:
    from gpuwatch.storage.watches.watch_identities import SqlWatchIdentities


class StandbyWatchList:
    """The list of a host that stands by. A difference that two checks find is reported; a rolling update ends before.

    Args:
        role: of its daemon.
    """

    def __init__(self, identities: SqlWatchIdentities, watches: Sequence[Watch], host: str, role: str) -> None:
        self._identities = identities
        self._watches = watches
        self._host = host
        self._role = role
        self._before: Mapping[str, Sequence[str]] = {}

    def check(self, now: datetime) -> None:
        """Compare it with the one that applies. Raises StoreError."""
        found = self._identities.differences(self._watches, self._host, self._role)
        if found and found == self._before:
            self._identities.report(list(differing_lists(found, self._host, now, is_leader=False)))
        self._before = found


def differing_lists(
    found: Mapping[str, Sequence[str]], host: str, now: datetime, *, is_leader: bool
) -> Iterator[OutboxAlert]:
    """Yield an alert for each other host: the same one, whichever of the two reports it.

    Args:
        found: by host, the watches that only one of the two lists has.
        is_leader: whether this host leads, or the others.
    """
    for other, names in found.items():
        leader, standby = (host, other) if is_leader else (other, host)
        watches = ", ".join(sorted(names))
        fields = {"host": leader, "other": standby, "watches": watches, "key": alert_id_from(watches)}
        yield LISTS_DIFFER.outbox(None, now, subject=standby, **fields)
