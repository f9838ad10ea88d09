"""Remembers since when a watch with spot = "first" waits, and since when it could not rent anyway."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("watch_state", sa.Column("spot_wait_since_ms", sa.BigInteger))
    op.add_column("watch_state", sa.Column("spot_idle_since_ms", sa.BigInteger))


def downgrade() -> None:
    with op.batch_alter_table("watch_state") as table:
        table.drop_column("spot_idle_since_ms")
        table.drop_column("spot_wait_since_ms")
