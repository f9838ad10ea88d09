"""Keeps the size of machines without GPUs, as last seen; unknown until the next poll."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

_COLUMNS = ("vcpu_milli", "ram_mib")


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("series", sa.Column(name, sa.Integer()))


def downgrade() -> None:
    for name in _COLUMNS:
        op.drop_column("series", name)  # in place: intervals refer to the table
