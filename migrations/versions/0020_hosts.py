"""Adds the daemons that share the database, and which of them leads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "daemon_lease",
        sa.Column("role", sa.String(64), nullable=False),
        sa.Column("holder", sa.String(32), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("steps_down", sa.Boolean(), nullable=False),
        sa.Column("lineage", sa.String(100), nullable=False),
        sa.PrimaryKeyConstraint("role", name="pk_daemon_lease"),
        comment="which daemon leads; epoch grows with each change of the holder, times by the database's clock; "
        "lineage: the server and timeline that the holder found",
    )
    op.create_table(
        "daemon_host",
        sa.Column("holder", sa.String(32), nullable=False),
        sa.Column("role", sa.String(64), nullable=False),
        sa.Column("host", sa.String(200), nullable=False),
        sa.Column("version", sa.String(32), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("holder", name="pk_daemon_host"),
        comment="daemons that share this database, leading or standing by; a row goes with its daemon, or after a day",
    )


def downgrade() -> None:
    op.drop_table("daemon_host")
    op.drop_table("daemon_lease")
