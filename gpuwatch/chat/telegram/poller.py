"""Long polling by one of several daemons, with a lease; updates are stored before Telegram may delete them.

`ChatFaults` logs the faults of a bot, polled or by a webhook: each once, and retried with increasing pauses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from gpuwatch.chat.telegram.receiver import UpdateReceiver
from gpuwatch.chat.telegram.updates import KINDS, ReadUpdates, read_updates
from gpuwatch.errors import StoreError
from gpuwatch.notifiers.telegram.bot_api import BotApi, BotApiReply, read_webhook_info
from gpuwatch.storage.alerts.chat_inbox import ChatInbox, PollingLease

log = logging.getLogger(__name__)
POLL_S = 20.0  # how long Telegram holds an empty request open
POLLER_LEASE_S = 40.0  # longer than a request may take; after a crash another daemon waits that long
REFUSED_S = 300.0  # rejected token: the check of the alert channel reports it, too
MAX_WAIT_S = 60.0
_DEADLINE_S = POLL_S + 8.0
LEASED_ELSEWHERE_S = 5.0
_CONFLICT_S = 10.0
_LIMIT = 50
# After a week without updates Telegram chooses a random id for the next one (core.telegram.org/bots/api#update): the
# old offset could confirm updates that were never received.
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
        self._faults = ChatFaults("reading Telegram updates again")
        self._has_begun = False

    def run(self) -> None:
        """Poll until stopped."""
        while not self._stopping.is_set():
            self._stopping.wait(self._faults.wait_after(self.poll))

    def poll(self) -> float:
        """Poll once; return the seconds to wait before the next time. Raises StoreError."""
        lease = self._inbox.lease(self._clock(), POLLER_LEASE_S)
        if lease is None:
            self._has_begun = False
            self._faults.report("another gpuwatch on this database polls the chat")
            return LEASED_ELSEWHERE_S
        if not self._has_begun:
            self._receiver.begin()
            self._has_begun = True
        reply = self._api.call("getUpdates", self._request(lease), _DEADLINE_S)
        if self._stopping.is_set():
            return 0.0  # unconfirmed: Telegram sends it again
        if not reply.ok:
            return self._handle_refusal(reply)
        try:
            read = read_updates(reply.result)
        except ValueError as error:
            return self._faults.failed(f"cannot read Telegram updates: {error}")
        self._faults.recovered()
        self._handle_updates(read)
        return 0.0 if read.next_id is not None or self._poll_s else 0.2

    def _request(self, lease: PollingLease) -> dict[str, object]:
        request: dict[str, object] = {"timeout": int(self._poll_s), "limit": _LIMIT, "allowed_updates": KINDS}
        newest = lease.received_at
        if lease.next_update_id and newest is not None and self._clock() - newest < _OFFSET_HOLDS:
            request["offset"] = lease.next_update_id
        return request

    def _handle_updates(self, read: ReadUpdates) -> None:
        if read.unread:
            log.warning("skipped %d Telegram updates that could not be parsed", read.unread)
        if read.next_id is None:
            return
        accepted = [received for update in read.updates if (received := self._receiver.accepted(update)) is not None]
        for stored in self._inbox.receive(accepted, read.next_id, self._clock()) or ():
            self._receiver.carry_out(stored)

    # --- faults -----------------------------------------------------------------------------------------------------

    def _handle_refusal(self, reply: BotApiReply) -> float:
        if reply.status == 409 and "webhook" in reply.description.lower():
            return self._end_webhook()
        if reply.status == 409:
            self._faults.report("another program polls this bot (409): stop it, or give gpuwatch its own bot")
            return _CONFLICT_S
        if reply.status in {401, 403, 404}:
            self._faults.report(f"Telegram rejects the bot's token ({reply.text}); buttons and commands do not work")
            return REFUSED_S
        wait_s = self._faults.failed(f"Telegram returns no updates ({reply.text}); retrying")
        return max(wait_s, reply.retry_after_s or 0.0) if reply.status == 429 else wait_s

    def _end_webhook(self) -> float:
        """Handle a webhook that gets the updates: remove one that earlier settings of gpuwatch created, keep others."""
        webhook = read_webhook_info(self._api)
        if webhook is not None and webhook.url.endswith(self._api.webhook_path):
            reply = self._api.call("deleteWebhook", {}, 5.0)  # its pending updates come by polling
            if reply.ok:
                log.info("removed gpuwatch's webhook from the bot; polling from now on")
                return 0.0
            return self._faults.failed(f"cannot remove gpuwatch's webhook from the bot ({reply.text})")
        self._faults.report(
            "the bot has another program's webhook, so gpuwatch cannot poll its commands; remove it with deleteWebhook"
        )
        return MAX_WAIT_S


class ChatFaults:
    """Counts the failures of one bot.

    Args:
        recovery_text: the log line for the recovery.
    """

    def __init__(self, recovery_text: str) -> None:
        self._recovery_text = recovery_text
        self._failures = 0
        self._fault = ""

    def report(self, fault: str) -> None:
        """Log it unless it was logged last; parts of the text that change between attempts are in parentheses."""
        kind = fault.partition("(")[0]
        if kind != self._fault:
            log.warning("%s", fault)
        self._fault = kind

    def failed(self, fault: str) -> float:
        """Log a failure; return the seconds to wait before the next attempt."""
        self.report(fault)
        self._failures += 1
        return min(2.0 ** min(self._failures - 1, 6), MAX_WAIT_S)

    def wait_after(self, step: Callable[[], float]) -> float:
        """Run a step of the bot's thread and contain its errors; return the seconds to wait before the next step."""
        try:
            return step()
        except StoreError as error:
            return self.failed(f"the chat is waiting for the database: {error}")
        except Exception:
            log.exception("the chat's thread failed; retrying")
            return MAX_WAIT_S

    def recovered(self) -> None:
        """Note that it works again."""
        if self._fault:
            log.info("%s", self._recovery_text)
        self._failures, self._fault = 0, ""
