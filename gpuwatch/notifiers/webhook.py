"""A webhook: each event as signed JSON, to an address of the owner; docs/alerts.md describes the receiver."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from gpuwatch.domain.alerts.alert import event_json
from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.toolkit import CHECK_S, check_findings, cleaned
from gpuwatch.ports import Alert, ChannelSettings
from gpuwatch.ports.declarations import ChannelInfo, OptionSpec
from gpuwatch.ports.hooks import SIGNATURE_HEADER, TIMESTAMP_HEADER, signature
from gpuwatch.ports.http import NetError
from gpuwatch.ports.settings import parse_password
from gpuwatch.redaction import redact, register_secret

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient

_DEADLINE_S = 10.0
_MAX_RESPONSE_BYTES = 4096  # bytes of an error response that are read, for its last line
_SECRET_LENGTH = 16
# Statuses that require a change by the owner: the address, the receiver's access rules, or the secret.
_STATUS_GONE = 410
_REJECTED_STATUSES = frozenset({401, 403, 404, 405, _STATUS_GONE})
_GATEWAY_ERRORS = frozenset({502, 503, 504})


def _address(value: object) -> str:
    error = ValueError('expected an https:// address, such as "https://hooks.example.org/gpuwatch"')
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise error
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise error from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or parts.fragment:
        raise error
    return value


def _secret(value: object) -> str:
    text = parse_password(value)
    if len(text) < _SECRET_LENGTH:
        raise ValueError(f"expected at least {_SECRET_LENGTH} characters, such as the output of: openssl rand -hex 32")
    return text


INFO = ChannelInfo(
    name="webhook",
    title="Webhook",
    options=(
        OptionSpec(
            name="url",
            kind="text",
            about="Secret; http(s) URL that receives a POST for every event.",
            secret=True,
            needed=True,
            is_url=True,
            parse=_address,
        ),
        OptionSpec(
            name="secret",
            kind="text",
            about="Secret; signs the request so that the receiver can verify it. At least 16 characters.",
            secret=True,
            needed=True,
            parse=_secret,
        ),
    ),
    template='url = "https://hooks.example.org/gpuwatch"   # and the secret GPUWATCH_NOTIFY__WEBHOOK__SECRET\n',
    docs="alerts.md#webhook",
    doctor=lambda settings, http: check_findings("webhook", build(settings, http).check),
)


def build(settings: ChannelSettings, http: HttpClient) -> WebhookChannel:
    """Build the channel of `[notify.webhook]`."""
    options: dict[str, Any] = dict(settings.options)
    return WebhookChannel(WebhookSettings(**options), http)


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[notify.webhook]`. `url` may contain a token, so both are secrets."""

    url: str
    secret: str

    def __repr__(self) -> str:
        return f"WebhookSettings({urlsplit(self.url).hostname!r})"


class WebhookChannel:
    """One receiver. It receives one event at a time; events are never combined.

    Args:
        unix: returns the current time in seconds since 1970, which the receiver compares with its own clock.
    """

    name = "webhook"
    one_by_one = True

    def __init__(self, settings: WebhookSettings, http: HttpClient, *, unix: Callable[[], float] = time.time) -> None:
        path = settings.url.partition("?")[0]
        register_secret(settings.url, settings.secret, path)
        self._settings = settings
        self._host = urlsplit(settings.url).hostname
        self._http = http
        self._unix = unix

    def send(self, alert: Alert) -> None:
        """Deliver once: any 2xx is success; redirects are not followed.

        Raises:
            DeliverLater: no response (it may have arrived), or one that may change.
            DeliveryRefused: the address or the signature is rejected.
        """
        # a lone surrogate has no UTF-8 form: it is sent as "?"
        body = json.dumps(event_json(alert), ensure_ascii=False).encode("utf-8", "replace")
        timestamp = str(int(self._unix()))
        headers = {
            "Content-Type": "application/json",
            "X-Gpuwatch-Event": alert.kind.value,
            "X-Gpuwatch-Id": cleaned(alert.alert_id).encode("ascii", "replace").decode(),
            TIMESTAMP_HEADER: timestamp,
            SIGNATURE_HEADER: signature(self._settings.secret, timestamp, body),
        }
        status, message, retry_after = self._request("POST", _DEADLINE_S, headers, body)
        if 200 <= status < 300:
            return
        if 300 <= status < 400 or status in _REJECTED_STATUSES:
            raise DeliveryRefused(message)
        raise DeliverLater(message, _retry_after_s(retry_after, self._unix()))

    def check(self) -> str:
        """Check that anything answers there; sends no event. Raises DeliverLater, DeliveryRefused."""
        status, message, _ = self._request("HEAD", CHECK_S, {}, b"")
        if status in _GATEWAY_ERRORS:
            raise DeliverLater(message)
        if status == _STATUS_GONE:
            raise DeliveryRefused(message)
        return f"{self._host} answers"  # many receivers of POST return 404, 405 or 501 to a HEAD

    def _request(self, method: str, deadline_s: float, headers: dict[str, str], body: bytes) -> tuple[int, str, str]:
        """Return the status, a line about it, and the header Retry-After."""
        try:
            with self._http.stream(
                method, self._settings.url, headers=headers, content=body, deadline_s=deadline_s
            ) as response:
                if 200 <= response.status < 300:
                    return response.status, "", ""  # the body of a success is ignored
                lines = response.read(_MAX_RESPONSE_BYTES).decode("utf-8", "replace").strip().splitlines()
                retry_after = response.headers.get("retry-after", "")
        except NetError as error:
            reason = str(error).partition(": ")[2]  # the address precedes it
            raise DeliverLater(f"webhook: {self._host}: {redact(reason)}") from None
        redirect_note = "; redirects are not followed" if 300 <= response.status < 400 else ""
        last_line = f": {cleaned(lines[-1], 200)}" if lines else ""
        return (
            response.status,
            redact(f"webhook: {self._host} answered {response.status}{redirect_note}{last_line}"),
            retry_after,
        )


def _retry_after_s(header: str, now_unix: float) -> float | None:
    """Parse seconds from a number or a date; None: the header is neither."""
    if header.isdecimal():
        return float(header)
    try:
        return max(parsedate_to_datetime(header).timestamp() - now_unix, 0.0)
    except ValueError:
        return None
