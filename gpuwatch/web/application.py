"""The ASGI application: the routes behind the guard."""

from __future__ import annotations

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from gpuwatch.web.api.api_actions import action_routes
from gpuwatch.web.api.event_stream import EventFanout, event_routes
from gpuwatch.web.api.lists import PREFIX, list_routes, with_etag
from gpuwatch.web.api.openapi import openapi_json
from gpuwatch.web.context import WebContext
from gpuwatch.web.jobs.job_routes import job_routes
from gpuwatch.web.login import login_routes
from gpuwatch.web.metrics_route import metrics_route
from gpuwatch.web.page_routes import page_routes
from gpuwatch.web.request_guard import Guard
from gpuwatch.web.webhook_route import webhook_route

STATIC = Path(__file__).with_name("static")


def build_app(context: WebContext, fanout: EventFanout) -> ASGIApp:
    """Build the application with everything that is served."""

    async def health(_request: Request) -> Response:
        failing = context.failing_task()
        if failing is None:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "failing", "task": failing}, status_code=503)

    async def described(request: Request) -> Response:
        return with_etag(request, openapi_json())

    async def unknown(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise HTTPException(404)

    routes = [
        Route("/healthz", health, methods=["GET"]),
        Route(f"{PREFIX}/openapi.json", described, methods=["GET"]),
        *list_routes(context),
        *action_routes(context),
        *event_routes(context, fanout),
        metrics_route(context),
        webhook_route(context),
        *login_routes(context),
        *job_routes(context),
        *page_routes(context),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Guard(Router(routes, default=unknown), context)
