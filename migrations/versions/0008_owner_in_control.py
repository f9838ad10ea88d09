"""Keeps what is sent by a chat until it is carried out."""

# ruff: noqa: E501
from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_UNFINISHED = sa.text("done_at_ms IS NULL")


def upgrade() -> None:
    op.create_table(
        "chat_poller",
        sa.Column("bot", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.String(length=32), nullable=False),
        sa.Column("leased_until_ms", sa.BigInteger(), nullable=False),
        sa.Column("next_update_id", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("received_at_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("bot", name=op.f("pk_chat_poller")),
        comment="which daemon polls a bot, and from which update on",
    )
    op.create_table(
        "chat_update",
        sa.Column("bot", sa.String(length=32), nullable=False),
        sa.Column("update_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("received_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("button", sa.String(length=64), nullable=True),
        sa.Column("done_at_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("bot", "update_id", name=op.f("pk_chat_update")),
        sa.UniqueConstraint("bot", "button", name=op.f("uq_chat_update_bot_button")),
        comment="messages and presses of people who may send them, until they are carried out; button: the data of a press that works once; body NULL: carried out",
    )
    op.create_index(
        "ix_chat_update_unfinished",
        "chat_update",
        ["received_at_ms"],
        sqlite_where=_UNFINISHED,
        postgresql_where=_UNFINISHED,
    )


def downgrade() -> None:
    op.drop_index("ix_chat_update_unfinished", "chat_update", sqlite_where=_UNFINISHED, postgresql_where=_UNFINISHED)
    op.drop_table("chat_update")
    op.drop_table("chat_poller")
