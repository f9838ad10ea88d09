"""Who this installation is, and its accounts at providers. Both are created at first use.

The installation's id is in its launches and labels; its salt goes into its hashes. A key never changes its account, so
the account is queried once and stored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Row, select, update

from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import installation, provider_account
from gpuwatch.storage.setup.stored_values import from_ms, insert_if_absent, to_ms
from gpuwatch.storage.setup.tables import launch

_ROW_ID = 1
BY_ID, BY_KEY = "id", "key"
_KEY_PREFIX = "key:"
_HASH_LENGTH = 16  # hexadecimal digits: 64 bits of a salted hash
READ_INSTALLATION = select(installation.c.install_id, installation.c.key_salt)
INSTALL_ID = select(installation.c.install_id).scalar_subquery()  # for a query that reads other data anyway


class StoredInstallation(NamedTuple):
    """The identity of the installation that a database belongs to."""

    install_id: str
    key_salt: str


def new_identity() -> str:
    """Return 8 characters of a-z and 2-7: 40 random bits."""
    return base64.b32encode(secrets.token_bytes(5)).decode().lower()


def ensure_installation(connection: Connection, now: datetime) -> StoredInstallation:
    """Return the installation of this database, created if there is none. Needs a writing transaction."""
    existing = connection.execute(READ_INSTALLATION).first()
    if existing is None:  # another process may create it at the same moment; one of the two stays
        row = {
            "id": _ROW_ID,
            "install_id": new_identity(),
            "key_salt": secrets.token_hex(16),
            "created_at_ms": to_ms(now),
        }
        insert_if_absent(connection, installation, row)
        existing = connection.execute(READ_INSTALLATION).one()
    return StoredInstallation(*existing)


class KnownAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One stored account.

    Attributes:
        known_by: "id": the provider's own id; "key": the hash of a key.
        same_as: the account that this key belongs to; None: this is an account of its own.
    """

    provider: str
    account_id: str
    known_by: str
    first_seen: datetime
    last_seen: datetime
    same_as: str | None


def account_in(connection: Connection, provider: str, key: str, now: datetime) -> str:
    """Return the account of a key, as far as it is known. Needs a writing transaction."""
    key_account = _hash_key(ensure_installation(connection, now).key_salt, provider, key)
    return root_of({account.account_id: account for account in _read(connection, provider)}, key_account)


class SqlAccountRepository:
    """The accounts at providers, by the provider's id or by the hash of a key. All methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ensure_key_account(self, provider: str, key: str, now: datetime) -> str:
        """Return a key's account if the provider states none: a salted hash, from which nobody can guess the key."""
        with self._database.write() as connection:
            return _hash_key(ensure_installation(connection, now).key_salt, provider, key)

    def account_of_key(self, provider: str, key: str) -> str | None:
        """Return the account of a key that was used before, or None. Only reads."""
        with self._database.read() as connection:
            row = connection.execute(READ_INSTALLATION).first()
        return None if row is None else self.canonical_account(provider, _hash_key(row.key_salt, provider, key))

    def canonical_account(self, provider: str, account_id: str) -> str | None:
        """Return the account that this one was found or confirmed to be; None: never seen."""
        accounts = {account.account_id: account for account in self.all(provider)}
        return root_of(accounts, account_id) if account_id in accounts else None

    def record(self, provider: str, key_account: str | None, account_id: str | None, now: datetime) -> str:
        """Store the account of a key, and return its id.

        Args:
            key_account: None: there is no key (a chain of credentials).
            account_id: as the provider reports it; None: not reported.
        """
        with self._database.write() as connection:
            accounts = {account.account_id: account for account in _read(connection, provider)}
            if key_account is not None:
                _upsert_seen(connection, provider, key_account, BY_KEY, now)
            if account_id is None:
                return root_of(accounts, key_account or "")
            _upsert_seen(connection, provider, account_id, BY_ID, now)
            if key_account is not None:
                root = root_of(accounts, key_account)  # launches under a hash belong to this account, too
                key_id = root if is_key_hash(root) else key_account
                _link_accounts(connection, provider, key_id, account_id)
            return account_id

    def set_launch_account(self, launch_id: str, account_id: str) -> None:
        """Store the account of a launch that an older gpuwatch started."""
        statement = update(launch).where(launch.c.launch_id == launch_id, launch.c.account_id.is_(None))
        with self._database.write() as connection:
            connection.execute(statement.values(account_id=account_id))

    def link_accounts(self, provider: str, account_id: str, same_as: str, now: datetime) -> None:
        """Store that two accounts are one, as the owner confirmed: a key's hash belongs to `same_as`."""
        with self._database.write() as connection:
            _upsert_seen(connection, provider, account_id, BY_KEY, now)
            _link_accounts(connection, provider, account_id, same_as)

    def all(self, provider: str | None = None) -> list[KnownAccount]:
        """Return every account, oldest first."""
        with self._database.read() as connection:
            return _read(connection, provider)


def _hash_key(salt: str, provider: str, key: str) -> str:
    digest = hmac.new(salt.encode(), f"{provider} {key}".encode(), hashlib.sha256).hexdigest()
    return _KEY_PREFIX + digest[:_HASH_LENGTH]


def is_key_hash(account_id: str) -> bool:
    """Whether it is the hash of a key, not the provider's own id."""
    return account_id.startswith(_KEY_PREFIX)


def _read(connection: Connection, provider: str | None) -> list[KnownAccount]:
    query = select(provider_account).order_by(provider_account.c.first_seen_ms, provider_account.c.account_id)
    rows = connection.execute(query if provider is None else query.where(provider_account.c.provider == provider))
    return [_account_of(row) for row in rows]


def _account_of(row: Row[Any]) -> KnownAccount:
    return KnownAccount(
        provider=row.provider,
        account_id=row.account_id,
        known_by=row.known_by,
        first_seen=from_ms(row.first_seen_ms),
        last_seen=from_ms(row.last_seen_ms),
        same_as=row.same_as,
    )


def root_of(accounts: Mapping[str, KnownAccount], account_id: str) -> str:
    """Return the canonical account, by following `same_as` to its end."""
    seen = {account_id}
    while (
        (account := accounts.get(account_id)) is not None
        and account.same_as is not None
        and account.same_as not in seen
    ):
        account_id = account.same_as
        seen.add(account_id)
    return account_id


def _upsert_seen(connection: Connection, provider: str, account_id: str, known_by: str, now: datetime) -> None:
    row = {
        "provider": provider,
        "account_id": account_id,
        "known_by": known_by,
        "first_seen_ms": to_ms(now),
        "last_seen_ms": to_ms(now),
        "same_as": None,
    }
    if not insert_if_absent(connection, provider_account, row):
        connection.execute(_is_account(provider, account_id).values(last_seen_ms=to_ms(now)))


def _link_accounts(connection: Connection, provider: str, account_id: str, same_as: str) -> None:
    if account_id != same_as:
        connection.execute(_is_account(provider, account_id).values(same_as=same_as))


def _is_account(provider: str, account_id: str) -> Any:
    return update(provider_account).where(
        provider_account.c.provider == provider, provider_account.c.account_id == account_id
    )
