"""Tables of what the daemon knows of the providers; see `tables.py`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, String, Table, Text

from gpuwatch.storage.metadata import metadata

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
