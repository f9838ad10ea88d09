"""Verda's HTTP client: an id and a secret get a token for an hour, which authenticates every other request."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any, Final

from gpuwatch.errors import KeyRejected, OfferGone, OrderError, OrderRefused, PayloadChanged, ProviderError, RefusalKind
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.api_launcher import ordering_errors, reading_errors
from gpuwatch.providers.toolkit.error_mapping import ErrorBody, ordering_error
from gpuwatch.providers.toolkit.validation import at, decode_json, number
from gpuwatch.redaction import register_secret

PROVIDER: Final = "verda"
_TOKEN_PATH: Final = "/oauth2/token"  # noqa: S105 a path
_RENEW_EARLY_S: Final = 60.0  # renew a token this long before it expires
_TOKEN_LENGTH: Final = 8_192
_NO_STOCK: Final = "not enough resources"
_NO_CREDIT: Final = "insufficient_funds"
_NOT_FOUND_MESSAGES: Final = ("invalid instance id", "can't discontinue a discontinued instance")


class VerdaClient(ApiClient):
    """The HTTP client of one account. It logs in before the first request, and again when the token is old."""

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools, headers={}, reading=list_error, ordering=order_error)
        self._credentials = {
            "grant_type": "client_credentials",
            "client_id": str(settings.options.get("client_id") or ""),
            "client_secret": settings.api_key or "",
        }
        self._token, self._valid_until_s = "", 0.0
        self._sign_in_lock = threading.Lock()  # searching and renting are two threads

    def request(self, method: str, path: str, **options: Any) -> HttpReply:
        """Like `ApiClient.request`, authenticated; replaces a token that is rejected early, once."""
        is_new_token = self._sign_in()
        try:
            return super().request(method, path, **options)
        except KeyRejected:
            if is_new_token:
                raise
            self._valid_until_s = 0.0
        self._sign_in()
        return super().request(method, path, **options)

    def send(self, method: str, path: str, body: object = None, **options: Any) -> HttpReply:
        """Like `ApiClient.send`, authenticated. Raises OrderRefused: NOT_SENT or KEY, there is no token."""
        try:
            self._sign_in()
        except KeyRejected as error:
            raise OrderRefused(f"{error}; nothing was sent", RefusalKind.KEY) from error
        except ProviderError as error:
            raise OrderRefused(f"{PROVIDER}: not sent, no token: {error}", RefusalKind.NOT_SENT) from error
        reply = super().send(method, path, body, **options)
        if reply.status == 401:
            self._valid_until_s = 0.0
        return reply

    def require_key(self) -> None:
        """Check both halves of the credentials, before a request. Raises KeyRejected."""
        super().require_key()
        if not self._credentials["client_id"]:
            raise KeyRejected(
                f'{PROVIDER}: the key is the secret only; add client_id = "…" to [providers.{PROVIDER}.options]'
            )

    def _sign_in(self) -> bool:
        """Get a token unless there is a valid one; return whether it is new. Raises ProviderError."""
        with self._sign_in_lock:
            now_s = self.tools.monotonic()
            if now_s < self._valid_until_s:
                return False
            self.require_key()
            reply = super().request("POST", _TOKEN_PATH, kind="token", json=self._credentials)
            value = decode_json(reply.body, PROVIDER)
            token, expires_in_s = at(value, "access_token"), number(at(value, "expires_in"), 1.0, 1e7)
            if not isinstance(token, str) or not 0 < len(token) <= _TOKEN_LENGTH or not _is_printable(token):
                raise PayloadChanged(f"{PROVIDER}: the login answer has no token")
            register_secret(token)
            self._headers = {"Authorization": f"Bearer {token}"}
            self._valid_until_s = now_s + max((expires_in_s or _RENEW_EARLY_S) - _RENEW_EARLY_S, 0.0)
            return True


def _map_order_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError:
    """Map the error of an order. A 503 means "no stock" only if its sentence says so."""
    line = f"{name}: {body.summary}"
    if reply.status in (400, 409, 503) and body.has(_NO_STOCK):
        return OfferGone(line)
    if 400 <= reply.status < 500 and body.code == _NO_CREDIT:
        return OrderRefused(line, RefusalKind.NO_CREDIT)
    return ordering_error(name, body, reply, now)


def _is_not_found(body: ErrorBody, reply: HttpReply) -> bool:
    return reply.status in (400, 404, 410) and isinstance(body.value, dict) and body.has(*_NOT_FOUND_MESSAGES)


list_error, order_error = reading_errors(_is_not_found), ordering_errors(_is_not_found, _map_order_error)


def _is_printable(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token
