"""Notes whether the default of [history] keep applies; it deletes nothing of an existing store."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_COMMENT = (
    "one row: version grows with every change of an interval, so that a writer sees whether its memory "
    "is still current; next_hour is the first hour without a roll-up; intervals before kept_from_s were "
    "pruned; rewritten grows with every change of what was over: late polls, imports, a clock set back, pruning; "
    "the polls of the days before packed_to_day are in poll_day"
)
_WITH_DEFAULT = f"{_COMMENT}; kept_by_default 0: it holds rows from before [history] keep, and its owner decides"
_HELD = ("poll", "price_interval", "hourly", "alert", "launch", "job")


def upgrade() -> None:
    op.add_column("history_state", sa.Column("kept_by_default", sa.SmallInteger(), nullable=False, server_default="1"))
    holds = " OR ".join(f"EXISTS (SELECT 1 FROM {table})" for table in _HELD)
    op.execute(f"UPDATE history_state SET kept_by_default = 0 WHERE {holds}")
    _comment(_WITH_DEFAULT, _COMMENT)


def downgrade() -> None:
    _comment(_COMMENT, _WITH_DEFAULT)
    with op.batch_alter_table("history_state") as table:
        table.drop_column("kept_by_default")


def _comment(new: str, old: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment("history_state", new, existing_comment=old)
