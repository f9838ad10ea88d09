"""Server-sent events: one reader of the store for all clients; `Last-Event-ID` resumes.

The reader is a thread that follows the events like `gpuwatch alerts --follow`. The first client starts it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from tenacity import RetryCallState, Retrying, retry_if_exception, wait_fixed

from gpuwatch.app.alerts.alerts import event_filter, event_view, follow_events
from gpuwatch.errors import GpuwatchError
from gpuwatch.web.api.resources import PREFIX
from gpuwatch.web.problems import HttpProblem

if TYPE_CHECKING:
    from gpuwatch.storage.alerts.alert_rows import StoredEvent
    from gpuwatch.web.context import WebContext

log = logging.getLogger(__name__)

_MAX_RECENT = 1000  # newest events from which a client can resume
_SINCE_S = 86_400.0
_PING_S = 15.0  # interval of a comment that lets proxies and clients notice a dead connection
_RETRY_S = 2.0  # after an error of the store
_WAITING_MAX = 1000  # events; a client that does not read is dropped
MAX_CLIENTS = 200


class SentEvent(msgspec.Struct, frozen=True):
    """One event, encoded once for all clients."""

    event_id: str
    wire: bytes


class _Stopped(Exception):
    """Marks the end of the server."""


class EventFanout:
    """Reads each event once and sends it to every client."""

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._loop: asyncio.AbstractEventLoop | None = None
        self._recent: deque[SentEvent] = deque(maxlen=_MAX_RECENT)
        self._clients: set[asyncio.Queue[SentEvent | None]] = set()
        self._has_caught_up = asyncio.Event()

    async def join(self, last_event_id: str | None) -> tuple[asyncio.Queue[SentEvent | None], list[SentEvent]]:
        """Return a queue of future events, and the events that the client missed. Raises HttpProblem: 503, too many."""
        if len(self._clients) >= MAX_CLIENTS:
            raise HttpProblem(503, f"too many clients: {MAX_CLIENTS} are connected")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._read, name="web events", daemon=True).start()
        with suppress(TimeoutError):  # without a store there are no missed events
            await asyncio.wait_for(self._has_caught_up.wait(), _RETRY_S)
        queue: asyncio.Queue[SentEvent | None] = asyncio.Queue(_WAITING_MAX)
        self._clients.add(queue)
        recent = list(self._recent)
        ids = [event.event_id for event in recent]
        missed = recent[ids.index(last_event_id) + 1 :] if last_event_id in ids else []
        return queue, missed

    def leave(self, queue: asyncio.Queue[SentEvent | None]) -> None:
        """Remove a client."""
        self._clients.discard(queue)

    def close(self) -> None:
        """End every stream; call it from the loop's thread."""
        for queue in tuple(self._clients):
            with suppress(asyncio.QueueFull):
                queue.put_nowait(None)

    # --- the reader's thread ------------------------------------------------------------------------------------------

    def _read(self) -> None:
        retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, Exception) and not isinstance(error, _Stopped)),
            wait=wait_fixed(_RETRY_S),
            sleep=self._wait,
            before_sleep=_log_failure,
        )
        with suppress(_Stopped):
            retrying(self._publish_new, set())

    def _publish_new(self, seen: set[str]) -> None:
        for event in follow_events(self._context.settings, event_filter(_SINCE_S), self._wait_for_more):
            if event.alert.alert_id not in seen:
                seen.add(event.alert.alert_id)
                self._context.forget_readings()  # clients read their page again when they get it
                self._call(self._publish, _encoded(event))

    def _wait_for_more(self, seconds: float) -> None:
        """Wait between two reads; new clients may start from there."""
        self._call(self._has_caught_up.set)
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        if self._context.stopping.wait(seconds):
            raise _Stopped

    def _call(self, work: object, *args: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(work, *args)  # type: ignore[arg-type]
        except RuntimeError:  # the loop is closed
            raise _Stopped from None

    def _publish(self, event: SentEvent) -> None:
        self._recent.append(event)
        if not self._has_caught_up.is_set():
            return  # an old event
        for queue in tuple(self._clients):
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:
                self._clients.discard(queue)


def _log_failure(state: RetryCallState) -> None:
    assert state.outcome is not None
    error = state.outcome.exception()
    if isinstance(error, GpuwatchError):
        log.debug("web events: %s", error)
    else:
        log.error("the event stream of the web page failed; retrying", exc_info=error)


def _encoded(event: StoredEvent) -> SentEvent:
    event_id, kind = event.alert.alert_id, event.alert.kind.value
    data = msgspec.json.encode(event_view(event))  # contains no line break
    return SentEvent(event_id, b"id: %s\nevent: %s\ndata: %s\n\n" % (event_id.encode(), kind.encode(), data))


def event_routes(context: WebContext, fanout: EventFanout) -> list[Route]:
    """Return the route of the stream."""

    async def events(request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        last = request.headers.get("last-event-id")
        queue, missed = await fanout.join(last)
        return StreamingResponse(
            _stream(fanout, queue, missed),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    return [Route(f"{PREFIX}/events", events, methods=["GET"])]


async def _stream(
    fanout: EventFanout, queue: asyncio.Queue[SentEvent | None], missed: list[SentEvent]
) -> AsyncIterator[bytes]:
    try:
        yield b"retry: 3000\n\n"
        for event in missed:
            yield event.wire
        while True:
            try:
                event_ = await asyncio.wait_for(queue.get(), _PING_S)
            except TimeoutError:
                yield b": ping\n\n"
                continue
            if event_ is None:
                return
            yield event_.wire
    finally:
        fanout.leave(queue)
