"""Implements the port `SearchTurns`: leaders of several owners search with one account one after another.

A turn is a lease, by the database's clock, with the role PROVIDER/ACCOUNT. It is not renewed: it ends after the search
interval of whoever took it. Turns are taken in advance, in the order in which leaders ask for them, and each process
has at most one: so each leader gets its share, and no turn stays unused while one waits. Turns that lie farther ahead
than a queue explains are void: the clock of the database was set back, or a process that ends again and again took one
at each start. Else nobody would search until then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from sqlalchemy import bindparam, case, func, update

from gpuwatch.domain.market.offer import storable_text
from gpuwatch.errors import StoreError
from gpuwatch.ports.market import SearchTurns
from gpuwatch.storage.setup.account_rows import account_in
from gpuwatch.storage.setup.daemon_lease import IS_ROLE, NOW_MS, Lease
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import daemon_lease as lease_rows
from gpuwatch.storage.setup.stored_values import insert_if_absent

log = logging.getLogger(__name__)

_FIRST = {"epoch": 0, "since_ms": 0, "expires_at_ms": 0, "steps_down": False, "lineage": ""}
_PLAUSIBLE_S = 900.0  # a turn that begins later, and after ten of this leader's, has another reason than a queue
_IS_TOO_FAR = lease_rows.c.expires_at_ms > NOW_MS + bindparam("most_ms")
_BEGINS_MS = case((_IS_TOO_FAR, NOW_MS), else_=func.greatest(lease_rows.c.expires_at_ms, NOW_MS))
_TAKE = (
    update(lease_rows)
    .where(IS_ROLE)
    .values(
        holder=bindparam("of_holder"),
        epoch=lease_rows.c.epoch + 1,
        since_ms=_BEGINS_MS,
        expires_at_ms=_BEGINS_MS + bindparam("for_ms"),
    )
    .returning(lease_rows.c.since_ms - NOW_MS)
)


class SqlSearchTurns:
    """The turns at one provider, for this process. While no other owner's host leads, it needs none, and asks nobody.

    Args:
        key: of the account; it is not stored.
    """

    def __init__(
        self, database: Database, lease: Lease, provider: str, key: Callable[[], str], now: Callable[[], datetime]
    ) -> None:
        self._database = database
        self._lease = lease
        self._provider = provider
        self._key = key
        self._now = now

    @property
    def is_shared(self) -> bool:
        """See `SearchTurns`."""
        return self._lease.has_others

    def take(self, interval_s: float) -> float | None:
        """See `SearchTurns`."""
        if not self._lease.is_known:  # others still search at their own pace
            return None
        try:
            with self._database.write() as connection:
                account = account_in(connection, self._provider, self._key(), self._now())
                role = storable_text(f"{self._provider}/{account}", 64)
                insert_if_absent(connection, lease_rows, {"role": role, "holder": self._lease.holder, **_FIRST})
                keys = {
                    "of_role": role,
                    "of_holder": self._lease.holder,
                    "for_ms": round(interval_s * 1000),
                    "most_ms": round(max(_PLAUSIBLE_S, 10 * interval_s) * 1000),
                }
                return max(float(connection.execute(_TAKE, keys).scalar_one()) / 1000, 0.0)
        except StoreError as error:
            log.warning("no search before the database answers: %s", error, extra={"provider": self._provider})
            return None


def turns_by_provider(
    database: Database, lease: Lease, keys: Mapping[str, Callable[[], str]], now: Callable[[], datetime]
) -> dict[str, SearchTurns]:
    """Return the turns at each provider with a key. On SQLite there is one daemon, and so none."""
    if database.is_sqlite:
        return {}
    return {name: SqlSearchTurns(database, lease, name, key, now) for name, key in keys.items()}
