"""The HTTP client of RunPod: REST v2 under `/v2`, and GraphQL. Only v2 has a quota; every v2 request counts.

The quota is in the headers `RateLimit` and `Retry-After` of its answers: `RateLimit: "minute";r=12;t=30,
"hour";r=2800;t=1812`, where r is the remaining number and t the seconds until the window resets.
"No capacity" has no code of its own: it is a 400 with a sentence, and was a 500 in the API before. So a 400 that does
not blame the order means "not this offer", and the next candidate is tried.
source: REST v2 specification 2.0.0, the vendor's migration notes (texts seen live 2026-08-18), recorded answers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
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
    RateLimited,
    RefusalKind,
)
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.error_mapping import ErrorBody, InstanceNotFound, NoSuchObject
from gpuwatch.providers.toolkit.error_mapping import ordering_error as plain_ordering_error
from gpuwatch.providers.toolkit.error_mapping import reading_error as plain_reading_error
from gpuwatch.providers.toolkit.error_mapping import retry_after_s as header_wait_s
from gpuwatch.providers.toolkit.rate_limiter import WaitStopped
from gpuwatch.providers.toolkit.validation import number, objects, word
from gpuwatch.redaction import redact

RESERVED: Final = 5  # of each window, for orders and lists: searches never take the last ones
_MEMBER: Final = re.compile(r'"([a-z]{1,16})"((?:;[a-z]{1,4}=[0-9]{1,9}){1,6})')
_HEADER_MAX: Final = 1_000
_WAIT_MAX_S: Final = 86_400.0


class _Window(msgspec.Struct):
    remaining: float
    resets_at_s: float  # monotonic


def parse_windows(header: str | None) -> dict[str, tuple[int, int]]:
    """Parse name → (remaining, seconds until the reset); skips unreadable members."""
    found = {}
    for name, parameters in _MEMBER.findall((header or "")[:_HEADER_MAX]):
        values = dict(part.split("=") for part in parameters.strip(";").split(";"))
        if "r" in values and "t" in values:
            found[name] = int(values["r"]), int(values["t"])
    return found


class Quota:
    """The remaining requests of each window. Before the first answer there is no limit."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._windows: dict[str, _Window] = {}

    def on_reply(self, status: int, headers: Mapping[str, str]) -> None:
        """Record the quota in an answer. A 429 without an empty window closes all of them for `Retry-After`."""
        windows = parse_windows(headers.get("ratelimit"))
        with self._lock:
            now = self._monotonic()
            for name, (remaining, seconds) in windows.items():
                self._windows[name] = _Window(remaining, now + min(seconds, _WAIT_MAX_S))
            if status == 429 and all(remaining > 0 for remaining, _ in windows.values()):
                wait_s = number(headers.get("retry-after"), 0.0, _WAIT_MAX_S) or 1.0
                self._windows["asked to wait"] = _Window(0, now + wait_s)

    def take(self, urgent: bool) -> float:
        """Take one request out of every window, or return the seconds to wait before the next try."""
        reserved = 0 if urgent else RESERVED
        with self._lock:
            now = self._monotonic()
            for name in [name for name, window in self._windows.items() if window.resets_at_s <= now]:
                del self._windows[name]  # reset; the next answer states the new number
            waits_s = [window.resets_at_s - now for window in self._windows.values() if window.remaining <= reserved]
            if not waits_s:
                for window in self._windows.values():
                    window.remaining -= 1
            return max(waits_s, default=0.0)


# Sentences that mean that nothing was created, whatever the status. source: recorded, versions 1 and 2 of the API
NO_CAPACITY: Final = (
    "no longer any instances available",
    "no instances currently available",
    "does not have the resources to deploy your pod",
    "could not find any pods with required specifications",
)
_BAD_ORDER: Final = ("not found on the registry", "extra input keys", "mutually exclusive", "exclude each other")
_NO_CREDIT: Final = (
    "account balance", "balance is too low", "balance too low", "insufficient balance", "insufficient funds",
    "not enough credit", "spend limit",
)  # fmt: skip
_V1_NOT_FOUND: Final = "pod not found"  # the whole body of the former API's 404
_EDGE_MARKS: Final = (b"error code: 1010", b"Error 1010", b"cloudflare")
_LINES: Final = 3
_LINE_LENGTH: Final = 120


def _is_from_api(body: ErrorBody) -> bool:
    """Whether an error has the API's own body, which states its status; a proxy's has not."""
    return isinstance(body.value, dict) and body.value.get("status") == body.status


def reading_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> ProviderError:
    """Map the error of a request that only reads."""
    line = _line(name, body)
    if reply.status == 429:
        return RateLimited(line, wait_s(reply, now))
    if reply.status == 403 and any(mark in reply.body[:4_000] for mark in _EDGE_MARKS):
        return ProviderDown(f"{name}: 403, rejected at the provider's edge before the key was checked")
    if reply.status == 404 and _is_from_api(body):
        return InstanceNotFound(line)
    if reply.status == 401:
        return KeyRejected(f"{line} (the key is missing, wrong or expired)")
    if reply.status == 403:
        return KeyRejected(f"{line} (the key lacks the permission)")
    return plain_reading_error(name, body, reply, now)


def ordering_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError:
    """Map the error of a create. A plain refusal proves that nothing was created."""
    line = _line(name, body)
    if body.has(*NO_CAPACITY) and reply.status >= 400:
        return OfferGone(line)
    if reply.status == 429:
        return OrderRateLimited(line, wait_s(reply, now))
    if reply.status == 422:
        return OrderRefused(line, RefusalKind.BAD_ORDER)
    if reply.status == 404 and (_is_from_api(body) or body.has(_V1_NOT_FOUND)):
        return NoSuchObject(line)
    if reply.status == 400:
        return _bad_request(line, body)
    if reply.status == 408 or reply.status >= 500:
        return OutcomeUnknown(f"{line}: it may have been created")
    return plain_ordering_error(name, body, reply, now)


def _bad_request(line: str, body: ErrorBody) -> OrderError:
    if body.has(*_NO_CREDIT):
        return OrderRefused(line, RefusalKind.NO_CREDIT)
    return OrderRefused(line, RefusalKind.BAD_ORDER) if body.has(*_BAD_ORDER) else OfferGone(line)


def wait_s(reply: HttpReply, now: datetime) -> float | None:
    """Return the wait after a 429: `Retry-After`, or until the used-up windows reset."""
    header_s = header_wait_s(reply, now)
    if header_s is not None:
        return header_s
    return max(
        (
            float(reset_s)
            for remaining, reset_s in parse_windows(reply.headers.get("ratelimit")).values()
            if remaining <= 0
        ),
        default=None,
    )


def graphql_data(value: Any, name: str) -> Any:
    """Return the `data` of a GraphQL answer, which reports failures as `errors` in a 200.

    Raises:
        KeyRejected, PayloadChanged: there is no data.
    """
    errors = objects(value.get("errors")) if isinstance(value, dict) else []
    if errors:
        message = errors[0].get("message")
        sentence = (word(redact(message), 160) if isinstance(message, str) else None) or "an error without a message"
        line = f"{name}: GraphQL: {sentence}"
        if any(mark in sentence.lower() for mark in ("unauthorized", "not authenticated", "not authorized", "api key")):
            raise KeyRejected(line)
        raise PayloadChanged(line)
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, dict):
        raise PayloadChanged(f"{name}: GraphQL: the answer has no data")
    return data


def _line(name: str, body: ErrorBody) -> str:
    """Return status, sentence, and the message in `errors` about each wrong field."""
    value = body.value.get("errors") if isinstance(body.value, dict) else None
    rows = [one for one in (value if isinstance(value, list) else [])[:_LINES] if isinstance(one, str)]
    lines = [text for row in rows if (text := word(redact(row), _LINE_LENGTH))]
    return f"{name}: {body.summary}" + (f" ({'; '.join(lines)})" if lines else "")


GRAPHQL: Final = "graphql"  # a class of requests that has no quota
_MAX_WAIT_S: Final = 60.0  # maximum wait for a quota window; a longer wait is reported as an error
_URGENT_KINDS: Final = frozenset({"list", "order"})


class RunpodClient(ApiClient):
    """One account at RunPod: its address, key, rate limit and quota."""

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools, reading=reading_error, ordering=ordering_error)
        self._quota = Quota(tools.monotonic)

    def acquire(self, kind: str, urgent: bool = False) -> None:
        """Wait for the rate limit, and until the quota allows one more request.

        Raises:
            WaitStopped: gpuwatch is stopping.
            RateLimited: the quota is used up for longer than a minute.
        """
        super().acquire(kind, urgent)
        waited_s = 0.0
        while kind != GRAPHQL and (remaining_s := self._quota.take(kind in _URGENT_KINDS)) > 0:
            if waited_s + remaining_s > _MAX_WAIT_S:
                raise RateLimited(f"{self.name}: its quota of requests is used up for {remaining_s:.0f} s", remaining_s)
            self.tools.sleep(remaining_s)
            waited_s += remaining_s
            if self.tools.stop.is_set():
                raise WaitStopped

    def on_reply(self, reply: HttpReply, kind: str) -> None:
        """Read the remaining quota from the headers, which every v2 answer has."""
        if kind != GRAPHQL:
            self._quota.on_reply(reply.status, reply.headers)

    def order(
        self, method: str, path: str, body: object = None, *, kind: str = "order", deadline_s: float | None = None
    ) -> HttpReply:
        """Like `ApiClient.order`; sends nothing if the quota is used up. Raises OrderError."""
        try:
            return super().order(method, path, body, kind=kind, deadline_s=deadline_s)
        except RateLimited as error:
            raise OrderRateLimited(f"{error}; nothing was sent", error.retry_after_s) from error

    def graphql(self, query: str) -> Any:
        """Return the decoded answer to a GraphQL query. Raises ProviderError."""
        return self.query("/graphql", {"query": query}, kind=GRAPHQL)
