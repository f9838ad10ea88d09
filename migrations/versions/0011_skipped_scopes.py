"""Keeps what orders were refused for: a quota, a region, an account."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "skipped_scope",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("watch", sa.String(length=200), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("launch_id", sa.String(length=32), nullable=True),
        sa.PrimaryKeyConstraint("provider", "scope", "key", "watch", name=op.f("pk_skipped_scope")),
        comment="what is not ordered before until_ms, because an order within it was refused; watch '': by no watch",
    )


def downgrade() -> None:
    op.drop_table("skipped_scope")
