"""Errors as `application/problem+json` (RFC 9457), and the HTTP status of gpuwatch's own errors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from gpuwatch.app.reader_text import as_datetime, reader_clock, span
from gpuwatch.domain.jobs.job import JobTransitionRefused
from gpuwatch.errors import (
    GpuwatchError,
    JobConflict,
    ProviderError,
    ProviderStateUnknown,
    ResourceNotFound,
    SettingsError,
    StoreError,
    UsageError,
)
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural
from gpuwatch.redaction import redact

_PATTERNS = {
    "since": 'a duration, such as "24h" or "7d"',
    "for": 'a duration above zero, such as "12h"',
    "count": 'a number of GPUs, or a range such as "1-8"',
    "month": 'a month, such as "2026-11"',
}


class HttpProblem(Exception):
    """An error response.

    Args:
        detail: one line for a person: what is wrong, what to do.
        headers: such as Retry-After.
        more: further members of the JSON.
    """

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = dict(more or {})


class LoginRequired(HttpProblem):
    """Nobody is logged in yet: a browser gets the login page, as on its first visit."""


def problem_of(error: GpuwatchError) -> HttpProblem:
    """Convert one of gpuwatch's errors to an HTTP problem."""
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    if isinstance(error, ResourceNotFound):
        status = HTTPStatus.NOT_FOUND
    elif isinstance(error, UsageError):
        status = HTTPStatus.UNPROCESSABLE_ENTITY
    elif isinstance(error, JobConflict | JobTransitionRefused):
        status = HTTPStatus.CONFLICT
    elif isinstance(error, StoreError | SettingsError | ProviderError | ProviderStateUnknown):
        status = HTTPStatus.SERVICE_UNAVAILABLE
    return HttpProblem(status, redact(str(error)))


def login_text(problem: HttpProblem, field: str, within_s: float) -> str:
    """Say on the login page why a login failed, and when or how often one may try again.

    Args:
        field: "code", "password" or "token".
        within_s: how long a wrong try counts.
    """
    if problem.status == HTTPStatus.TOO_MANY_REQUESTS:
        wait_s = int(problem.headers["Retry-After"])
        at = reader_clock().now + timedelta(seconds=wait_s)
        return _("Too many wrong tries. Try again in {time}, at {clock}.").format(
            time=span(wait_s), clock=f"{as_datetime(at):%H:%M}"
        )
    wrong = {"code": _("Wrong code"), "password": _("Wrong password"), "token": _("Wrong token")}[field]
    left = problem.more.get("tries_left")
    if left is None:
        return problem.detail
    text = translate_plural("{wrong}; {count} try left in {time}.", "{wrong}; {count} tries left in {time}.", left)
    return text.format(wrong=wrong, count=left, time=span(within_s))


def validation_text(error: msgspec.ValidationError) -> str:
    """Describe what is wrong with a value, and where; without the pattern, which only the document shows."""
    text = str(error)
    _, separator, rest = text.partition(" matching regex ")
    if not separator:
        return text
    field = rest.rpartition("`$.")[2].rstrip("`")
    return f"{field}: expected {_PATTERNS.get(field, 'another form')}"


def problem_json(problem: HttpProblem) -> dict[str, Any]:
    """Return the members defined by RFC 9457, and our own."""
    title = HTTPStatus(problem.status).phrase
    return {"type": "about:blank", "title": title, "status": problem.status, "detail": problem.detail, **problem.more}


def problem_response(problem: HttpProblem) -> Response:
    """Return the response."""
    return Response(
        msgspec.json.encode(problem_json(problem)),
        status_code=problem.status,
        headers=problem.headers,
        media_type="application/problem+json",
    )
