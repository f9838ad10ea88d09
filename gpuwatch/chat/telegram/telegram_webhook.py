"""A webhook: Telegram sends updates to gpuwatch's web server; one of several daemons, by lease, carries them out.

An update is stored before it is confirmed, whichever daemon receives it. The holder of the lease sets the webhook,
checks it, and carries out stored updates; the others answer presses in time and leave the rest to the holder.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import msgspec

from gpuwatch.chat.telegram.poller import LEASED_ELSEWHERE_S, POLLER_LEASE_S, REFUSED_S, ChatFaults
from gpuwatch.chat.telegram.receiver import INTERRUPTED_FOR, UpdateReceiver
from gpuwatch.chat.telegram.updates import KINDS, read_updates
from gpuwatch.notifiers.telegram.bot_api import BotApi, read_webhook_info
from gpuwatch.storage.alerts.chat_inbox import ChatInbox

log = logging.getLogger(__name__)

SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 the header's name (core.telegram.org/bots/api#setwebhook)
_RENEW = timedelta(seconds=10)
_POLL_STORED_S = 1.0  # for updates stored by another daemon; its own are carried out at once
_CHECK_S = 60.0
_CALL_S = 10.0
_CONNECTIONS = 4  # concurrent ones from Telegram: each is answered within milliseconds


class WebhookTarget(msgspec.Struct, frozen=True):
    """Where Telegram sends updates: an address of this server, and a secret in each request."""

    address: str
    secret: str


class WebhookIntake:
    """Accepts one bot's updates until it is stopped."""

    def __init__(
        self,
        api: BotApi,
        inbox: ChatInbox,
        receiver: UpdateReceiver,
        clock: Callable[[], datetime],
        stopping: threading.Event,
        target: WebhookTarget,
    ) -> None:
        self.path = api.webhook_path
        self.host = (urlsplit(target.address).hostname or "").lower()
        self._api = api
        self._inbox = inbox
        self._receiver = receiver
        self._clock = clock
        self._stopping = stopping
        self._address = target.address
        self._secret = target.secret
        self._has_updates = threading.Event()
        self._leased_at: datetime | None = None
        self._is_set = False
        self._next_check_at = clock()  # next query about the webhook
        self._in_progress_ids: frozenset[int] = frozenset()  # unfinished updates that are being carried out here
        self._faults = ChatFaults("the Telegram webhook works again")

    # --- the web server's threads -----------------------------------------------------------------------------------

    def is_genuine(self, headers: Mapping[str, str]) -> bool:
        """Whether the request contains the secret."""
        return hmac.compare_digest(headers.get(SECRET_HEADER, "").encode(), self._secret.encode())

    def receive(self, body: bytes) -> None:
        """Store one update; other kinds, and those of unauthorised people, are skipped.

        Raises:
            ValueError: it is not an update.
            StoreError: it was not stored; Telegram sends it again.
        """
        read = read_updates(b"[" + body + b"]")
        if read.unread or read.next_id is None:
            log.warning("skipped a Telegram update that could not be parsed")
            return
        accepted = [received for update in read.updates if (received := self._receiver.accepted(update)) is not None]
        stored = {
            stored_update.update_id: stored_update
            for stored_update in self._inbox.store(accepted, read.next_id, self._clock())
        }
        for update in accepted:
            new = stored.get(update.update_id)
            if new is None:
                self._receiver.forget(update.update_id)
            elif new.is_again:
                self._receiver.carry_out(new)
            elif self._leased_at is None:
                self._receiver.leave(update.update_id)
        self._has_updates.set()

    # --- its own thread ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Carry out updates until stopped."""
        while not self._stopping.is_set():
            self._has_updates.wait(self._faults.wait_after(self.poll))
            self._has_updates.clear()

    def stop(self) -> None:
        """Let `run` return."""
        self._stopping.set()
        self._has_updates.set()

    def poll(self) -> float:
        """Carry out stored updates if this daemon has the lease; return the seconds to wait. Raises StoreError."""
        now = self._clock()
        if not self._holds_lease(now):
            return LEASED_ELSEWHERE_S
        unfinished = self._inbox.unfinished(now - INTERRUPTED_FOR)
        for update in unfinished:
            if update.update_id not in self._in_progress_ids:
                self._receiver.carry_out(update)
        self._in_progress_ids = frozenset(update.update_id for update in unfinished)
        if not now < self._next_check_at <= now + timedelta(seconds=REFUSED_S):
            self._next_check_at = now + timedelta(seconds=self._check() if self._is_set else self._set())
        return _POLL_STORED_S

    def _holds_lease(self, now: datetime) -> bool:
        if self._leased_at is not None and abs(now - self._leased_at) < _RENEW:
            return True
        if self._inbox.lease(now, POLLER_LEASE_S) is None:
            self._leased_at = None
            self._faults.report("another gpuwatch on this database processes the chat")
            return False
        if self._leased_at is None:
            self._next_check_at, self._is_set = now, False
            self._in_progress_ids = frozenset()
            self._receiver.show_menu()
        self._leased_at = now
        return True

    def _set(self) -> float:
        """Set the webhook; return the seconds until it is checked."""
        request = {
            "url": self._address,
            "secret_token": self._secret,
            "allowed_updates": KINDS,
            "max_connections": _CONNECTIONS,
        }
        reply = self._api.call("setWebhook", request, _CALL_S)
        self._is_set = reply.ok
        if reply.ok:
            self._faults.recovered()
            log.info("Telegram sends updates to %s", self._address)
            return _CHECK_S
        wait_s = self._faults.failed(f"Telegram does not accept the webhook {self._address} ({reply.text})")
        if reply.status in {401, 403, 404}:
            return REFUSED_S
        return max(wait_s, reply.retry_after_s or 0.0)

    def _check(self) -> float:
        webhook = read_webhook_info(self._api, _CALL_S)
        if webhook is None:
            return _CHECK_S
        if webhook.url != self._address:
            self._faults.report("another program changed the bot's webhook; setting it again")
            return self._set()
        failed_s = self._clock().timestamp() - webhook.last_error_date
        if webhook.last_error_message and failed_s < _CHECK_S:
            self._faults.report(f"Telegram cannot deliver updates to {self._address} ({webhook.last_error_message})")
        elif not webhook.pending_update_count:
            self._faults.recovered()
        return _CHECK_S
