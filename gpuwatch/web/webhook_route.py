"""Receives updates of messengers for the chat beside the same daemon, which checks their secret."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuwatch.web.problems import HttpProblem

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext

log = logging.getLogger(__name__)


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
