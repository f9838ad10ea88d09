"""The tables of a chat: who polls it, and its updates. `tables.py` has the rest."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, String, Table, Text, UniqueConstraint, text

from gpuwatch.storage.setup.metadata import metadata, partial_index

_UNFINISHED = text("done_at_ms IS NULL")

chat_poller = Table(
    "chat_poller",
    metadata,
    Column("bot", String(32), primary_key=True),
    Column("holder", String(32), nullable=False),
    Column("leased_until_ms", BigInteger, nullable=False),
    Column("next_update_id", BigInteger, nullable=False, server_default="0"),
    Column("received_at_ms", BigInteger),  # time of the newest update
    comment="which daemon polls a bot, and from which update on",
)

chat_update = Table(
    "chat_update",
    metadata,
    Column("bot", String(32), primary_key=True),
    Column("update_id", BigInteger, primary_key=True, autoincrement=False),
    Column("received_at_ms", BigInteger, nullable=False),
    Column("body", Text),
    Column("button", String(64)),
    Column("done_at_ms", BigInteger),
    UniqueConstraint("bot", "button"),
    partial_index("ix_chat_update_unfinished", "received_at_ms", where=_UNFINISHED),
    comment="messages and presses of people who may send them, until they are carried out; button: the data of a "
    "press that works once; body NULL: carried out",
)
