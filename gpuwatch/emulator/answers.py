"""HTTP answers, and all refusals in the marketplace's own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the bytes are sent: only faults change it, never handlers."""

    delay_s: float = 0.0  # before the first byte
    drip_s: float = 0.0  # between small pieces of the body
    cut_at: int | None = None  # bytes of the body after which the connection ends
    reset: bool = False  # the connection is reset instead of an answer
    hold_s: float = 0.0  # the connection stays open and silent, then closes
    on_close: Callable[[], None] | None = None  # called when the silence ends, or the client gives up


@dataclass(frozen=True, slots=True)
class EmulatorReply:
    """One HTTP answer."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    delivery: Delivery = field(default_factory=Delivery)
    rows: int = 0  # offers in the body, which the daily quota counts

    def with_delivery(self, **changes: Any) -> EmulatorReply:
        """Return the same bytes with another delivery."""
        return replace(self, delivery=replace(self.delivery, **changes))


class RefusedRequest(Exception):
    """The marketplace refuses a request; contains the whole answer."""

    def __init__(self, reply: EmulatorReply) -> None:
        super().__init__(f"HTTP {reply.status}")
        self.reply = reply


def reply(
    body: Mapping[str, Any] | list[Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> EmulatorReply:
    """Encode an answer."""
    return EmulatorReply(status, msgspec.json.encode(body), headers=tuple((headers or {}).items()))


def text_reply(body: str, status: int, content_type: str = "text/plain") -> EmulatorReply:
    """Return an answer that is not JSON."""
    return EmulatorReply(status, body.encode(), content_type=content_type)


def refuse(status: int, error: str | None, msg: str, **more: Any) -> RefusedRequest:
    """Build a refusal in the usual envelope; `error=None` omits the code."""
    body: dict[str, Any] = {"success": False}
    if error is not None:
        body["error"] = error
    return RefusedRequest(reply(body | {"msg": msg} | more, status))


def bare_refusal(status: int, error: str, msg: str, **more: Any) -> RefusedRequest:
    """Build a refusal without `success`, as some endpoints send it."""
    return RefusedRequest(reply({"error": error, "msg": msg} | more, status))


def bad_query(msg: str) -> RefusedRequest:
    """400 of the search; only the sentence about a bare value has `success`."""
    if msg.startswith("Input should"):
        return refuse(400, "invalid_request", msg)
    return bare_refusal(400, "invalid_request", msg)


def bad_key(status: int) -> RefusedRequest:
    """The refusal of an unknown key: 401, 403 or 404, depending on the endpoint."""
    if status == 404:
        return bare_refusal(404, "auth_error", "Invalid user key")
    return refuse(status, "auth_error", "Invalid user key")


def no_key() -> RefusedRequest:
    """403 of everything but the search if no key is sent."""
    return refuse(403, "auth_error", "This action requires login.")


def offer_gone(ask_id: int, shape: str) -> RefusedRequest:
    """The offer no longer exists, in one of the four recorded shapes."""
    not_available = f"no_such_ask Instance type by id {ask_id} is not available."
    match shape:
        case "400":
            msg = f"error 404/3603: no_such_ask  Instance type by id {ask_id} is not available."
            return refuse(400, "invalid_args", msg, ask_id=ask_id)
        case "404":
            return refuse(404, "invalid_args", f"error 404/3603: {not_available}", ask_id=ask_id)
        case "404-spec":
            return refuse(404, "no_such_ask", f"No ask by id {ask_id} is available.")
        case "410":
            msg = f"error 410/3907: no_such_ask Instance type {ask_id} is no longer available."
            return refuse(410, "no_such_ask", msg, ask_id=ask_id)
        case _:
            raise ValueError(f"no such shape of a gone offer: {shape}")


def bad_create(ask_id: int | None, msg: str, error: str = "invalid_args") -> RefusedRequest:
    """400 of a create."""
    return refuse(400, error, msg, ask_id=ask_id)


def no_such_instance(contract: int) -> RefusedRequest:
    """404: destroyed, or it never existed."""
    return refuse(404, "no_such_instance", f"Instance {contract} not found.")


def moved_permanently(location: str) -> EmulatorReply:
    """301 of a path without its trailing slash; the body parses as JSON and looks harmless."""
    return reply({"message": "The resource has been moved"}, 301, {"Location": location})


def too_many_requests(shape: str, threshold_s: float, now: float) -> EmulatorReply:
    """429 for too frequent calls, in one of the recorded shapes."""
    threshold = f"{threshold_s:.1f}"
    match shape:
        case "text":
            return text_reply("API requests too frequent", 429)
        case "text-threshold":
            return text_reply(f"API requests too frequent: endpoint threshold={threshold}", 429)
        case "detail":
            return reply({"detail": f"API requests too frequent endpoint threshold={threshold}"}, 429)
        case "message":
            message = "The action could not be performed because there were too many requests by the client."
            message += f"\n\nAPI requests too frequent: endpoint threshold={threshold}*1.0\n\n"
            return reply({"message": message, "code": "429 Too Many Requests"}, 429)
        case "headers":
            return _with_headers(max(1, round(threshold_s)), now)
        case "rate_limit_exceeded":
            return refuse(429, "rate_limit_exceeded", "API requests too frequent").reply
        case _:
            raise ValueError(f"no such shape of 429: {shape}")


def _with_headers(wait_s: int, now: float) -> EmulatorReply:
    headers = {
        "Retry-After": str(wait_s),
        "X-RateLimit-Limit": "5",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": str(int(now) + wait_s),
    }
    body = {"error": "HTTPTooManyRequests", "msg": "API requests too frequent"}
    return reply(body | {"retry_after": wait_s, "limit": 5, "remaining": 0}, 429, headers)


def quota_exceeded(limit: int, now: float) -> EmulatorReply:
    """429 of the daily search quota, which resets at midnight UTC."""
    reset = (int(now) // 86_400 + 1) * 86_400
    body = {"error": "search_quota_exceeded", "msg": "Daily search quota exceeded", "limit": limit, "remaining": 0}
    return reply(body | {"retry_after": reset - int(now)}, 429, {"X-RateLimit-Reset": str(reset)})
