"""Logging in and out: a form for people, `/api/v1/session` for programs."""

from __future__ import annotations

import asyncio
import logging
from math import ceil
from typing import TYPE_CHECKING

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from gpuwatch.web.page_routes import form_fields, session_cookie
from gpuwatch.web.page_templates import render
from gpuwatch.web.problems import HttpProblem
from gpuwatch.web.request_guard import access_in
from gpuwatch.web.security.access import CSRF_HEADERS, require_csrf_token
from gpuwatch.web.security.credentials import COOKIE, WebSession

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext

log = logging.getLogger(__name__)

_FIELDS = ("code", "password", "token")


class SessionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /api/v1/session: exactly one of them."""

    code: str = ""
    password: str = ""
    token: str = ""


def login_routes(context: WebContext) -> list[Route]:
    """Return the routes /login, /logout and /api/v1/session."""

    async def page(request: Request) -> Response:
        request.state.back = _own_page(request.query_params.get("next", ""))
        return render(request, context, "login.html", {"problem": "", "is_over": False})

    async def log_in(request: Request) -> Response:
        if request.headers.get("content-type", "").startswith("application/json"):
            return await open_session(request)
        form = await form_fields(request)
        secret = next((form[name] for name in _FIELDS if form.get(name)), "")
        request.state.back = _own_page(form.get("next", ""))  # also after a wrong password
        cookie, _ = await _open_session(request, context, secret)
        return _with_cookie(request, RedirectResponse(request.state.back, status_code=303), cookie)

    async def log_out(request: Request) -> Response:
        form = await form_fields(request)
        require_csrf_token(access_in(request), [form.get("csrf_token")])
        context.sessions.close(request.cookies.get(COOKIE))
        return _with_cookie(request, RedirectResponse("/", status_code=303), "")

    async def open_session(request: Request) -> Response:
        cookie, session = await _open_session(request, context, _secret_in_json(await request.body()))
        answer = {"scopes": sorted(session.scopes), "csrf_token": session.csrf_token}
        return _with_cookie(request, JSONResponse(answer), cookie)

    async def close_session(request: Request) -> Response:
        require_csrf_token(access_in(request), map(request.headers.get, CSRF_HEADERS))
        context.sessions.close(request.cookies.get(COOKIE))
        return _with_cookie(request, Response(status_code=204), "")

    return [
        Route("/login", page, methods=["GET"]),
        Route("/login", log_in, methods=["POST"]),
        Route("/logout", log_out, methods=["POST"]),
        Route("/api/v1/session", open_session, methods=["POST"]),
        Route("/api/v1/session", close_session, methods=["DELETE"]),
    ]


def _secret_in_json(raw: bytes) -> str:
    """Decode the login. Raises HttpProblem: 400, 422."""
    try:
        body = msgspec.json.decode(raw, type=SessionRequest)
    except msgspec.ValidationError as error:
        raise HttpProblem(422, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise HttpProblem(400, "expected JSON") from None
    return body.code or body.password or body.token


async def _open_session(request: Request, context: WebContext, secret: str) -> tuple[str, WebSession]:
    """Return the cookie and the session. Raises HttpProblem: 401, 429."""
    client = request.state.origin.client
    wait_s = context.login_limit.attempt(client)
    if wait_s is not None:
        raise HttpProblem(
            429, f"too many wrong passwords; try again in {ceil(wait_s)} s", {"Retry-After": f"{ceil(wait_s)}"}
        )
    identity = await run_in_threadpool(context.credentials.login, secret)
    if identity is None:
        await asyncio.sleep(context.login_limit.delay_s(client))
        log.warning("web: a wrong password or code from %s", client)
        raise HttpProblem(
            401, "wrong password, token or code", more={"tries_left": context.login_limit.tries_left(client)}
        )
    context.login_limit.succeeded(client)
    log.info("web: login from %s by %s", client, identity[0])
    return context.sessions.open(*identity)


def _with_cookie(request: Request, response: Response, cookie: str) -> Response:
    session_cookie(response, cookie, is_encrypted=request.state.origin.is_encrypted)
    return response


def _own_page(path: str) -> str:
    """Return the page of this server to open after the login."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_own else "/"
