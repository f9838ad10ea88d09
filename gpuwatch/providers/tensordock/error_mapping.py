"""Maps TensorDock's answers to errors: many errors come with HTTP 200. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from gpuwatch.errors import (
    KeyRejected,
    OfferGone,
    OrderError,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderDown,
    ProviderError,
    RefusalKind,
)
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit import error_mapping
from gpuwatch.providers.toolkit.error_mapping import ErrorBody, InstanceNotFound, NoSuchObject
from gpuwatch.providers.toolkit.validation import decode_json, whole

NAME: Final = "tensordock"
_NO_STATUS: Final = 0  # an error with HTTP 200 and without a status
# source: the log of one team's launches in 2026-02, and the tests of two public clients
_CAPACITY: Final = (
    "no available nodes found", "no available public ips", "hostnode unavailable", "insufficient capacity",
    "out of stock", "resource unavailable",
)  # fmt: skip
_UNKNOWN_OUTCOME: Final = ("unexpected error during deployment",)
# An error of a "load balancer" is not about the balance.
_BALANCE: Final = (
    "of balance", "your balance", "account balance", "insufficient balance", "insufficient funds", "balance too low",
    "balance is",
)  # fmt: skip
_KEY: Final = ("unauthorized", "unauthenticated", "forbidden", "invalid token", "api token", "api key")
_NOT_FOUND_MESSAGES: Final = ("not found", "already terminated", "already deleted")


class UnprovenNotFound(PayloadChanged):
    """A 404 that is not in TensorDock's own words: a web server's. It does not prove that there is no such machine."""


def status_of(reply: HttpReply, value: Any) -> int:
    """Return the status that an answer means: of HTTP, or of the body in a 2xx; 0: an error without a status."""
    if not 200 <= reply.status < 300:
        return reply.status
    if isinstance(value, list) and value and all(isinstance(one, dict) and "message" in one for one in value):
        return 400  # a failed validation, one object per fault
    if not isinstance(value, dict):
        return reply.status
    body = value.get("status")
    status = None if isinstance(body, str) else whole(body, 400, 599)  # an instance's own status is a word
    if status is not None:
        return status
    return _NO_STATUS if "data" not in value and "id" not in value and _has_error(value) else reply.status


def accepted_value(reply: HttpReply, now: datetime) -> Any:
    """Return the decoded JSON of a read's 2xx answer. Raises ProviderError: the answer contains an error."""
    value = decode_json(reply.body, NAME)
    if not 200 <= status_of(reply, value) < 300:
        raise reading(NAME, error_mapping.read_error_body(reply), reply, now)
    return value


def reading(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> ProviderError:
    """Map the error of a read."""
    status, body = _actual_status(reply, body)
    line = f"{name}: {body.summary}"
    if status == _NO_STATUS:
        return KeyRejected(line) if body.has(*_KEY) else ProviderDown(line)
    if status == 400 and isinstance(body.value, list) and reply.status < 300:
        return PayloadChanged(f"{name}: a list where an object was expected")
    if status == 404:
        is_stated = _has_error(body.value) and body.has(*_NOT_FOUND_MESSAGES)
        return InstanceNotFound(line) if is_stated else UnprovenNotFound(line)
    return error_mapping.reading_error(name, body, msgspec.structs.replace(reply, status=status), now)


def ordering(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError:
    """Map the error of an order. Only known messages prove that nothing was created."""
    status, body = _actual_status(reply, body)
    line = f"{name}: {body.summary}"
    if body.has(*_UNKNOWN_OUTCOME):
        return OutcomeUnknown(line)
    if _is_deleted(body, status):
        return NoSuchObject(line)
    if status == 410 or (status < 500 and body.has(*_CAPACITY)):
        return OfferGone(line)
    if status < 500 and status != 429 and body.has(*_BALANCE):
        return OrderRefused(line, RefusalKind.NO_CREDIT)
    if status == _NO_STATUS:
        return OrderRefused(line, RefusalKind.KEY) if body.has(*_KEY) else OutcomeUnknown(line)
    return error_mapping.ordering_error(name, body, msgspec.structs.replace(reply, status=status), now)


def _is_deleted(body: ErrorBody, status: int) -> bool:
    if not _has_error(body.value):
        return False
    return status == 404 or (status in (_NO_STATUS, 400, 409, 410) and body.has(*_NOT_FOUND_MESSAGES))


def _has_error(value: Any) -> bool:
    return isinstance(value, dict) and bool(value.get("error") or value.get("errors"))


def _actual_status(reply: HttpReply, body: ErrorBody) -> tuple[int, ErrorBody]:
    """Return the status that an answer means, and its message prefixed with that status."""
    status = status_of(reply, body.value)
    return status, msgspec.structs.replace(body, status=status or reply.status)
