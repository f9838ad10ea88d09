"""Notes which machines are stopped with their disks kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("launch", sa.Column("kept", sa.Text()))


def downgrade() -> None:
    op.drop_column("launch", "kept")  # in place: events refer to the table
