"""A bot's webhook as registered at Telegram (source: core.telegram.org/bots/api#webhookinfo)."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from gpuwatch.notifiers.telegram.bot_api import BotApi
from gpuwatch.ports.declarations import parse_url

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
