"""Lets a run take over the instance of a job that is done; each is charged for its own time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job_run", sa.Column("held_from_ms", sa.BigInteger(), nullable=True))
    op.add_column("job_run", sa.Column("held_until_ms", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("job_run") as table:
        table.drop_column("held_until_ms")
        table.drop_column("held_from_ms")
