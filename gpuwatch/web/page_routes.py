"""The routes of the pages: read in a thread pool, render; forms with CSRF token, question and flash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gpuwatch.bootstrap import real_now
from gpuwatch.errors import StoreNotReady
from gpuwatch.web.guard import access_in
from gpuwatch.web.page import Confirm, Done, FormAction, Page, Shown, View
from gpuwatch.web.pages import pages
from gpuwatch.web.rendering import render
from gpuwatch.web.security.access import require_csrf_token, require_scope
from gpuwatch.web.security.sessions import COOKIE

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext

Handler = Callable[[Request], Awaitable[Response]]
MAX_FIELDS = 200


class Flashes:
    """The line that a form leaves for the next page, by session; shown once."""

    def __init__(self) -> None:
        self._lines: dict[str, Done] = {}

    def leave(self, request: Request, done: Done) -> None:
        """For the page that the browser goes to."""
        session = access_in(request).session
        if session is not None:
            self._lines = dict([*self._lines.items(), (session.csrf_token, done)][-100:])

    def take(self, request: Request) -> Done | None:
        """The line, once."""
        session = access_in(request).session
        return self._lines.pop(session.csrf_token, None) if session is not None else None


def page_routes(context: WebContext) -> list[Route]:
    """Every page and every form of one."""
    flashes, found = Flashes(), []
    for page in pages():
        found.append(Route(page.path, _shows(context, page, flashes), methods=["GET"]))
        found += [Route(one.path, _acts(context, page, one, flashes), methods=["POST"]) for one in page.actions]
    return found


def _shows(context: WebContext, page: Page, flashes: Flashes) -> Handler:
    async def show(request: Request) -> Response:
        return await _page(request, context, page, _view(request, context), flashes.take(request), {})

    return show


async def _page(
    request: Request, context: WebContext, page: Page, view: View, flash: Done | None, more: Mapping[str, object]
) -> Response:
    """The page. Without a store it says so, and what to run."""

    def body() -> Response:
        values = {"page": page, "flash": flash, "view": view}
        try:
            own = page.show(view)
        except StoreNotReady as error:
            return render(request, context, "no_store.html", {**values, "error": str(error)}, status=503)
        return render(request, context, page.template, {**values, **own, **more})

    return await run_in_threadpool(body)


def _acts(context: WebContext, page: Page, action: FormAction, flashes: Flashes) -> Handler:
    async def act(request: Request) -> Response:
        form = await form_fields(request)
        access = access_in(request)
        require_scope(access, action.scope)
        require_csrf_token(access, [form.pop("csrf_token", None), request.headers.get("x-csrf-token")])
        view = _view(request, context, form, access.name or "")
        got = await run_in_threadpool(action.run, view)
        if isinstance(got, Done):
            flashes.leave(request, got)
            return RedirectResponse(got.to, status_code=303)
        if isinstance(got, Confirm):
            values = {"page": page, "flash": None, "confirm": got, "action": request.url.path, "fields": form}
            return await run_in_threadpool(render, request, context, "confirm.html", values)
        assert isinstance(got, Shown)
        return await _page(request, context, page, view, None, got.values)

    return act


async def form_fields(request: Request) -> dict[str, str]:
    """The text fields of a form; files are left out."""
    async with request.form(max_files=0, max_fields=MAX_FIELDS) as form:
        return {name: value for name, value in form.items() if isinstance(value, str)}


def _view(request: Request, context: WebContext, form: Mapping[str, str] | None = None, actor: str = "") -> View:
    path = {name: str(value) for name, value in request.path_params.items()}
    return View(
        settings=context.settings,
        now=real_now(),
        query=dict(request.query_params),
        path=path,
        form=form or {},
        actor=actor,
    )


def session_cookie(response: Response, value: str, *, is_encrypted: bool) -> None:
    """Set it; empty: delete it."""
    if not value:
        response.delete_cookie(COOKIE, path="/", secure=is_encrypted, httponly=True, samesite="strict")
        return
    response.set_cookie(COOKIE, value, path="/", secure=is_encrypted, httponly=True, samesite="strict")
