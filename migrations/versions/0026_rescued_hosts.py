"""Notes which daemons are in rescue mode, so that they hand over to a healthy one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("daemon_host", sa.Column("is_rescued", sa.Boolean(), nullable=False, server_default=sa.text("false")))


def downgrade() -> None:
    with op.batch_alter_table("daemon_host") as changed:
        changed.drop_column("is_rescued")
