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
from gpuwatch.web.application import build_app

if TYPE_CHECKING:
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
        CannotListen: the address, or the certificate, cannot be used.
    """

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._socket = _bound(context.web.listen)
        try:
            self._fanout = EventFanout(context)
            self._server = uvicorn.Server(self._config())
        except (OSError, ssl.SSLError) as error:
            self._socket.close()
            raise CannotListen(f"cannot use web.tls_certificate: {error.strerror or error}") from None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    @property
    def url(self) -> str:
        """The address to open in a browser."""
        scheme = "https" if self._context.web.tls_certificate else "http"
        host, port = self._socket.getsockname()[:2]
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"

    def start(self) -> None:
        """Begin to serve."""
        self._context.stopping.clear()
        self._thread.start()

    def stop(self) -> None:
        """Close every connection; waits at most STOP_TIMEOUT_S."""
        self._context.stopping.set()
        self._server.should_exit = True
        if self._loop.is_running():
            self._loop.call_soon_threadsafe(self._fanout.close)
        self._thread.join(STOP_TIMEOUT_S)

    def _config(self) -> uvicorn.Config:
        web = self._context.web
        config = uvicorn.Config(
            build_app(self._context, self._fanout),
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
            self._loop.run_until_complete(self._server.serve(sockets=[self._socket]))
        except Exception:
            log.exception("the web server stopped; gpuwatch continues without it")
        finally:
            self._socket.close()
            self._loop.close()


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
