"""The HTTP client of vast.ai: its rate limits, and its answers other than 200 as errors.

Bodies are `{"success": false, "error": code, "msg": sentence}` with parts missing, plain text, or a page of the edge;
a wrong key is 401, 403 or 404; "too many requests" comes in five shapes.
source: the vendor's documents and client 1.9, and public logs, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from gpuwatch.errors import (
    KeyRejected,
    OfferGone,
    OrderError,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderDown,
    ProviderError,
    ProviderMoved,
    QuotaSpent,
    RateLimited,
    RefusalKind,
)
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.error_mapping import ErrorBody, display_sentence
from gpuwatch.providers.toolkit.error_mapping import retry_after_s as header_wait_s
from gpuwatch.providers.toolkit.validation import UNREADABLE, number

_WAIT_MIN_S: Final = 1.0
_WAIT_MAX_S: Final = 3600.0
_THRESHOLD: Final = re.compile(r"threshold\s*=\s*(\d+(?:\.\d+)?)(?:\s*\*\s*(\d+(?:\.\d+)?))?")
_KEY_WORDS: Final = ("auth_error", "invalid user key", "requires login", "not_authorized", "invalid api key")
_REDIRECTS: Final = frozenset({301, 307, 308})  # not carried out; 302 and 303 may follow a change
_QUOTA: Final = "search_quota_exceeded"


class VastErrorBody(ErrorBody, frozen=True):
    """The error in an answer, in vast.ai's formats; `value` is an object."""

    @property
    def is_key_error(self) -> bool:
        """Whether the key is the problem, whatever the status: "404 Invalid user key" is not "not found"."""
        return self.status == 401 or (self.status in (400, 403, 404) and self.has(*_KEY_WORDS))


def read_error_body(reply: HttpReply) -> VastErrorBody:
    """Parse the error in an answer; never fails."""
    try:
        value = msgspec.json.decode(reply.body)
    except UNREADABLE:
        value = None
    if not isinstance(value, dict):
        sentence = "" if b"<" in reply.body[:200] else reply.body[:400].decode("utf-8", "replace")
        return VastErrorBody(
            reply.status, "", display_sentence(sentence or "an answer that is not JSON"), sentence.lower(), {}
        )
    error = value.get("error")
    code = error if isinstance(error, str) else ""
    sentences = [value.get(name) for name in ("msg", "message", "detail")]
    sentence = " ".join(part for part in sentences if isinstance(part, str))[:400]
    return VastErrorBody(
        reply.status, code[:80], display_sentence(sentence or code), f"{code} {sentence}".lower(), value
    )


def reading_error(name: str, _: ErrorBody, reply: HttpReply, now: datetime) -> ProviderError:
    """Map the answer to the error of a request that only reads (a search, a list)."""
    refusal = read_error_body(reply)
    sentences = f"vastai: {refusal.summary}"
    if reply.status == 429:
        if _QUOTA in refusal.text:
            return QuotaSpent(sentences, quota_resets_at(reply, refusal, now))
        return RateLimited(sentences, retry_after_s(reply, refusal, now))
    if refusal.is_key_error:
        return KeyRejected(sentences)
    if reply.status >= 500 or reply.status == 408:
        return ProviderDown(sentences)
    if 300 <= reply.status < 400:
        return ProviderMoved(f"vastai: {reply.status}, a redirect, not followed; check `base_url`")
    if 200 <= reply.status < 300:
        return PayloadChanged(f"{sentences}: an unexpected answer")
    return KeyRejected(sentences) if reply.status == 403 else PayloadChanged(sentences)


def ordering_error(reply: HttpReply, now: datetime) -> OrderError:
    """Map the answer to the error of an order; only a plain refusal proves that nothing was created."""
    refusal = read_error_body(reply)
    sentences = f"vastai: {refusal.summary}"
    if reply.status in _REDIRECTS:
        return OrderRefused(f"vastai: {reply.status}, a redirect, not followed; check `base_url`")
    if not 400 <= reply.status < 500 or reply.status == 408:
        return OutcomeUnknown(sentences)
    if reply.status == 429:
        return OrderRateLimited(sentences, retry_after_s(reply, refusal, now))
    if refusal.is_key_error:
        return OrderRefused(sentences, RefusalKind.KEY)
    if "insufficient_credit" in refusal.text or "missing_billing" in refusal.text or "lack credit" in refusal.text:
        return OrderRefused(sentences, RefusalKind.NO_CREDIT)
    if reply.status in (404, 410) or "no_such_ask" in refusal.text:
        return OfferGone(sentences)
    if "invalid_price" in refusal.text or "bid price" in refusal.text:
        return OrderRefused(sentences, RefusalKind.BID_TOO_LOW)
    return OrderRefused(sentences, RefusalKind.BAD_ORDER if reply.status == 400 else RefusalKind.OTHER)


def retry_after_s(reply: HttpReply, refusal: VastErrorBody, now: datetime) -> float | None:
    """Return the seconds to wait, clamped to 1 second and 1 hour; None: the answer does not say."""
    for seconds in (header_wait_s(reply, now), number(refusal.value.get("retry_after"))):
        if seconds is not None:
            return min(max(seconds, _WAIT_MIN_S), _WAIT_MAX_S)
    found = _THRESHOLD.search(refusal.text)  # seconds between two calls, not calls per second
    if found:
        return min(max(float(found[1]) * float(found[2] or 1), _WAIT_MIN_S), _WAIT_MAX_S)
    return None


def quota_resets_at(reply: HttpReply, refusal: VastErrorBody, now: datetime) -> datetime:
    """Return when the row quota resets: as the answer states if that is within a day, else the next 00:00 UTC."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    unix_s = number(reply.headers.get("x-ratelimit-reset"))
    wait_s = number(refusal.value.get("retry_after"))
    earliest, latest = now, now + timedelta(days=1, minutes=5)
    for candidate in (
        datetime.fromtimestamp(unix_s, UTC) if unix_s is not None and 0 < unix_s < 4e9 else None,
        now + timedelta(seconds=wait_s) if wait_s is not None and 0 < wait_s < 2e5 else None,
    ):
        if candidate is not None and earliest < candidate <= latest:
            return candidate
    return midnight


# Seconds between two requests of a class; the interval of searches is a setting.
# source: the vendor's generated specification (x-rateLimit), 2026-08
INTERVALS_S: Final[Mapping[str, float]] = {
    "instances": 1.0, "instance": 2.0, "create": 4.5, "destroy": 3.0, "label": 1.0, "state": 1.0, "user": 1.0,
    "bid": 5.5, "charges": 1.0, "increases": 2.0, "accept": 2.0, "reject": 2.0,
}  # fmt: skip

SEARCH_PATH: Final = "/api/v0/bundles/"
_SMALL_BYTES: Final = 2**20


class VastClient(ApiClient):
    """The client of one `[providers.vastai]`."""

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools, intervals_s=INTERVALS_S, reading=reading_error)

    def request(
        self, method: str, path: str, *, kind: str = "search", urgent: bool = False, **options: Any
    ) -> HttpReply:
        """Like `ApiClient.request`; answers other than searches are small."""
        return super().request(method, path, kind=kind, urgent=urgent, **({"max_bytes": _SMALL_BYTES} | options))
