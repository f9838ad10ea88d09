"""The table of the forecasts of `advise` and `max_price = "auto"` and their scores. `tables.py` has the rest."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, String, Table, Text, text

from gpuwatch.storage.setup.metadata import metadata, partial_index

_FORECAST_IS_OPEN = text("score IS NULL")

forecast = Table(
    "forecast",
    metadata,
    Column("forecast_id", String(32), primary_key=True),
    Column("source", String(16), nullable=False),
    Column("watch", String(200)),
    Column("made_at_ms", BigInteger, nullable=False),
    Column("due_at_ms", BigInteger, nullable=False),
    Column("statement", Text, nullable=False),
    Column("score", Text),
    partial_index("ix_forecast_open", "due_at_ms", where=_FORECAST_IS_OPEN),
    comment="what was stated of prices before a deadline, as JSON; score: what came true, NULL until that is known",
)
