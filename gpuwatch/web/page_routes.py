"""The routes of the pages: read in a thread pool, then render; forms with CSRF token, question and flash message."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gpuwatch.bootstrap import real_monotonic, real_now, share_open_stores
from gpuwatch.errors import StoreNotReady
from gpuwatch.web.guard import access_in
from gpuwatch.web.page import Confirm, Done, FormAction, Page, Shown, View
from gpuwatch.web.pages import pages
from gpuwatch.web.rendering import render
from gpuwatch.web.security.access import CSRF_HEADERS, require_csrf_token, require_scope
from gpuwatch.web.security.sessions import COOKIE

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext

Handler = Callable[[Request], Awaitable[Response]]
MAX_FIELDS = 200


class Flashes:
    """The messages of forms for the next page, by session; each is shown once."""

    def __init__(self) -> None:
        self._lines: dict[str, Done] = {}

    def leave(self, request: Request, done: Done) -> None:
        """Store a message for the next page."""
        session = access_in(request).session
        if session is not None:
            self._lines = dict([*self._lines.items(), (session.csrf_token, done)][-100:])

    def take(self, request: Request) -> Done | None:
        """Return the message, once."""
        session = access_in(request).session
        return self._lines.pop(session.csrf_token, None) if session is not None else None


class ReadCache:
    """Recent readings of pages, so that many concurrent clients cause one read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Mapping[str, object]]] = {}

    def values(self, page: Page, view: View) -> Mapping[str, object]:
        """Return the values of the page, at most `shared_s` old."""
        if not page.shared_s or view.query or view.form:
            return _shown(page, view)
        with self._lock:  # others wait for the reading thread
            read_s, kept = self._kept.get(page.path, (0.0, {}))
            if not kept or real_monotonic() - read_s > page.shared_s:
                kept = _shown(page, view)
                self._kept[page.path] = (real_monotonic(), kept)
            return kept

    def forget(self) -> None:
        """Discard all readings after a change."""
        self._kept.clear()


def _shown(page: Page, view: View) -> Mapping[str, object]:
    with share_open_stores():
        return page.show(view)


def page_routes(context: WebContext) -> list[Route]:
    """Return the routes of every page and form."""
    flashes, reads, found = Flashes(), ReadCache(), []
    for page in pages():
        found.append(Route(page.path, _shows(context, page, flashes, reads), methods=["GET"]))
        found += [Route(one.path, _acts(context, page, one, flashes, reads), methods=["POST"]) for one in page.actions]
    return found


def _shows(context: WebContext, page: Page, flashes: Flashes, reads: ReadCache) -> Handler:
    async def show(request: Request) -> Response:
        return await _page(
            request, context, page, flashes.take(request), lambda: reads.values(page, _view(request, context))
        )

    return show


async def _page(
    request: Request,
    context: WebContext,
    page: Page,
    flash: Done | None,
    read: Callable[[], Mapping[str, object]],
    view: View | None = None,
) -> Response:
    """Render the page. Without a store it names the command that creates one."""

    def body() -> Response:
        values = {"page": page, "flash": flash, "view": view or _view(request, context)}
        try:
            own = read()
        except StoreNotReady as error:
            return render(request, context, "no_store.html", {**values, "error": str(error)}, status=503)
        return render(request, context, page.template, {**values, **own})

    return await run_in_threadpool(body)


def _acts(context: WebContext, page: Page, action: FormAction, flashes: Flashes, reads: ReadCache) -> Handler:
    async def act(request: Request) -> Response:
        form = await form_fields(request)
        access = access_in(request)
        require_scope(access, action.scope)
        require_csrf_token(access, [form.pop("csrf_token", None), *map(request.headers.get, CSRF_HEADERS)])
        view = _view(request, context, form, f"web page ({access.name})")
        got = await run_in_threadpool(action.run, view)
        reads.forget()
        if isinstance(got, Done):
            flashes.leave(request, got)
            return RedirectResponse(got.to, status_code=303)
        if isinstance(got, Confirm):
            values = {"page": page, "flash": None, "confirm": got, "action": request.url.path, "fields": form}
            return await run_in_threadpool(render, request, context, "confirm.html", values)
        assert isinstance(got, Shown)
        return await _page(request, context, page, None, lambda: {**page.show(view), **got.values}, view)

    return act


async def form_fields(request: Request) -> dict[str, str]:
    """Return the text fields of a form, without files."""
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
        owner=context.owner,
    )


def session_cookie(response: Response, value: str, *, is_encrypted: bool) -> None:
    """Set the cookie; empty: delete it."""
    if not value:
        response.delete_cookie(COOKIE, path="/", secure=is_encrypted, httponly=True, samesite="strict")
        return
    response.set_cookie(COOKIE, value, path="/", secure=is_encrypted, httponly=True, samesite="strict")
