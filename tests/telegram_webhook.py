"""Webhooks of the Bot API double: set and deleted as documented, and Telegram's requests.

Source: core.telegram.org/bots/api#setwebhook and #webhookinfo. Requests pass through a proxy that terminates TLS, as
docs/telegram.md requires.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from typing import Any
from urllib.parse import urlsplit

_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")

BOT = {"id": 8123456789, "is_bot": True, "first_name": "GPU watch", "username": "gpuwatch_test_bot"}


class Refused(Exception):
    """Telegram's text for a bad request."""


class WebhookSender:
    """Unconfirmed updates, and who gets them.

    Attributes:
        proxy_to: where the proxy of the webhook's address forwards requests: http://127.0.0.1:PORT.
        handed_over: the statuses of the webhook's answers.
    """

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.webhook = ""
        self.secret = ""
        self.proxy_to = ""
        self.handed_over: list[int] = []
        self.released = threading.Event()
        self.webhook_methods = {
            "getMe": lambda _request: dict(BOT),
            "getWebhookInfo": self._webhook_info,
            "setWebhook": self._set_webhook,
            "deleteWebhook": self._delete_webhook,
        }
        self._given_out_s: dict[str, float] = {}
        self._polls = 0
        self._came = threading.Condition()
        self._last_error = ""

    def _webhook_info(self, _request: dict[str, Any]) -> dict[str, Any]:
        info: dict[str, Any] = {
            "url": self.webhook,
            "has_custom_certificate": False,
            "pending_update_count": len(self.updates),
        }
        if self._last_error:
            info |= {"last_error_date": int(time.time()), "last_error_message": self._last_error}
        return info

    def _set_webhook(self, request: dict[str, Any]) -> bool:
        parts = urlsplit(request["url"])
        if parts.scheme != "https" or not parts.hostname:
            raise Refused("bad webhook: An HTTPS URL must be provided for webhook")
        if (parts.port or 443) not in {443, 80, 88, 8443}:
            raise Refused("bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443")
        if not _SECRET.fullmatch(request.get("secret_token", "x")):
            raise Refused("secret token contains illegal characters")
        assert 1 <= request.get("max_connections", 40) <= 100
        self.webhook, self.secret, self._last_error = request["url"], request.get("secret_token", ""), ""
        with self._came:
            self._polls += 1  # ends a getUpdates that waits
            self._came.notify_all()
        threading.Thread(target=self._hand_over, args=(self.webhook,), daemon=True).start()
        return True

    def _delete_webhook(self, _request: dict[str, Any]) -> bool:
        self.webhook = ""
        with self._came:
            self._came.notify_all()
        return True

    def _hand_over(self, url: str) -> None:
        """Act like Telegram while this webhook is set: send each update until it is accepted."""
        while self.webhook == url and not self.released.is_set():
            with self._came:
                self._came.wait_for(lambda: self.updates or self.webhook != url or self.released.is_set(), 0.2)
                found = self.updates[:1] if self.webhook == url else []
            for one in found:
                if "callback_query" in one:
                    self._given_out_s.setdefault(one["callback_query"]["id"], time.monotonic())
                status = self.hand_in(one)
                self.handed_over.append(status)
                if 200 <= status < 300:
                    self._last_error = ""
                    with self._came:
                        self.updates = [left for left in self.updates if left["update_id"] != one["update_id"]]
                else:
                    self._last_error = f"Wrong response from the webhook: {status}"
                    self.released.wait(0.2)

    def hand_in(self, update: Any, **headers: str) -> int:
        """Send one request to the webhook, through the proxy; return the status."""
        inside, outside = urlsplit(self.proxy_to), urlsplit(self.webhook)
        sent = {
            "Host": outside.netloc,
            "Content-Type": "application/json",
            "X-Telegram-Bot-Api-Secret-Token": self.secret,
            "X-Forwarded-For": "149.154.167.220",
            "X-Forwarded-Proto": "https",
        } | {name.replace("_", "-"): text for name, text in headers.items()}
        connection = http.client.HTTPConnection(inside.hostname or "", inside.port, timeout=60)  # what Telegram waits
        try:
            body = update if isinstance(update, bytes) else json.dumps(update).encode()
            connection.request("POST", outside.path, body, sent)
            return connection.getresponse().status
        except OSError:
            return 502
        finally:
            connection.close()
