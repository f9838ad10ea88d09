"""Maps RunPod's answers to errors. Pure.

"No capacity" has no code of its own: it is a 400 with a sentence, and was a 500 in the API before. So a 400 that does
not blame the order means "not this offer", and the next candidate is tried.
source: REST v2 specification 2.0.0, the vendor's migration notes (texts seen live 2026-08-18), recorded answers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

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
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.runpod.quota import parse_windows
from gpuwatch.providers.toolkit.error_mapping import ErrorBody
from gpuwatch.providers.toolkit.error_mapping import ordering_error as plain_ordering_error
from gpuwatch.providers.toolkit.error_mapping import reading_error as plain_reading_error
from gpuwatch.providers.toolkit.error_mapping import retry_after_s as header_wait_s
from gpuwatch.providers.toolkit.validation import objects, word
from gpuwatch.redaction import redact

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
_EDGE_MARKS: Final = (b"error code: 1010", b"Error 1010", b"cloudflare")
_LINES: Final = 3
_LINE_LENGTH: Final = 120


class PodGone(OrderRefused):
    """The API itself states that the pod does not exist."""


class NoSuchPod(ProviderError):
    """Like `PodGone`, for a request that only reads; a proxy's 404 does not have the API's body."""


def reading_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> ProviderError:
    """Map the error of a request that only reads."""
    line = _line(name, body)
    if reply.status == 429:
        return RateLimited(line, wait_s(reply, now))
    if reply.status == 403 and any(mark in reply.body[:4_000] for mark in _EDGE_MARKS):
        return ProviderDown(f"{name}: 403, rejected at the provider's edge before the key was checked")
    if reply.status == 404 and isinstance(body.value, dict) and body.value.get("status") == 404:
        return NoSuchPod(line)
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
    if reply.status == 404 and body.value is not None:
        return PodGone(line)
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
