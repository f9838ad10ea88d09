"""Implements the port `HoldStore`, for the daemon and for commands."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from sqlalchemy import Connection, Select, select

from gpuwatch.domain.watches.owner_names import owned_name, owner_of, plain_name
from gpuwatch.errors import StoreError
from gpuwatch.ports.market import Hold
from gpuwatch.storage.setup.database import Database, open_database, owner_in
from gpuwatch.storage.setup.migrate import open_read_only, require_head
from gpuwatch.storage.setup.side_tables import provider_hold
from gpuwatch.storage.setup.stored_values import from_ms, to_ms, upsert

log = logging.getLogger(__name__)


# What a host found with its owner's account and settings: of each owner its own. The rest is of the provider.
OF_OWNER = frozenset({"empty answers", "filters", "renting", "renting jobs"})


class SqlHolds:
    """The daemon's holds, over its open store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, provider: str) -> Sequence[Hold]:
        """See `HoldStore`."""
        try:
            return _load(self._database, provider)
        except StoreError as error:
            log.warning("cannot read the holds: %s", error, extra={"provider": provider})
            return ()

    def load_all(self) -> Mapping[str, Sequence[Hold]]:
        """Return the last holds of each provider, as `load`."""
        try:
            with self._database.read() as connection:
                return _holds(connection, select(provider_hold))
        except StoreError as error:
            log.warning("cannot read the holds: %s", error)
            return {}

    def save(self, hold: Hold) -> None:
        """See `HoldStore`."""
        try:
            _save(self._database, hold)
        except StoreError as error:
            log.warning("cannot store the hold for the next start: %s", error, extra={"provider": hold.provider})


class CommandHolds:
    """A command's holds: opens the store for each call; the store may be missing or have another schema.

    Args:
        may_write: whether the command may write.
    """

    def __init__(self, database_url: str, may_write: bool = False) -> None:
        self._url = database_url
        self._may_write = may_write

    def load(self, provider: str) -> Sequence[Hold]:
        """See `HoldStore`."""
        try:
            with open_read_only(self._url) as database:
                return _load(database, provider)
        except StoreError:
            return ()

    def save(self, hold: Hold) -> None:
        """See `HoldStore`."""
        if self._may_write:
            with suppress(StoreError), closing(open_database(self._url)) as database:
                require_head(database)
                _save(database, hold)


def save_hold(connection: Connection, hold: Hold) -> None:
    """Store a hold in place of the last one of its class."""
    row = {
        "provider": hold.provider,
        "kind": owned_name(owner_in(connection), hold.kind) if hold.kind in OF_OWNER else hold.kind,
        "set_at_ms": to_ms(hold.set_at),
        "until_ms": to_ms(hold.until),
        "reason": hold.reason,
        "quota_resets_ms": to_ms(hold.quota_resets_at),
    }
    upsert(connection, provider_hold, row)


def load_holds(connection: Connection, provider: str) -> Sequence[Hold]:
    """Return the last hold of each class of requests, even if it is over."""
    return _holds(connection, select(provider_hold).where(provider_hold.c.provider == provider)).get(provider, ())


def _holds(connection: Connection, query: Select[Any]) -> Mapping[str, Sequence[Hold]]:
    """Return provider → the holds of this owner, and those of all."""
    owner = owner_in(connection)
    found: dict[str, list[Hold]] = {}
    for row in connection.execute(query.order_by(provider_hold.c.kind)):
        if owner_of(row.kind) == owner or (row.kind not in OF_OWNER and not owner_of(row.kind)):
            hold = Hold(
                provider=row.provider,
                kind=plain_name(row.kind),
                set_at=from_ms(row.set_at_ms),
                until=from_ms(row.until_ms),
                reason=row.reason,
                quota_resets_at=from_ms(row.quota_resets_ms),
            )
            found.setdefault(row.provider, []).append(hold)
    return found


def _load(database: Database, provider: str) -> Sequence[Hold]:
    with database.read() as connection:
        return load_holds(connection, provider)


def _save(database: Database, hold: Hold) -> None:
    with database.write() as connection:
        save_hold(connection, hold)
