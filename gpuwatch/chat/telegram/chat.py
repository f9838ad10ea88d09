"""One bot: its poller or webhook, its inbox and its messages, connected and run on a thread of their own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial

from gpuwatch.bootstrap import new_id, open_http, real_now
from gpuwatch.bootstrap.service import button_signer, webhook_secret
from gpuwatch.chat.interface import Webhooks
from gpuwatch.chat.telegram.poller import POLL_S, UpdatePoller
from gpuwatch.chat.telegram.receiver import ANSWER_WITHIN_S, ChatMembers, UpdateReceiver
from gpuwatch.chat.telegram.sender import MessageSender
from gpuwatch.chat.telegram.telegram_webhook import WebhookIntake, WebhookTarget
from gpuwatch.errors import StoreError
from gpuwatch.notifiers.telegram import TelegramChannel
from gpuwatch.notifiers.telegram.bot_api import BotApi
from gpuwatch.settings import Settings
from gpuwatch.storage.alerts.chat_inbox import ChatInbox
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.database import Database

log = logging.getLogger(__name__)


@contextmanager
def open_chat(  # noqa: PLR0913, PLR0917 each is a separate port
    settings: Settings,
    store: Database,
    channel: TelegramChannel,
    clock: Callable[[], datetime] = real_now,
    poll_s: float = POLL_S,
    webhooks: Webhooks | None = None,
    answer_within_s: float = ANSWER_WITHIN_S,
) -> Iterator[None]:
    """Accept commands and presses while the block runs; nothing else ever waits for this.

    Args:
        store: opened and upgraded.
        poll_s: how long Telegram may hold a request open.
        answer_within_s: after this a press is answered, even without a result.
        webhooks: accepts updates from Telegram; None: unavailable, so the bot is polled.

    Raises:
        StoreError: the installation cannot be read.
    """
    stopping = threading.Event()
    http = open_http(settings)
    api = BotApi(channel.button_secret, http, channel.base_url)
    inbox = ChatInbox(store, api.bot_id, new_id())
    sender = MessageSender(api, stopping)
    signer, members = button_signer(channel, store), partial(_members, channel, store)  # the chat may move meanwhile
    receiver = UpdateReceiver(settings, signer, members, inbox, sender, clock, answer_within_s=answer_within_s)
    with ExitStack() as opened:
        if channel.webhook and webhooks is not None:
            target = WebhookTarget(channel.webhook_address, webhook_secret(channel, store))
            intake = WebhookIntake(api, inbox, receiver, clock, stopping, target)
            opened.callback(webhooks.open(intake))
            run, stop = intake.run, intake.stop
        else:
            poller = UpdatePoller(api, inbox, receiver, clock, stopping, poll_s)
            run, stop = poller.run, stopping.set
        thread = _thread(run, http.close)
        try:
            yield
        finally:
            stop()
            receiver.close()
            with suppress(StoreError):  # otherwise another daemon waits for the end of the lease
                inbox.release(clock())
            thread.join(0.2)


def _thread(run: Callable[[], object], close: Callable[[], object]) -> threading.Thread:
    """Start a thread that receives updates, and closes what it used at the end."""

    def work() -> None:
        with suppress(Exception):  # the store and the network may be gone at the end
            run()
        close()

    thread = threading.Thread(target=work, name="chat", daemon=True)
    thread.start()
    return thread


def _members(channel: TelegramChannel, store: Database) -> ChatMembers:
    """Return the configured chat, and the id to which Telegram has moved it."""
    chats = {channel.address}
    with suppress(StoreError):
        new_address = Outbox(store).new_address(channel.name, channel.address)
        chats |= {new_address} if new_address is not None else set()
    return ChatMembers(frozenset(chats), channel.users)
