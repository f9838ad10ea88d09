"""Adds an index for the launches that an invoice names."""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_launch_instance_id", "launch", ["instance_id"])


def downgrade() -> None:
    op.drop_index("ix_launch_instance_id", "launch")
