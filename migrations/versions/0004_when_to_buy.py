"""Keeps since when an automatic limit waits, and what was ticked in checklists."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "auto_price",
        sa.Column("watch", sa.String(200), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("limit_microusd_gpu_hour", sa.BigInteger()),
        sa.Column("reckoned_at_ms", sa.BigInteger()),
        sa.PrimaryKeyConstraint("watch", name="pk_auto_price"),
        comment='max_price = "auto": when the watch was first looked at, and the newest limit that was reckoned',
    )
    op.create_table(
        "checklist_tick",
        sa.Column("watch", sa.String(200), nullable=False),
        sa.Column("item", sa.String(200), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("words", sa.Text()),
        sa.PrimaryKeyConstraint("watch", "item", name="pk_checklist_tick"),
        comment="what the owner has ticked of a watch's `require`",
    )


def downgrade() -> None:
    op.drop_table("checklist_tick")
    op.drop_table("auto_price")
