"""Counts changes of what is over in the history, so that readers can keep it.

A late poll, an import, a clock that was set back and pruning change it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_COMMENT = (
    "one row: version grows with every change of an interval, so that a writer sees whether its memory "
    "is still current; next_hour is the first hour without a roll-up; intervals before kept_from_s were "
    "pruned"
)
_WITH_REWRITTEN = (
    f"{_COMMENT}; rewritten grows with every change of what was over: late polls, imports, a clock set back, pruning"
)


def upgrade() -> None:
    op.add_column("history_state", sa.Column("rewritten", sa.BigInteger(), nullable=False, server_default="0"))
    _comment(_WITH_REWRITTEN, _COMMENT)


def downgrade() -> None:
    _comment(_COMMENT, _WITH_REWRITTEN)
    with op.batch_alter_table("history_state") as table:
        table.drop_column("rewritten")


def _comment(new: str, old: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment("history_state", new, existing_comment=old)
