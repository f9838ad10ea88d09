"""Lets several launches have one offer, if it is a stock of machines."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ALIVE = sa.text("state NOT IN ('ended', 'failed')")


def upgrade() -> None:
    op.add_column("launch", sa.Column("offer_slot", sa.Integer(), server_default="0", nullable=False))
    op.drop_index("uq_launch_offer_alive", table_name="launch")
    op.create_index(
        "uq_launch_offer_alive",
        "launch",
        ["provider", "offer_id", "offer_slot"],
        unique=True,
        sqlite_where=_ALIVE,
        postgresql_where=_ALIVE,
    )


def downgrade() -> None:
    op.drop_index("uq_launch_offer_alive", table_name="launch")
    op.create_index(
        "uq_launch_offer_alive",
        "launch",
        ["provider", "offer_id"],
        unique=True,
        sqlite_where=_ALIVE,
        postgresql_where=_ALIVE,
    )
    op.drop_column("launch", "offer_slot")
