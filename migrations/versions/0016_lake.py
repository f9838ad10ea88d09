"""Adds the parts of lakes: which files were verified there, and until when."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lake",
        sa.Column("url", sa.String(300), nullable=False),
        sa.Column("complete_from_s", sa.Integer(), nullable=True),
        sa.Column("verified_until_s", sa.Integer(), nullable=True),
        sa.Column("next_until_s", sa.Integer(), nullable=True),
        sa.Column("late", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("url", name="pk_lake"),
        comment="lakes that were written: all that was over in [complete_from_s, verified_until_s) is in one, "
        "verified; complete_from_s NULL: from the first; next_until_s: the end of what is being written",
    )
    op.create_table(
        "lake_part",
        sa.Column("url", sa.String(300), nullable=False),
        sa.Column("name", sa.String(500), nullable=False),
        sa.Column("dataset", sa.String(16), nullable=False),
        sa.Column("provider", sa.String(200), nullable=False),
        sa.Column("from_s", sa.Integer(), nullable=False),
        sa.Column("until_s", sa.Integer(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("url", "name", name="pk_lake_part"),
        comment="the verified files of a lake; checksum: SHA-256",
    )


def downgrade() -> None:
    op.drop_table("lake_part")
    op.drop_table("lake")
