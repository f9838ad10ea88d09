"""Records what watches decided, a row for each change, so that they answer for the past."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "watch_decision",
        sa.Column("watch", sa.String(200), primary_key=True),
        sa.Column("at_ms", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("reason", sa.String(32), nullable=False),
        sa.Column("message", sa.String(400), nullable=False),
        sa.Column("limit_microusd_gpu_hour", sa.BigInteger),
        comment="what a watch decided, a row for each change: it holds until the next row of the watch",
    )


def downgrade() -> None:
    op.drop_table("watch_decision")
