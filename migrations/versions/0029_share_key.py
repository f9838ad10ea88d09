"""Keeps the key that signs shared links, so that rotating it ends them all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("installation", sa.Column("share_key", sa.String(64)))


def downgrade() -> None:
    with op.batch_alter_table("installation") as table:
        table.drop_column("share_key")
