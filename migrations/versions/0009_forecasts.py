"""Keeps forecasts, to compare them with what comes true."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_OPEN = sa.text("score IS NULL")


def upgrade() -> None:
    op.create_table(
        "forecast",
        sa.Column("forecast_id", sa.String(length=32), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("watch", sa.String(length=200), nullable=True),
        sa.Column("made_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("due_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.Column("score", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("forecast_id", name=op.f("pk_forecast")),
        comment="what was stated of prices before a deadline, as JSON; score: what came true, NULL until that is known",
    )
    op.create_index("ix_forecast_open", "forecast", ["due_at_ms"], sqlite_where=_OPEN, postgresql_where=_OPEN)


def downgrade() -> None:
    op.drop_index("ix_forecast_open", "forecast", sqlite_where=_OPEN, postgresql_where=_OPEN)
    op.drop_table("forecast")
