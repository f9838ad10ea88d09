"""Long polling: one daemon of several, by lease; what comes is stored before Telegram may forget it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from gpuwatch.chat.actions import COMMANDS
from gpuwatch.chat.telegram.receiver import UpdateReceiver
from gpuwatch.chat.telegram.updates import ReadUpdates, read_updates
from gpuwatch.errors import StoreError
from gpuwatch.notifiers.telegram.bot_api import BotApi, BotApiReply
from gpuwatch.storage.chat_inbox import ChatInbox, PollingLease

log = logging.getLogger(__name__)

POLL_S = 20.0  # how long Telegram holds an empty request open
LEASE_S = 40.0  # longer than a request may take; after a crash another daemon waits so long
_DEADLINE_S = POLL_S + 8.0
_LEASED_ELSEWHERE_S = 5.0
_CONFLICT_S = 10.0
_REFUSED_S = 300.0  # the token: the alerts' own check says so, too
_LONGEST_WAIT_S = 60.0
_LIMIT = 50
_KINDS = ["message", "callback_query"]
_RESTART_BACK = timedelta(hours=1)  # what was interrupted longer ago is not done any more
# After a week without updates Telegram may begin anywhere (core.telegram.org/bots/api#update): the offset of before
# could confirm what never came.
_OFFSET_HOLDS = timedelta(days=6)


class UpdatePoller:
    """Polls one bot until it is stopped.

    Args:
        poll_s: how long Telegram may hold a request open.
    """

    def __init__(
        self,
        api: BotApi,
        inbox: ChatInbox,
        receiver: UpdateReceiver,
        clock: Callable[[], datetime],
        stopping: threading.Event,
        poll_s: float = POLL_S,
    ) -> None:
        self._api = api
        self._inbox = inbox
        self._receiver = receiver
        self._clock = clock
        self._stopping = stopping
        self._poll_s = poll_s
        self._failures = 0
        self._fault = ""
        self._is_begun = False

    def run(self) -> None:
        """Poll until stopped."""
        while not self._stopping.is_set():
            try:
                wait_s = self.poll()
            except StoreError as error:
                wait_s = self._failed(f"the chat waits for the database: {error}")
            except Exception:
                log.exception("polling the chat failed; it is tried again")
                wait_s = _LONGEST_WAIT_S
            self._stopping.wait(wait_s)

    def poll(self) -> float:
        """Ask once; how many seconds to wait then. Raises StoreError."""
        lease = self._inbox.lease(self._clock(), LEASE_S)
        if lease is None:
            self._is_begun = False
            self._report("another gpuwatch on this database polls the chat")
            return _LEASED_ELSEWHERE_S
        if not self._is_begun:
            self._begin()
        reply = self._api.call("getUpdates", self._request(lease), _DEADLINE_S)
        if self._stopping.is_set():
            return 0.0  # unconfirmed: it comes again
        if not reply.ok:
            return self._refused(reply)
        try:
            read = read_updates(reply.result)
        except ValueError as error:
            return self._failed(f"Telegram's updates cannot be read: {error}")
        self._recovered()
        self._take(read)
        return 0.0 if read.next_id is not None or self._poll_s else 0.2

    def _begin(self) -> None:
        self._is_begun = True
        for stored in self._inbox.unfinished(self._clock() - _RESTART_BACK):
            self._receiver.carry_out(stored)
        menu = [{"command": name, "description": one.about} for name, one in COMMANDS.items()]
        self._api.call("setMyCommands", {"commands": menu}, 5.0)  # the menu of the app; nothing depends on it

    def _request(self, lease: PollingLease) -> dict[str, object]:
        request: dict[str, object] = {"timeout": int(self._poll_s), "limit": _LIMIT, "allowed_updates": _KINDS}
        newest = lease.received_at
        if lease.next_update_id and newest is not None and self._clock() - newest < _OFFSET_HOLDS:
            request["offset"] = lease.next_update_id
        return request

    def _take(self, read: ReadUpdates) -> None:
        if read.unread:
            log.warning("%d updates of Telegram could not be understood; they are left out", read.unread)
        if read.next_id is None:
            return
        accepted = [found for update in read.updates if (found := self._receiver.accepted(update)) is not None]
        for stored in self._inbox.receive(accepted, read.next_id, self._clock()) or ():
            self._receiver.carry_out(stored)

    # --- what goes wrong --------------------------------------------------------------------------------------------

    def _refused(self, reply: BotApiReply) -> float:
        if reply.status == 409 and "webhook" in reply.description.lower():
            self._report("the bot has a webhook, so its commands cannot be polled; remove it: deleteWebhook")
            return _LONGEST_WAIT_S
        if reply.status == 409:
            self._report("somebody else polls this bot (409): stop that, or give gpuwatch a bot of its own")
            return _CONFLICT_S
        if reply.status in {401, 403, 404}:
            self._report(f"the bot's token is not accepted ({reply.text}); buttons and commands do not work")
            return _REFUSED_S
        wait_s = self._failed(f"Telegram does not give updates ({reply.text}); it is asked again")
        return max(wait_s, reply.retry_after_s or 0.0) if reply.status == 429 else wait_s

    def _failed(self, fault: str) -> float:
        self._report(fault)
        self._failures += 1
        return min(2.0 ** min(self._failures - 1, 6), _LONGEST_WAIT_S)

    def _report(self, fault: str) -> None:
        """Each fault once; its text may hold what changes from try to try."""
        kind = fault.partition("(")[0]
        if kind != self._fault:
            log.warning("%s", fault)
        self._fault = kind

    def _recovered(self) -> None:
        if self._fault:
            log.info("Telegram's updates are read again")
        self._failures, self._fault = 0, ""
