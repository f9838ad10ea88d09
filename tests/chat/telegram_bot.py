"""The daemon's side of a bot without its thread: a test polls, sets the time and stops it; respx plays Telegram."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from gpuwatch.chat.telegram.receiver import ChatMembers, UpdateReceiver
from gpuwatch.chat.telegram.sender import MessageSender
from gpuwatch.engine.alerts.alert_buttons import ButtonSigner
from gpuwatch.notifiers.telegram.bot_api import BotApi
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.storage.alerts.chat_inbox import ChatInbox
from gpuwatch.storage.setup.database import Database
from tests.chat.telegram_chat import OWNER, Clock
from tests.telegram_double import TOKEN
from tests.web.served import settings_in

BOT_ID = TOKEN.partition(":")[0]


class Bot:
    def __init__(self, database: Database, folder: Path, http: PooledHttpClient) -> None:
        self.clock, self.stopping = Clock(), threading.Event()
        self.api = BotApi(TOKEN, http)
        self.inbox = ChatInbox(database, BOT_ID, "this daemon")
        self.other_inbox = ChatInbox(database, BOT_ID, "another daemon")
        members = ChatMembers(frozenset({str(OWNER)}), frozenset({str(OWNER)}))
        signer = ButtonSigner(b"secret", str(OWNER), lambda: "abc123")
        sender = MessageSender(self.api, self.stopping)
        settings = settings_in(folder, has_store=False)
        self.receiver = UpdateReceiver(settings, signer, lambda: members, self.inbox, sender, self.clock)

    def finish(self) -> None:
        """Wait until everything in the background was sent."""
        for pool in (self.receiver._pool, self.receiver._in_order):
            pool.shutdown(wait=True)


def written(update_id: int, text: str, user: int = OWNER) -> dict[str, Any]:
    """Return the update of a message in the owner's private chat."""
    person = {"id": user, "is_bot": False, "first_name": "A"}
    chat = {"id": OWNER, "type": "private"}
    sent = {"message_id": 9, "date": 1_795_262_400, "from": person, "chat": chat, "text": text}
    return {"update_id": update_id, "message": sent}
