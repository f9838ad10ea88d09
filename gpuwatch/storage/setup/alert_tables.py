"""The tables of alerts and their deliveries to the channels."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from gpuwatch.storage.setup.metadata import metadata, partial_index

_UNROUTED = text("routed_at_ms IS NULL")

alert = Table(
    "alert",
    metadata,
    Column("alert_id", String(32), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("watch", String(200)),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("once_key", String(200)),
    Column("severity", String(12), nullable=False, server_default="info"),
    Column("subject", String(200)),
    Column("headline", Text),
    Column("routed_at_ms", BigInteger),
    UniqueConstraint("once_key"),
    Index(None, "created_at_ms"),
    partial_index("ix_alert_unrouted", "created_at_ms", where=_UNROUTED),
    comment="every event, sent or not; body is its JSON; once_key makes sure that it is stored once only;"
    " routed_at_ms NULL: not logged or given to channels yet",
)

delivery = Table(
    "delivery",
    metadata,
    Column("alert_id", String(32), ForeignKey("alert.alert_id"), primary_key=True),
    Column("channel", String(32), primary_key=True),
    Column("state", String(12), nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_try_at_ms", BigInteger, nullable=False),
    Column("leased_until_ms", BigInteger),
    Column("sent_at_ms", BigInteger),
    Column("last_error", Text),
    Column("settled_recipients", Text),  # of several recipients, those that need no further attempt
    Column("first_try_at_ms", BigInteger),
    CheckConstraint("state IN ('pending', 'sent', 'expired', 'refused')", name="state"),
    Index(None, "state", "next_try_at_ms"),
    comment="the outbox: one row per alert and channel",
)

silence = Table(
    "silence",
    metadata,
    Column("watch", String(200), primary_key=True),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    comment="the alerts of a watch are stored and logged, but not sent",
)
