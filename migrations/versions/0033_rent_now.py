"""Notes on what terms a person rents an offer without a watch, and who approved a launch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("approval", sa.Column("rent", sa.Text()))
    op.add_column("launch", sa.Column("started_by", sa.Text()))


def downgrade() -> None:
    with op.batch_alter_table("approval") as table:
        table.drop_column("rent")
    op.drop_column("launch", "started_by")  # in place: events refer to the table
