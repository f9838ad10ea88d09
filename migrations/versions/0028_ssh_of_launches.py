"""Notes where to log in to a rented machine."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("launch", sa.Column("ssh", sa.Text()))


def downgrade() -> None:
    op.drop_column("launch", "ssh")  # in place: events refer to the table
