"""Maps an answer other than 2xx to an error, by its status and common words. Pure.

A provider with special errors passes its own `ReadErrorMapper` and `OrderErrorMapper` to `ApiClient`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.offer import clean
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
    RateLimited,
    RefusalKind,
)
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.validation import UNREADABLE, number
from gpuwatch.redaction import redact

_MAX_SENTENCE_LENGTH: Final = 160
_MAX_TEXT_LENGTH: Final = 4_000  # characters: more than is shown, so that a key is redacted before the text is cut
_WAIT_MIN_S: Final = 1.0
_WAIT_MAX_S: Final = 3600.0
_CONTAINER_FIELDS: Final = ("error", "errors", "detail", "extensions")
_SENTENCE_FIELDS: Final = ("message", "detail", "msg", "error", "title", "suggestion")


class ErrorBody(msgspec.Struct, frozen=True):
    """The error in an answer: code and sentence; `text` contains both in lower case, for searching."""

    status: int
    code: str
    sentence: str
    text: str
    value: Any  # the decoded body; None: not JSON

    @property
    def summary(self) -> str:
        """Status and sentence for display, redacted, on one line."""
        return f"{self.status} {self.sentence}".strip()

    def has(self, *words: str) -> bool:
        """Return whether the text contains one of these words (in lower case)."""
        return any(word in self.text for word in words)


class InstanceNotFound(ProviderError):
    """The provider itself states that the instance does not exist; a proxy's 404 does not prove that."""


class InstanceGone(OfferGone):
    """Like `InstanceNotFound`, for a request that changes something."""


class NoSuchObject(OrderRefused):
    """Something that the request names does not exist: nothing is left to end, and an order must name something else.

    For a provider whose error does not say what it is: the instance, an SSH key, an image.
    """


ReadErrorMapper = Callable[[str, ErrorBody, HttpReply, datetime], ProviderError]
OrderErrorMapper = Callable[[str, ErrorBody, HttpReply, datetime], OrderError]


def read_error_body(reply: HttpReply) -> ErrorBody:
    """Parse the error in an answer; never fails.

    Reads objects with `error`, `message`, `detail`, `title` or `errors`, one level deep, lists of them, and plain text.
    """
    try:
        value = msgspec.json.decode(reply.body)
    except UNREADABLE:
        value = None
    if value is None:
        text = "" if b"<" in reply.body[:200] else reply.body[:_MAX_TEXT_LENGTH].decode("utf-8", "replace")
        return ErrorBody(reply.status, "", display_sentence(text or "an answer that is not JSON"), text.lower(), None)
    found = list(_objects(value))
    code = next((str(one["code"]) for one in found if isinstance(one.get("code"), str | int)), "")[:120]
    sentences = [one[key] for one in found for key in _SENTENCE_FIELDS if isinstance(one.get(key), str)]
    sentence = " ".join(dict.fromkeys(sentences))[:_MAX_TEXT_LENGTH]
    return ErrorBody(
        reply.status,
        code,
        display_sentence(sentence or code or "an answer without a message"),
        f"{code} {sentence}".lower(),
        value,
    )


def reading_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> ProviderError:
    """Map the status to the error of a request that only reads (a search, a list)."""
    line = f"{name}: {body.summary}"
    if reply.status == 429:
        return RateLimited(line, retry_after_s(reply, now))
    if reply.status in (401, 403):
        return KeyRejected(line)
    if reply.status >= 500 or reply.status == 408:
        return ProviderDown(line)
    if 300 <= reply.status < 400:
        return ProviderMoved(f"{name}: {reply.status}, a redirect, not followed; check `base_url`")
    return PayloadChanged(line)


def ordering_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError:
    """Map the status to the error of a create, change or destroy: a plain refusal proves that nothing was done."""
    line = f"{name}: {body.summary}"
    if reply.status in (301, 307, 308):
        return OrderRefused(f"{name}: {reply.status}, a redirect, not followed; check `base_url`")
    if not 400 <= reply.status < 500 or reply.status == 408:
        return OutcomeUnknown(line)
    if reply.status == 429:
        return OrderRateLimited(line, retry_after_s(reply, now))
    if reply.status in (401, 403):
        return OrderRefused(line, RefusalKind.KEY)
    if reply.status == 402:
        return OrderRefused(line, RefusalKind.NO_CREDIT)
    return OrderRefused(line, RefusalKind.BAD_ORDER if reply.status in (400, 422) else RefusalKind.OTHER)


def retry_after_s(reply: HttpReply, now: datetime) -> float | None:
    """Return the Retry-After seconds, clamped to 1 second and 1 hour; None: there is no such header."""
    value = reply.headers.get("retry-after")
    seconds = number(value)
    if seconds is None and value is not None:
        seconds = _seconds_until(value, now)
    return None if seconds is None else min(max(seconds, _WAIT_MIN_S), _WAIT_MAX_S)


def _seconds_until(date: str, now: datetime) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 6 ms, and few servers send a date

    try:
        timestamp = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    return ((timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)) - now).total_seconds()


def _objects(value: Any, depth: int = 0) -> Sequence[Mapping[str, Any]]:
    """Yield the objects of an answer that may hold a message, outermost first."""
    if isinstance(value, list):
        return [found for one in value[:5] for found in _objects(one, depth)]
    if not isinstance(value, dict):
        return []
    nested = [value[key] for key in _CONTAINER_FIELDS if isinstance(value.get(key), dict | list)]
    return [value, *(found for one in nested for found in _objects(one, depth + 1))] if depth < 3 else [value]


def display_sentence(sentence: str, max_length: int = _MAX_SENTENCE_LENGTH) -> str:
    """Return a sentence for display, on one line. Redacts before it cuts: half a key is no longer a known secret."""
    return clean(redact(" ".join(sentence.split())), max_length)
