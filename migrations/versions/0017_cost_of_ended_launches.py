"""Stores what a launch cost once it is over; adds indexes for totals.

Launches that ended before keep NULL: their cost is computed where it is needed.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("launch", sa.Column("spent_microusd", sa.BigInteger(), nullable=True))
    op.create_index("ix_launch_state_provider_spent_microusd", "launch", ["state", "provider", "spent_microusd"])
    op.create_index("ix_launch_state_ended_at_ms", "launch", ["state", "ended_at_ms"])
    op.create_index("ix_alert_kind_severity", "alert", ["kind", "severity"])


def downgrade() -> None:
    op.drop_index("ix_alert_kind_severity", "alert")
    op.drop_index("ix_launch_state_ended_at_ms", "launch")
    op.drop_index("ix_launch_state_provider_spent_microusd", "launch")
    op.drop_column("launch", "spent_microusd")
