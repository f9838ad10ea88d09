"""Numbers the changes of jobs, so that a daemon reads only those that changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_COMMENT = "work to be done on a rented instance; version rises with every change, run_number with every run"
_WITH_CHANGED = f"{_COMMENT}; changed: the number of its last change in job_changes"


def upgrade() -> None:
    op.create_table(
        "job_changes",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("changes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_job_changes"),
        comment="one row: grows with every transaction that changes jobs, so that readers read what changed since",
    )
    op.execute("INSERT INTO job_changes (id, changes) VALUES (1, 0)")
    op.add_column("job", sa.Column("changed", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index("ix_job_changed", "job", ["changed"])
    _comment(_WITH_CHANGED, _COMMENT)


def downgrade() -> None:
    _comment(_COMMENT, _WITH_CHANGED)
    op.drop_index("ix_job_changed", "job")
    with op.batch_alter_table("job") as table:
        table.drop_column("changed")
    op.drop_table("job_changes")


def _comment(new: str, old: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment("job", new, existing_comment=old)
