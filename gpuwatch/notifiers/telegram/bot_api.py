"""Telegram's Bot API: calls one method once, and returns the answer (source: core.telegram.org/bots/api, 2026-11)."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from gpuwatch.ports.alerts import ButtonRows
from gpuwatch.ports.http import NetError
from gpuwatch.ports.settings import parse_url
from gpuwatch.redaction import redact, register_secret

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient, HttpReply


BASE_URL = "https://api.telegram.org"
_MAX_BYTES = 1_000_000
_NO_RESULT = msgspec.Raw(b"null")
_BOUNDARY = "gpuwatch-8f14e45fceea167a5a36dedd4bea2543"  # occurs in no picture and none of our texts


class _Parameters(msgspec.Struct):
    migrate_to_chat_id: int | None = None
    retry_after: float | None = None


class _Answer(msgspec.Struct):
    ok: bool = False
    description: str = ""
    parameters: _Parameters | None = None
    result: msgspec.Raw = _NO_RESULT


class BotApiReply(msgspec.Struct, frozen=True, kw_only=True):
    """Telegram's answer, of any kind.

    Attributes:
        status: of HTTP; 0: there was no answer, and `description` gives the reason.
        result: JSON, if `ok`.
        retry_after_s: how long to wait before the next request.
        moved_to: the chat's new id.
    """

    status: int
    ok: bool
    description: str
    result: msgspec.Raw = _NO_RESULT
    retry_after_s: float | None = None
    moved_to: str | None = None

    @property
    def text(self) -> str:
        """The error, in one redacted line."""
        return redact(f"telegram: {self.status or ''} {self.description}".replace("  ", " ").strip())[:300]


class _SentMessage(msgspec.Struct):
    message_id: int = 0


class BotApi:
    """One bot. Its token is in the address, so no error may contain the address."""

    def __init__(self, token: str, http: HttpClient, base_url: str = BASE_URL) -> None:
        register_secret(token)
        self._url = f"{base_url.rstrip('/')}/bot{token}/"
        self._http = http
        self.bot_id = _bot_id(token)

    @property
    def webhook_path(self) -> str:
        """The path at which gpuwatch accepts this bot's updates; it also identifies gpuwatch's own webhooks."""
        return f"/telegram/{self.bot_id}"

    def call(self, method: str, body: dict[str, object], deadline_s: float) -> BotApiReply:
        """Call a method once. A network error gives `status` 0 instead of an exception."""
        try:
            reply = self._http.ask("POST", self._url + method, json=body, deadline_s=deadline_s, max_bytes=_MAX_BYTES)
        except NetError as error:
            return BotApiReply(status=0, ok=False, description=str(error))
        return _parse_reply(reply)

    def send_photo(self, fields: dict[str, str], picture: bytes, deadline_s: float) -> BotApiReply:
        """Send a PNG. `fields`: the other parameters, such as `caption` and `reply_markup`."""
        parts = [
            f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
            for name, value in fields.items()
        ]
        photo_header = f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="photo"; filename="prices.png"\r\n'
        content = b"".join(
            [
                *parts,
                photo_header.encode(),
                b"content-type: image/png\r\n\r\n",
                picture,
                f"\r\n--{_BOUNDARY}--\r\n".encode(),
            ]
        )
        try:
            reply = self._http.ask(
                "POST",
                self._url + "sendPhoto",
                headers={"content-type": f"multipart/form-data; boundary={_BOUNDARY}"},
                content=content,
                deadline_s=deadline_s,
                max_bytes=_MAX_BYTES,
            )
        except NetError as error:
            return BotApiReply(status=0, ok=False, description=str(error))
        return _parse_reply(reply)


def _bot_id(token: str) -> str:
    """Return the bot's public id, or a digest of a token in another form."""
    number, separator, _ = token.partition(":")
    return number[:32] if separator and number.isdecimal() else sha256(token.encode()).hexdigest()[:12]


def keyboard(rows: ButtonRows) -> dict[str, object]:
    """Return an `InlineKeyboardMarkup`; without rows it removes the buttons of a message."""
    return {
        "inline_keyboard": [[{"text": button.label, "callback_data": button.data} for button in row] for row in rows]
    }


def message_id(reply: BotApiReply) -> int:
    """Return the id of the message that was sent; 0: unknown."""
    try:
        return msgspec.json.decode(reply.result, type=_SentMessage).message_id
    except msgspec.DecodeError:
        return 0


def _parse_reply(reply: HttpReply) -> BotApiReply:
    try:
        answer = msgspec.json.decode(reply.body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answer = _Answer(description="not an answer of Telegram")
    parameters = answer.parameters or _Parameters()
    moved_to = parameters.migrate_to_chat_id
    return BotApiReply(
        status=reply.status,
        ok=answer.ok and reply.status == 200,
        description=answer.description,
        result=answer.result,
        retry_after_s=_retry_after(reply, parameters),
        moved_to=None if moved_to is None else str(moved_to),
    )


def _retry_after(reply: HttpReply, parameters: _Parameters) -> float | None:
    if parameters.retry_after is not None:
        return parameters.retry_after
    header = reply.headers.get("retry-after", "")
    return float(header) if header.isdecimal() else None


# --- the bot's webhook as registered (source: core.telegram.org/bots/api#webhookinfo) ---------------------------------


PORTS = (443, 80, 88, 8443)  # Telegram accepts no others (source: core.telegram.org/bots/api#setwebhook)


class WebhookInfo(msgspec.Struct, frozen=True):
    """The address for updates; `url` is empty without a webhook.

    Attributes:
        last_error_date: time of the newest failed delivery, seconds since 1970; 0: none.
    """

    url: str = ""
    pending_update_count: int = 0
    last_error_date: int = 0
    last_error_message: str = ""


def read_webhook_info(api: BotApi, deadline_s: float = 5.0) -> WebhookInfo | None:
    """Return Telegram's information; None: unavailable."""
    reply = api.call("getWebhookInfo", {}, deadline_s)
    if not reply.ok:
        return None
    try:
        return msgspec.json.decode(reply.result, type=WebhookInfo)
    except msgspec.DecodeError:
        return None


def parse_webhook(value: object) -> str:
    """For `OptionSpec.parse`: the public address of gpuwatch's web server; empty: none. Raises ValueError."""
    if value == "":
        return ""
    address = parse_url(value)
    parts = urlsplit(address)
    if parts.scheme != "https" or (parts.port or 443) not in PORTS:
        raise ValueError(
            "expected the https:// address at which Telegram reaches gpuwatch's web server, with port "
            + ", ".join(map(str, PORTS[:-1]))
            + f" or {PORTS[-1]}"
        )
    return address
