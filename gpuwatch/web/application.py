"""The ASGI applications: all routes behind the guard, and the two that answer probes by address.

`/healthz`, `/metrics` and the messengers' webhooks are here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from gpuwatch.app.setup.metrics import CONTENT_TYPE, MetricsReader, exposition
from gpuwatch.bootstrap import real_monotonic, real_now, share_open_stores
from gpuwatch.web.api.api_actions import action_routes
from gpuwatch.web.api.event_stream import EventFanout, event_routes
from gpuwatch.web.api.openapi import openapi_json
from gpuwatch.web.api.resources import PREFIX, reading_routes, with_etag
from gpuwatch.web.context import WebContext
from gpuwatch.web.jobs.job_pages import job_routes
from gpuwatch.web.login import login_routes
from gpuwatch.web.page_routes import page_routes
from gpuwatch.web.problems import HttpProblem
from gpuwatch.web.request_guard import Guard, ProbeGuard
from gpuwatch.web.setup.shared_routes import shared_routes

log = logging.getLogger(__name__)
STATIC = Path(__file__).with_name("static")
_FRESH_S = 1.0  # scrapes within this time share a reading


def probe_routes(context: WebContext) -> list[Route]:
    """Return `/healthz` and `/metrics`; the page and the listener for probes share them, and one reading."""
    return [health_route(context), metrics_route(context)]


def build_probe_app(context: WebContext, probes: Sequence[Route]) -> ASGIApp:
    """Build the application of `web.probe_listen`: the two routes, whatever the Host, without a session."""
    return ProbeGuard(Router(probes, default=_unknown, redirect_slashes=False), context)


def build_app(context: WebContext, fanout: EventFanout, probes: Sequence[Route]) -> ASGIApp:
    """Build the application with everything that is served."""

    async def described(request: Request) -> Response:
        return with_etag(request, openapi_json())

    routes = [
        *probes,
        Route(f"{PREFIX}/openapi.json", described, methods=["GET"]),
        *reading_routes(context),
        *action_routes(context),
        *event_routes(context, fanout),
        webhook_route(context),
        *login_routes(context),
        *job_routes(context),
        *shared_routes(context),
        *page_routes(context),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Guard(Router(routes, default=_unknown), context)


async def _unknown(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise HTTPException(404)


def health_route(context: WebContext) -> Route:
    """Return the route, which needs no credentials."""

    async def health(_request: Request) -> Response:
        failing = context.failing_task()
        if failing is None:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "failing", "task": failing}, status_code=503)

    return Route("/healthz", health, methods=["GET"])


def metrics_route(context: WebContext) -> Route:
    """Return the route; the guard requires the scope `read`."""
    scrape = _Scrape(context)

    async def metrics(_request: Request) -> Response:
        text = await run_in_threadpool(scrape.text)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    return Route("/metrics", metrics, methods=["GET"])


class _Scrape:
    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._reader = MetricsReader()
        self._lock = threading.Lock()
        self._read_at_s = float("-inf")
        self._text = b""

    def text(self) -> bytes:
        """Return the text format."""
        with self._lock:
            if real_monotonic() - self._read_at_s >= _FRESH_S:
                with share_open_stores(self._context.owner.stores):
                    values = self._reader.read(self._context.settings, real_now(), self._context.task_health())
                self._text, self._read_at_s = exposition(values), real_monotonic()
            return self._text


def webhook_route(context: WebContext) -> Route:
    """Return the route; the guard lets requests for open paths pass."""

    async def receive(request: Request) -> Response:
        webhook = context.owner.webhooks.at(request.url.path)
        if webhook is None:
            raise HttpProblem(404, "no bot receives updates here")
        if not webhook.is_genuine(request.headers):
            log.warning("web: refused a webhook update without its secret from %s", request.state.origin.client)
            raise HttpProblem(401, "the secret of this webhook is missing or wrong")
        body = await request.body()
        try:
            await run_in_threadpool(webhook.receive, body)
        except ValueError as error:
            raise HttpProblem(400, str(error)) from None
        return Response(status_code=200)

    return Route("/telegram/{bot}", receive, methods=["POST"])
