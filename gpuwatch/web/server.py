"""The HTTP server on its own thread: its load and its failures do not affect the daemon."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import uvicorn

from gpuwatch.errors import GpuwatchError
from gpuwatch.settings.model import split_listen
from gpuwatch.web.api.event_stream import EventFanout
from gpuwatch.web.application import build_app, build_probe_app, probe_routes

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from gpuwatch.web.context import WebContext

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 2.0
_MAX_CONNECTIONS = 512
_BACKLOG = 128


class CannotListen(GpuwatchError):
    """The address is in use, or does not belong to this machine."""


class WebServer:
    """Serves until `stop`.

    Raises:
        CannotListen: an address, or the certificate, cannot be used.
    """

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._fanout = EventFanout(context)
        probes = probe_routes(context)
        addresses, apps = [context.web.listen], [build_app(context, self._fanout, probes)]
        if context.web.probe_listen:
            addresses.append(context.web.probe_listen)
            apps.append(build_probe_app(context, probes))
        self._sockets: list[socket.socket] = []
        try:
            self._sockets += map(_bound, addresses)
            self._servers = [uvicorn.Server(self._config(app)) for app in apps]
        except (CannotListen, OSError, ssl.SSLError) as error:
            self._close_sockets()
            if isinstance(error, CannotListen):
                raise
            raise CannotListen(f"cannot use web.tls_certificate: {error.strerror or error}") from None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    @property
    def url(self) -> str:
        """The address to open in a browser."""
        scheme = "https" if self._context.web.tls_certificate else "http"
        host, port = self._sockets[0].getsockname()[:2]
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"

    @property
    def probe_port(self) -> int:
        """The port of `web.probe_listen`. Raises IndexError: there is none."""
        return int(self._sockets[1].getsockname()[1])

    def start(self) -> None:
        """Begin to serve."""
        self._context.stopping.clear()
        self._thread.start()

    def stop(self) -> None:
        """Close every connection; waits at most STOP_TIMEOUT_S."""
        self._context.stopping.set()
        for server in self._servers:
            server.should_exit = True
        if self._loop.is_running():
            self._loop.call_soon_threadsafe(self._fanout.close)
        self._thread.join(STOP_TIMEOUT_S)

    def _config(self, app: ASGIApp) -> uvicorn.Config:
        web = self._context.web
        config = uvicorn.Config(
            app,
            lifespan="off",
            interface="asgi3",
            loop="none",
            http="h11",
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=1,
            ssl_certfile=web.tls_certificate,
            ssl_keyfile=web.tls_key,
        )
        config.load()
        return config

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except Exception:
            log.exception("the web server stopped; gpuwatch continues without it")
        finally:
            self._close_sockets()
            self._loop.close()

    async def _serve(self) -> None:
        pairs = zip(self._servers, self._sockets, strict=True)
        await asyncio.gather(*(server.serve(sockets=[listener]) for server, listener in pairs))

    def _close_sockets(self) -> None:
        for listener in self._sockets:
            listener.close()


def _bound(listen: str) -> socket.socket:
    host, port = split_listen(listen)
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise CannotListen(f"web: cannot listen at {listen}: {error.strerror or error}") from None
    return listener
