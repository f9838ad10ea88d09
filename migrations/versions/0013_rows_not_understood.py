"""Keeps what a poll did not understand, by reason."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("poll", sa.Column("not_understood", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("poll") as table:
        table.drop_column("not_understood")
