"""Keeps counting what pruned rows added to counters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pruned_total",
        sa.Column("counter", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("counter", "kind", "severity", name="pk_pruned_total"),
        comment="what pruned rows still add to counters: none falls when its rows go; kind, severity: of alerts",
    )


def downgrade() -> None:
    op.drop_table("pruned_total")
