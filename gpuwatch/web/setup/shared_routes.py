"""What signed links show, without a login and without a cookie: a chart, its picture, the feed and the calendar."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from gpuwatch.app.history.recent_readings import RecentReadings
from gpuwatch.app.setup.sharing.alert_feed import alert_feed
from gpuwatch.app.setup.sharing.calendar_file import calendar_file
from gpuwatch.app.setup.sharing.share_links import PICTURE, LinkFault, SharedThing, base_url, link_fault
from gpuwatch.bootstrap import real_now, share_open_stores
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.language import current_language, use_language
from gpuwatch.language import translate as _
from gpuwatch.web.api.resources import with_etag
from gpuwatch.web.page_templates import environment

if TYPE_CHECKING:
    from gpuwatch.app.setup.sharing.shared_charts import SharedChart
    from gpuwatch.settings import Settings
    from gpuwatch.web.context import WebContext

_KEPT_FOR = timedelta(minutes=1)  # a picture in a page that many people read is drawn once a minute
_PRIVATE = {"X-Robots-Tag": "noindex, nofollow", "Referrer-Policy": "no-referrer"}
_FEED = _PRIVATE | {"Cache-Control": "private, max-age=300"}
_PAGE = _PRIVATE | {"Cache-Control": "private, max-age=60"}
_PICTURE = _PRIVATE | {
    "Cache-Control": "public, max-age=300",
    "Cross-Origin-Resource-Policy": "cross-origin",  # other people's pages show it
    # its own styles, and nothing from anywhere: opened by itself it is a document
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox",
}


def _drawn(thing: SharedThing, settings: Settings, name: str) -> SharedChart:
    from gpuwatch.app.setup.sharing.shared_charts import gpu_chart, watch_chart  # noqa: PLC0415 they load numpy: 12 MB

    draw = {SharedThing.GPU: gpu_chart, SharedThing.WATCH: watch_chart}[thing]
    return draw(settings, name, real_now())


def shared_routes(context: WebContext) -> list[Route]:
    """Return the routes; the guard requires no login for them."""
    drawn: RecentReadings[SharedChart] = RecentReadings(_KEPT_FOR, most=64)

    def chart_of(thing: SharedThing, name: str) -> SharedChart:
        settings = context.settings
        return drawn.reading(
            (thing, name, current_language()), settings, real_now(), lambda: _drawn(thing, settings, name)
        )

    def page(thing: SharedThing, request: Request) -> Response:
        chart = chart_of(thing, request.query_params["name"])
        language = current_language()
        picture = f"{thing.path}{PICTURE}?{request.url.query}&language={language}"
        body = environment().get_template("shared.html").render(chart=chart, picture=picture, language=language)
        return HTMLResponse(body, headers=_PAGE)

    def picture(thing: SharedThing, request: Request) -> Response:
        chart = chart_of(thing, request.query_params["name"])
        return _answer(request, chart.svg().encode(), "image/svg+xml", _PICTURE)

    def feed(_thing: SharedThing, request: Request) -> Response:
        own_url = f"{base_url(context.settings)}{request.url.path}?{request.url.query}"
        return _answer(request, alert_feed(context.settings, own_url, real_now()), "application/atom+xml", _FEED)

    def calendar(_thing: SharedThing, request: Request) -> Response:
        return _answer(request, calendar_file(context.settings, real_now()), "text/calendar; charset=utf-8", _FEED)

    routes = [
        _route(context, SharedThing.ALERTS, SharedThing.ALERTS.path, feed),
        _route(context, SharedThing.CALENDAR, SharedThing.CALENDAR.path, calendar),
    ]
    for thing in (SharedThing.GPU, SharedThing.WATCH):
        routes.append(_route(context, thing, thing.path, page))
        routes.append(_route(context, thing, thing.path + PICTURE, picture))
    return routes


def _route(
    context: WebContext, thing: SharedThing, path: str, show: Callable[[SharedThing, Request], Response]
) -> Route:
    def answer(request: Request) -> Response:
        # a page has the language of its reader; what a program asks for has that of the page around it, or the settings
        is_page = thing.is_chart and path == thing.path
        settings_language = request.query_params.get("language", context.settings.language)
        with use_language(current_language() if is_page else settings_language):
            return answer_in_language(request)

    def answer_in_language(request: Request) -> Response:
        name, until, key = (request.query_params.get(part, "") for part in ("name", "until", "key"))
        try:
            with share_open_stores(context.owner.stores):
                fault = link_fault(context.settings, thing, name, until, key, real_now())
                return _refusal(fault) if fault is not None else show(thing, request)
        except UsageError:  # the GPU or the watch is no longer there
            return _sentence(_("What this link showed is no longer there."), 404)
        except GpuwatchError:
            return _sentence(_("This cannot be shown at the moment; try again later."), 503)

    async def handle(request: Request) -> Response:
        return await run_in_threadpool(answer, request)

    return Route(path, handle, methods=["GET"])


def _refusal(fault: LinkFault) -> Response:
    if fault is LinkFault.EXPIRED:
        return _sentence(_("This link has expired; ask the person who shared it for a new one."), 410)
    return _sentence(_("This link is not valid; it may be incomplete, or it was revoked."), 404)


def _sentence(text: str, status: int) -> Response:
    return Response(f"{text}\n", status, _PRIVATE | {"Cache-Control": "no-store"}, "text/plain; charset=utf-8")


def _answer(request: Request, body: bytes, media_type: str, headers: dict[str, str]) -> Response:
    response = with_etag(request, body)
    response.headers.update(headers)
    if response.status_code == 200:
        response.headers["Content-Type"] = media_type
    return response
