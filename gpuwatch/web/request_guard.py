"""Checks every request (host, encryption, size, access), and adds headers to every response."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuwatch.app.reader_text import use_clock
from gpuwatch.app.setup.sharing.share_links import SHARED_PATHS
from gpuwatch.bootstrap import real_monotonic, real_now
from gpuwatch.errors import GpuwatchError
from gpuwatch.language import AUTO, ENGLISH, mark_text, preferred_language, use_language
from gpuwatch.web.page_templates import login_field, render, wants_page
from gpuwatch.web.problems import HttpProblem, LoginRequired, login_text, problem_of, problem_response
from gpuwatch.web.security import access
from gpuwatch.web.security.credentials import COOKIE, FAILURES_COUNT_FOR_S, SessionStore

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 256 * 1024  # for a settings file; everything else is far smaller
_POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser sends forms with `Origin: null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_DETAILS = {404: "there is no page at this address", 405: "this page does not support this method"}
_TITLES = {
    403: mark_text("Not allowed"),
    404: mark_text("Not found"),
    409: mark_text("Nothing was changed"),
    422: mark_text("That does not fit"),
    500: mark_text("gpuwatch has a fault"),
    503: mark_text("Not available now"),
}
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN = frozenset({"/healthz", "/login", "/api/v1/session"})  # and /static/: they contain no private data


class Guard:
    """The middleware. It handles every error, so that no traceback is sent."""

    def __init__(self, app: ASGIApp, context: WebContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return
        is_begun = False

        async def send_marked(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                _add_headers(MutableHeaders(scope=message), scope)
            await send(message)

        scope["app"] = self  # so that Starlette raises its 405 instead of sending it
        request = Request(scope)
        language = _page_language(request, self._context)
        with use_language(language), use_clock(self._context.settings.timezone, real_now()):
            try:
                self._admit(request)
                await self._app(scope, _limited(receive), send_marked)
            except Exception as error:
                problem = _problem(error, scope)
                if is_begun:
                    raise problem from None
                response = await run_in_threadpool(self._error, request, problem)
                await response(scope, receive, send_marked)

    def _error(self, request: Request, problem: HttpProblem) -> Response:
        return _error_response(request, self._context, problem)

    def _admit(self, request: Request) -> None:
        """Check a request. Raises HttpProblem."""
        web, path = self._context.web, request.url.path
        request.state.access = access.Access(name=None, scopes=frozenset())
        webhook = self._context.owner.webhooks.at(path)
        access.require_trusted_host(request, web, webhook.host if webhook is not None else None)
        length = request.headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > MAX_BODY_BYTES:
            raise HttpProblem(413, f"expected a body of at most {MAX_BODY_BYTES} bytes")
        if path == "/healthz":
            return
        request.state.origin = origin = access.request_origin(request, web)
        access.require_encryption(origin)
        if request.method not in _SAFE:
            access.require_own_page(request)
        if path.startswith("/static/") or path in SHARED_PATHS or webhook is not None:  # those have their own secret
            return
        request.state.access = granted = access.access_of(
            request, self._context.credentials, self._context.sessions, origin
        )
        if request.method in _SAFE and path not in _OPEN:
            access.require_scope(granted, "read")
        elif path not in _OPEN and granted.name is None:
            access.require_scope(granted, "manage")  # 401 before any response reveals what exists


class ProbeGuard(Guard):
    """The middleware of `web.probe_listen`: `/healthz` is open, `/metrics` takes a token, nothing else exists.

    A probe sends the address of a pod as its Host, so none is checked. Hence a foreign page could get here by DNS
    rebinding: unlike the page's, this `/metrics` is open to nobody, and accepts no cookie.
    """

    def _admit(self, request: Request) -> None:
        if request.url.path != "/metrics":
            return  # `/healthz` is open, and the router rejects the rest
        origin = msgspec.structs.replace(access.request_origin(request, self._context.web), is_local=False)
        no_sessions = SessionStore(real_monotonic)
        access.require_scope(access.access_of(request, self._context.credentials, no_sessions, origin), "read")

    def _error(self, request: Request, problem: HttpProblem) -> Response:
        return problem_response(problem)


def _problem(error: Exception, scope: Scope) -> HttpProblem:
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, HTTPException):  # from Starlette: unknown path or method
        return HttpProblem(error.status_code, _DETAILS.get(error.status_code, error.detail), error.headers)
    if isinstance(error, GpuwatchError):
        return problem_of(error)
    log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
    return HttpProblem(500, "internal error of gpuwatch; the log has the traceback")


def access_in(connection: HTTPConnection) -> access.Access:
    """Return the access that the guard determined."""
    granted: access.Access = connection.state.access
    return granted


def _page_language(request: Request, context: WebContext) -> str:
    """Return the language of a page; what programs read is English."""
    if not wants_page(request):
        return ENGLISH
    configured = context.settings.language
    return preferred_language(request.headers.get("accept-language", "")) if configured == AUTO else configured


def _add_headers(headers: MutableHeaders, scope: Scope) -> None:
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    if not scope["path"].startswith("/static/") and scope["path"] not in SHARED_PATHS:
        headers.setdefault("Cache-Control", "no-cache, private")
        headers.add_vary_header("Cookie")
        headers.add_vary_header("Accept-Language")
    if scope.get("scheme") == "https":
        headers.setdefault("Strict-Transport-Security", "max-age=31536000")


def _limited(receive: Receive) -> Receive:
    """Count received bytes, to limit a body without Content-Length, too."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > MAX_BODY_BYTES:
                raise HttpProblem(413, f"expected a body of at most {MAX_BODY_BYTES} bytes")
        return message

    return counted


def _error_response(request: Request, context: WebContext, problem: HttpProblem) -> Response:
    """Return a page if a browser requests one (with 401 the login page), else `application/problem+json`."""
    if not wants_page(request) or problem.status == 421:
        return problem_response(problem)
    if problem.status == 401 or (request.url.path == "/login" and problem.status == 429):
        is_first_visit = isinstance(problem, LoginRequired)
        values: dict[str, object] = {
            "problem": "" if is_first_visit else login_text(problem, login_field(context), FAILURES_COUNT_FOR_S),
            "is_over": is_first_visit and COOKIE in request.cookies,
        }
        return render(request, context, "login.html", values, status=problem.status, headers=problem.headers)
    parts = request.url.path.strip("/").split("/")
    name = parts[-1] if problem.status == 404 and len(parts) > 1 else ""
    values = {"problem": problem, "name": name, "title": _TITLES.get(problem.status, HTTPStatus(problem.status).phrase)}
    return render(request, context, "error.html", values, status=problem.status, headers=problem.headers)
