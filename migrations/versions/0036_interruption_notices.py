"""Notes which machines their providers announced to take back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("launch", sa.Column("interruption", sa.Text()))


def downgrade() -> None:
    op.drop_column("launch", "interruption")  # in place: events refer to the table
