"""Messages to a bot: stored before Telegram gets a confirmation, carried out, then finished."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Connection, and_, or_, select, update

from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import chat_poller, chat_update
from gpuwatch.storage.setup.stored_values import from_ms, insert_if_absent, to_ms

LONGEST_LEASE = timedelta(minutes=10)  # one that ends later from now was written before the clock was set back


class ReceivedUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """One update from an authorised person.

    Attributes:
        body: JSON with all that carrying it out needs.
        button: the data of a press that works once; None: anything else.
    """

    update_id: int
    body: str
    button: str | None = None


class StoredUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An update to carry out now. `is_again`: its button was already pressed in another update."""

    update_id: int
    body: str
    is_again: bool = False


class PollingLease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to poll. `received_at`: time of the newest update; None: never."""

    next_update_id: int
    received_at: datetime | None


class ChatInbox:
    """The inbox of one bot, as one daemon uses it; all methods raise StoreError.

    Args:
        bot: the bot's id, which is no secret.
        holder: the id of this daemon.
    """

    def __init__(self, database: Database, bot: str, holder: str) -> None:
        self._database = database
        self._bot = bot
        self._holder = holder

    def lease(self, now: datetime, for_s: float) -> PollingLease | None:
        """Take or keep the right to poll; None: another daemon has it."""
        until_ms = to_ms(now + timedelta(seconds=for_s))
        lease_row = {"bot": self._bot, "holder": self._holder, "leased_until_ms": until_ms}
        with self._database.write() as connection:
            if not insert_if_absent(connection, chat_poller, lease_row):
                is_over = or_(
                    chat_poller.c.leased_until_ms <= to_ms(now),
                    chat_poller.c.leased_until_ms > to_ms(now + LONGEST_LEASE),
                )
                is_free = or_(chat_poller.c.holder == self._holder, is_over)
                claim = update(chat_poller).where(chat_poller.c.bot == self._bot, is_free).values(**lease_row)
                if connection.execute(claim).rowcount != 1:
                    return None
            row = connection.execute(select(chat_poller).where(chat_poller.c.bot == self._bot)).one()
        return PollingLease(next_update_id=row.next_update_id, received_at=from_ms(row.received_at_ms))

    def release(self, now: datetime) -> None:
        """Let another daemon poll at once."""
        is_holder = and_(chat_poller.c.bot == self._bot, chat_poller.c.holder == self._holder)
        with self._database.write() as connection:
            connection.execute(update(chat_poller).where(is_holder).values(leased_until_ms=to_ms(now)))

    def receive(
        self, updates: Sequence[ReceivedUpdate], next_update_id: int, now: datetime
    ) -> Sequence[StoredUpdate] | None:
        """Store updates and move the offset, both or neither; return the new ones.

        Returns:
            None: another daemon polls now; it gets the same updates.
        """
        is_holder = and_(chat_poller.c.bot == self._bot, chat_poller.c.holder == self._holder)
        offset_row = {"next_update_id": next_update_id, "received_at_ms": to_ms(now)}
        with self._database.write() as connection:
            if connection.execute(update(chat_poller).where(is_holder).values(**offset_row)).rowcount != 1:
                return None
            return self._insert_updates(connection, updates, now)

    def store(self, updates: Sequence[ReceivedUpdate], next_update_id: int, now: datetime) -> Sequence[StoredUpdate]:
        """Store updates that Telegram pushed, whoever has the lease; return the new ones."""
        offset_row = {"next_update_id": next_update_id, "received_at_ms": to_ms(now)}
        with self._database.write() as connection:
            connection.execute(update(chat_poller).where(chat_poller.c.bot == self._bot).values(**offset_row))
            return self._insert_updates(connection, updates, now)

    def _insert_updates(
        self, connection: Connection, updates: Sequence[ReceivedUpdate], now: datetime
    ) -> Sequence[StoredUpdate]:
        return [new for received in updates if (new := self._insert_update(connection, received, now)) is not None]

    def _insert_update(self, connection: Connection, received: ReceivedUpdate, now: datetime) -> StoredUpdate | None:
        row = {
            "bot": self._bot,
            "update_id": received.update_id,
            "received_at_ms": to_ms(now),
            "body": received.body,
            "button": received.button,
            "done_at_ms": None,
        }
        if insert_if_absent(connection, chat_update, row):
            return StoredUpdate(update_id=received.update_id, body=received.body)
        done_row = row | {"button": None, "body": None, "done_at_ms": to_ms(now)}  # stored, never carried out
        if received.button is not None and insert_if_absent(connection, chat_update, done_row):
            return StoredUpdate(update_id=received.update_id, body=received.body, is_again=True)
        return None

    def unfinished(self, since: datetime) -> Sequence[StoredUpdate]:
        """Return updates received since then and not finished, because a process ended."""
        is_unfinished = and_(chat_update.c.bot == self._bot, chat_update.c.done_at_ms.is_(None))
        query = select(chat_update).where(is_unfinished, chat_update.c.received_at_ms >= to_ms(since))
        with self._database.read() as connection:
            return [
                StoredUpdate(update_id=row.update_id, body=row.body)
                for row in connection.execute(query.order_by(chat_update.c.update_id))
            ]

    def finish(self, update_id: int, now: datetime) -> None:
        """Mark it as carried out; its text is deleted."""
        is_update = and_(chat_update.c.bot == self._bot, chat_update.c.update_id == update_id)
        with self._database.write() as connection:
            connection.execute(update(chat_update).where(is_update).values(done_at_ms=to_ms(now), body=None))
