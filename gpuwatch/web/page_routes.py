"""The routes of the pages: read in a thread pool, then render; forms with CSRF token, question and flash message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gpuwatch.bootstrap import real_now, share_open_stores
from gpuwatch.errors import StoreNotReady
from gpuwatch.language import current_language
from gpuwatch.web.page import Confirm, FormAction, Moved, Page, Redirect, Rerender, View, pages
from gpuwatch.web.page_templates import render
from gpuwatch.web.problems import HttpProblem
from gpuwatch.web.request_guard import access_in
from gpuwatch.web.security.access import CSRF_HEADERS, require_csrf_token, require_scope
from gpuwatch.web.security.credentials import COOKIE

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext

Handler = Callable[[Request], Awaitable[Response]]
MAX_FIELDS = 200
FRAME_ONLY, IN_SHEET = "X-Frame-Only", "X-Sheet"  # headers of the page's own script


class Flashes:
    """The messages of forms for the next page, by session; each is shown once."""

    def __init__(self) -> None:
        self._lines: dict[str, Redirect] = {}

    def store(self, request: Request, done: Redirect) -> None:
        """Store a message for the next page."""
        session = access_in(request).session
        if session is not None:
            self._lines = dict([*self._lines.items(), (session.csrf_token, done)][-100:])

    def pop(self, request: Request) -> Redirect | None:
        """Return the message, once."""
        session = access_in(request).session
        return self._lines.pop(session.csrf_token, None) if session is not None else None


def _shared_values(context: WebContext, page: Page, view: View) -> Mapping[str, object]:
    """Return the values of the page, shared as `shared_s` says."""
    shared = context.shared_pages.get(page.path)
    if shared is None or view.query or view.form:
        return _read_values(page, view)
    language = current_language()  # sentences are read, too
    return shared.reading(language, context.settings, view.now, lambda: _read_values(page, view))


def _read_values(page: Page, view: View) -> Mapping[str, object]:
    with share_open_stores(view.owner.stores):
        return page.show(view)


def page_routes(context: WebContext) -> list[Route]:
    """Return the routes of every page and form."""
    flashes, routes = Flashes(), list[Route]()
    for page in pages():
        routes.append(Route(page.path, _page_handler(context, page, flashes), methods=["GET"]))
        routes += [
            Route(action.path, _action_handler(context, page, action, flashes), methods=["POST"])
            for action in page.actions
        ]
    return routes


def _page_handler(context: WebContext, page: Page, flashes: Flashes) -> Handler:
    async def show(request: Request) -> Response:
        flash = None if FRAME_ONLY in request.headers else flashes.pop(request)
        return await _page(
            request, context, page, flash, lambda: _shared_values(context, page, _view(request, context))
        )

    return show


async def _page(
    request: Request,
    context: WebContext,
    page: Page,
    flash: Redirect | None,
    read: Callable[[], Mapping[str, object]],
    view: View | None = None,
) -> Response:
    """Render the page. Without a store it names the command that creates one."""

    def body() -> Response:
        values = {"page": page, "flash": flash, "view": view or _view(request, context)}
        if FRAME_ONLY in request.headers:  # nothing else of that page is live
            return render(request, context, "base.html", values)
        try:
            own = read()
        except Moved as moved:
            return RedirectResponse(moved.to, status_code=303)
        except StoreNotReady as error:
            return render(request, context, "no_store.html", {**values, "error": str(error)}, status=503)
        return render(request, context, page.template, {**values, **own})

    return await run_in_threadpool(body)


def _action_handler(context: WebContext, page: Page, action: FormAction, flashes: Flashes) -> Handler:
    async def act(request: Request) -> Response:
        form = await form_fields(request)
        access = access_in(request)
        require_scope(access, action.scope)
        require_csrf_token(access, [form.pop("csrf_token", None), *map(request.headers.get, CSRF_HEADERS)])
        view = _view(request, context, form, f"web page ({access.name})")
        result = await run_in_threadpool(action.run, view)
        context.forget_readings()
        if isinstance(result, Redirect):
            if IN_SHEET in request.headers and result.is_error:
                raise HttpProblem(409, result.text)  # the sheet stays open, and shows it
            flashes.store(request, result)
            if IN_SHEET in request.headers:
                return Response(headers={"X-Location": result.to})
            return RedirectResponse(result.to, status_code=303)
        if isinstance(result, Confirm):
            values: dict[str, object] = {"page": page, "flash": None, "confirm": result, "action": request.url.path}
            values["fields"] = {**form, **result.fields}
            return await run_in_threadpool(render, request, context, "confirm.html", values)
        assert isinstance(result, Rerender)
        return await _page(request, context, page, None, lambda: {**page.show(view), **result.values}, view)

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
        settings_read_at=context.settings_read_at,
    )


def session_cookie(response: Response, value: str, *, is_encrypted: bool) -> None:
    """Set the cookie; empty: delete it."""
    if not value:
        response.delete_cookie(COOKIE, path="/", secure=is_encrypted, httponly=True, samesite="strict")
        return
    response.set_cookie(COOKIE, value, path="/", secure=is_encrypted, httponly=True, samesite="strict")
