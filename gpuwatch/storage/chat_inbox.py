"""Messages to a bot: stored before Telegram gets a confirmation, carried out, then finished."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Connection, and_, delete, or_, select, update

from gpuwatch.storage.chat_tables import chat_poller, chat_update
from gpuwatch.storage.database import Database
from gpuwatch.storage.rows import from_ms, insert_if_absent, to_ms

KEPT_FOR = timedelta(days=9)  # longer than any button is valid


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
        mine = {"bot": self._bot, "holder": self._holder, "leased_until_ms": until_ms}
        with self._database.write() as connection:
            if not insert_if_absent(connection, chat_poller, mine):
                free = or_(chat_poller.c.holder == self._holder, chat_poller.c.leased_until_ms <= to_ms(now))
                taken = update(chat_poller).where(chat_poller.c.bot == self._bot, free).values(**mine)
                if connection.execute(taken).rowcount != 1:
                    return None
            row = connection.execute(select(chat_poller).where(chat_poller.c.bot == self._bot)).one()
        return PollingLease(next_update_id=row.next_update_id, received_at=from_ms(row.received_at_ms))

    def release(self, now: datetime) -> None:
        """Let another daemon poll at once."""
        mine = and_(chat_poller.c.bot == self._bot, chat_poller.c.holder == self._holder)
        with self._database.write() as connection:
            connection.execute(update(chat_poller).where(mine).values(leased_until_ms=to_ms(now)))

    def receive(
        self, updates: Sequence[ReceivedUpdate], next_update_id: int, now: datetime
    ) -> Sequence[StoredUpdate] | None:
        """Store updates and move the offset, both or neither; return the new ones.

        Returns:
            None: another daemon polls now; it gets the same updates.
        """
        mine = and_(chat_poller.c.bot == self._bot, chat_poller.c.holder == self._holder)
        moved = {"next_update_id": next_update_id, "received_at_ms": to_ms(now)}
        with self._database.write() as connection:
            if connection.execute(update(chat_poller).where(mine).values(**moved)).rowcount != 1:
                return None
            return self._keep(connection, updates, now)

    def store(self, updates: Sequence[ReceivedUpdate], next_update_id: int, now: datetime) -> Sequence[StoredUpdate]:
        """Store updates that Telegram pushed, whoever has the lease; return the new ones."""
        moved = {"next_update_id": next_update_id, "received_at_ms": to_ms(now)}
        with self._database.write() as connection:
            connection.execute(update(chat_poller).where(chat_poller.c.bot == self._bot).values(**moved))
            return self._keep(connection, updates, now)

    def _keep(self, connection: Connection, updates: Sequence[ReceivedUpdate], now: datetime) -> Sequence[StoredUpdate]:
        old = and_(chat_update.c.bot == self._bot, chat_update.c.received_at_ms < to_ms(now - KEPT_FOR))
        connection.execute(delete(chat_update).where(old))
        return [new for one in updates if (new := self._stored(connection, one, now)) is not None]

    def _stored(self, connection: Connection, one: ReceivedUpdate, now: datetime) -> StoredUpdate | None:
        row = {
            "bot": self._bot,
            "update_id": one.update_id,
            "received_at_ms": to_ms(now),
            "body": one.body,
            "button": one.button,
            "done_at_ms": None,
        }
        if insert_if_absent(connection, chat_update, row):
            return StoredUpdate(update_id=one.update_id, body=one.body)
        again = row | {"button": None, "body": None, "done_at_ms": to_ms(now)}  # stored, never carried out
        if one.button is not None and insert_if_absent(connection, chat_update, again):
            return StoredUpdate(update_id=one.update_id, body=one.body, is_again=True)
        return None

    def unfinished(self, since: datetime) -> Sequence[StoredUpdate]:
        """Return updates received since then and not finished, because a process ended."""
        mine = and_(chat_update.c.bot == self._bot, chat_update.c.done_at_ms.is_(None))
        query = select(chat_update).where(mine, chat_update.c.received_at_ms >= to_ms(since))
        with self._database.read() as connection:
            return [
                StoredUpdate(update_id=row.update_id, body=row.body)
                for row in connection.execute(query.order_by(chat_update.c.update_id))
            ]

    def finish(self, update_id: int, now: datetime) -> None:
        """Mark it as carried out; its text is deleted."""
        one = and_(chat_update.c.bot == self._bot, chat_update.c.update_id == update_id)
        with self._database.write() as connection:
            connection.execute(update(chat_update).where(one).values(done_at_ms=to_ms(now), body=None))
