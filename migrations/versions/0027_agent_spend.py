"""Notes what an agent's own approval can cost at most, so that its envelope binds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("approval", sa.Column("agent_microusd", sa.BigInteger()))


def downgrade() -> None:
    with op.batch_alter_table("approval") as table:
        table.drop_column("agent_microusd")
