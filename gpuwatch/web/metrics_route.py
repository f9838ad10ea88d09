"""`/metrics`: one reading at a time, even with many scrapers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuwatch.app.setup.metrics import MetricsReader
from gpuwatch.app.setup.metrics_text import CONTENT_TYPE, exposition
from gpuwatch.bootstrap import real_monotonic, real_now

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext

_FRESH_S = 1.0  # scrapes within this time share a reading


class _Scrape:
    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._reader = MetricsReader()
        self._lock = threading.Lock()
        self._read_at_s = float("-inf")
        self._text = b""

    def text(self) -> bytes:
        """Return the text format. Raises UsageError: the extra is not installed."""
        with self._lock:
            if real_monotonic() - self._read_at_s >= _FRESH_S:
                values = self._reader.read(self._context.settings, real_now(), self._context.task_health())
                self._text, self._read_at_s = exposition(values), real_monotonic()
            return self._text


def metrics_route(context: WebContext) -> Route:
    """Return the route; the guard requires the scope `read`."""
    scrape = _Scrape(context)

    async def metrics(_request: Request) -> Response:
        text = await run_in_threadpool(scrape.text)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    return Route("/metrics", metrics, methods=["GET"])
