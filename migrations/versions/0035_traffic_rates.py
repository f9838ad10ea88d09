"""Keeps what a machine's traffic costs, as last seen; unknown until the next poll."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

_COLUMNS = ("download_microusd_gb", "upload_microusd_gb")


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("series", sa.Column(name, sa.BigInteger()))


def downgrade() -> None:
    for name in _COLUMNS:
        op.drop_column("series", name)  # in place: intervals refer to the table
