"""The tables of identities: this installation, accounts at providers, watches. `tables.py` has the rest."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, SmallInteger, String, Table, text

from gpuwatch.storage.setup.metadata import metadata, partial_index

_IN_USE = text("retired_at_ms IS NULL")

installation = Table(
    "installation",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("install_id", String(8), nullable=False),
    Column("key_salt", String(64), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    comment="one row: whose launches these are; key_salt goes into the hashes of keys in provider_account",
)

provider_account = Table(
    "provider_account",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("account_id", String(200), primary_key=True),
    Column("known_by", String(8), nullable=False),
    Column("first_seen_ms", BigInteger, nullable=False),
    Column("last_seen_ms", BigInteger, nullable=False),
    Column("same_as", String(200)),
    CheckConstraint("known_by IN ('id', 'key')", name="known_by"),
    comment="accounts at providers; known_by id: the provider's own; key: a salted hash of a key; "
    "same_as: the account that this key belongs to",
)

watch_identity = Table(
    "watch_identity",
    metadata,
    Column("watch_id", String(8), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("retired_at_ms", BigInteger),
    partial_index("uq_watch_identity_in_use", "name", unique=True, where=_IN_USE),
    comment="a watch keeps its id when it is renamed; retired_at_ms: it is in the settings no more",
)

foreign_installation = Table(
    "foreign_installation",
    metadata,
    Column("install_id", String(8), primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    comment="other installations, by the id in their labels, whose instances the owner said are not of this one",
)

unknown_instance = Table(
    "unknown_instance",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("instance_id", String(64), primary_key=True),
    Column("account_id", String(200)),
    Column("label", String(200), nullable=False),
    Column("first_listed_ms", BigInteger, nullable=False),
    comment="listed with gpuwatch's label, of no launch here: nothing is rented at the provider until each is settled",
)
