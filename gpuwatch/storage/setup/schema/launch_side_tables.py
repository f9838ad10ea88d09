"""The tables beside `launch`: what the owner decided, and what instances did and cost."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    String,
    Table,
    Text,
)

from gpuwatch.storage.setup.side_tables import metadata

utilisation_sample = Table(
    "utilisation_sample",
    metadata,
    Column("launch_id", String(32), ForeignKey("launch.launch_id"), primary_key=True),
    Column("at_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("percent", Float),
    comment="GPU utilisation of an instance, one row per poll; percent NULL: the provider did not say, never 0",
)

invoice_line = Table(
    "invoice_line",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("instance_id", String(64), primary_key=True),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(12), primary_key=True),
    Column("microusd", BigInteger, nullable=False),
    Column("final", SmallInteger, nullable=False),
    Index(None, "day"),
    comment="what the provider charged, per UTC day (days since 1970) and kind; final 0: it may still change",
)

approval = Table(
    "approval",
    metadata,
    Column("approval_id", String(32), primary_key=True),
    Column("watch", String(200), nullable=False),
    Column("provider", String(32), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("deadline_ms", BigInteger, nullable=False),
    Column("state", String(12), nullable=False),
    Column("offer", Text, nullable=False),
    Column("listed_microusd_hour", BigInteger, nullable=False),
    Column("price_microusd_hour", BigInteger, nullable=False),
    Column("answered_at_ms", BigInteger),
    Column("launch_id", String(32)),
    Column("message", Text),
    Column("muted_until_ms", BigInteger),  # a denied offer is not quoted again before; NULL: it may be
    Column("agent_microusd", BigInteger),  # what it can cost at most, if an agent approved it; NULL: the owner answers
    Column("rent", Text),  # JSON: the terms of what a person rents without a watch; NULL: a watch or an agent asks
    CheckConstraint("state IN ('open', 'approved', 'denied', 'expired', 'refused')", name="state"),
    Index(None, "watch", "state"),
    comment="a quote that waits for the owner's approval; it is answered once: state leaves 'open' by one UPDATE",
)

pause = Table(
    "pause",
    metadata,
    Column("scope", String(210), primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger),
    Column("why", Text, nullable=False),
    comment="nothing is rented: scope '' = at all, 'watch:NAME' = by that watch, 'breaker:NAME' = its launches "
    "failed; until_ms NULL: until resumed",
)

machine_note = Table(
    "machine_note",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("machine_id", String(64), primary_key=True),
    Column("verdict", String(8), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger),
    Column("why", Text, nullable=False),
    CheckConstraint("verdict IN ('blocked', 'allowed')", name="verdict"),
    comment="the owner's decision on a machine; 'allowed' also clears the failures on it before at_ms",
)

foreign_instance = Table(
    "foreign_instance",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("instance_id", String(64), primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    comment="labelled instances that the owner said belong to another installation",
)
