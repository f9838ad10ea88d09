"""Recurring jobs: the series, and which job is its run at which time, at most one at a time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_IS_OPEN = sa.text("series IS NOT NULL AND state NOT IN ('done', 'failed', 'cancelled')")


def upgrade() -> None:
    op.create_table(
        "job_series",
        sa.Column("name", sa.String(150), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("submitted_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("next_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_job_id", sa.String(8)),
        sa.Column("last_planned_at_ms", sa.BigInteger()),
        sa.Column("missed", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("ended_at_ms", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="pk_job_series"),
        comment="recurring jobs, ended_at_ms: by their owner; definition: JSON of the job file with its schedule",
    )
    op.add_column("job", sa.Column("series", sa.String(150)))
    op.add_column("job", sa.Column("planned_at_ms", sa.BigInteger()))
    op.create_index("uq_job_series_planned", "job", ["series", "planned_at_ms"], unique=True)
    op.create_index(
        "uq_job_series_open", "job", ["series"], unique=True, sqlite_where=_IS_OPEN, postgresql_where=_IS_OPEN
    )


def downgrade() -> None:
    op.drop_index("uq_job_series_open", "job")
    op.drop_index("uq_job_series_planned", "job")
    with op.batch_alter_table("job") as table:
        table.drop_column("planned_at_ms")
        table.drop_column("series")
    op.drop_table("job_series")
