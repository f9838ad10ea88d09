"""Lets several owners share the database; what is stored belongs to the first.

What was stored before belongs to the installation, the owner ''.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_ALERT = (
    "every event, sent or not; body is its JSON; once_key makes sure that it is stored once only;"
    " routed_at_ms NULL: not logged or given to channels yet"
)
_ALERT_WITH_OWNER = f"{_ALERT}; owner: whose channels it is for"
_IDENTITY = "a watch keeps its id when it is renamed; retired_at_ms: it is in the settings no more"
_IDENTITY_WITH_HOST = (
    f"{_IDENTITY}; host: whose list has it, the newest that was accepted; NULL: unknown, before schema 0019"
)


def upgrade() -> None:
    op.add_column("alert", sa.Column("owner", sa.String(16), nullable=False, server_default=sa.text("''")))
    op.add_column("watch_identity", sa.Column("host", sa.String(255), nullable=True))
    _comment("alert", _ALERT_WITH_OWNER, _ALERT)
    _comment("watch_identity", _IDENTITY_WITH_HOST, _IDENTITY)


def downgrade() -> None:
    _comment("alert", _ALERT, _ALERT_WITH_OWNER)
    _comment("watch_identity", _IDENTITY, _IDENTITY_WITH_HOST)
    op.drop_column("alert", "owner")  # in place: deliveries refer to the table
    op.drop_column("watch_identity", "host")


def _comment(table: str, new: str, old: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment(table, new, existing_comment=old)
