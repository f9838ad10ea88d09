"""The Bot API in unit tests with respx: its documented answers, and messages as a reader sees them.

Its server on loopback is `tests/telegram_double.py`; both have the same failures and are as strict as Telegram.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import respx

from tests.telegram_double import TOKEN, Fault, Shown, refusal, shown_message

PATH = f"/bot{TOKEN}"
BASE_URL = "https://api.telegram.org"
API = BASE_URL + PATH
NO_ANSWER = (httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError)  # it may have arrived
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout)


def ok(result: Any = True) -> httpx.Response:
    return httpx.Response(200, json={"ok": True, "result": result})


def message(message_id: int = 1) -> httpx.Response:
    return ok({"message_id": message_id, "date": 1_795_262_400, "chat": {"id": -4001, "type": "group"}, "text": "…"})


def refused(fault: Fault) -> httpx.Response:
    return httpx.Response(fault.status, content=refusal(fault), headers=fault.headers)


def bodies(route: respx.Route) -> list[dict[str, Any]]:
    return [json.loads(call.request.content) for call in route.calls]


def shown(route: respx.Route) -> list[Shown]:
    """Return the messages that were sent to `sendMessage`; fails where Telegram would refuse one."""
    return [shown_message(body) for body in bodies(route)]
