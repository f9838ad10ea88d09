"""The tables of provider data: health, holds, seen values, skipped scopes. `tables.py` has the rest of the schema."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, SmallInteger, String, Table, Text

from gpuwatch.storage.setup.metadata import metadata

provider_hold = Table(
    "provider_hold",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("kind", String(64), primary_key=True),
    Column("set_at_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("quota_resets_ms", BigInteger),
    comment="a class of requests that a provider wants no more of before until_ms; quota_resets_ms: the day's rows "
    "are used up, and until_ms is the next probe",
)

skipped_scope = Table(
    "skipped_scope",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("scope", String(16), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("watch", String(200), primary_key=True),
    Column("why", Text, nullable=False),
    Column("since_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("launch_id", String(32)),
    comment="what is not ordered before until_ms, because an order within it was refused; watch '': by no watch",
)

provider_health = Table(
    "provider_health",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("lane", String(8), primary_key=True),
    Column("complete_at_ms", BigInteger),
    Column("blind_since_ms", BigInteger),
    Column("last_error", Text),
    Column("not_understood", SmallInteger, nullable=False),
    Column("reported", SmallInteger, nullable=False),
    comment="lane: hunt or sweep; not_understood 1: blind until a row is understood; "
    "reported 0: blind, too, with a lane whose alert covers both",
)

seen_value = Table(
    "seen_value",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("value", String(200), primary_key=True),
    Column("first_seen_ms", BigInteger, nullable=False),
    comment="GPU spellings, field names and skip reasons that were reported already, or are simply known",
)
