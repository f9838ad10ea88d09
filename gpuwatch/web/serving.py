"""The HTTP server on its own thread: its load and its failures do not affect the daemon.

Starts and stops the server: for `gpuwatch web`, and beside the daemon.

This module is light: the request handlers are imported when a server starts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec
import uvicorn
from tenacity import RetryCallState, Retrying, retry_if_exception_type, sleep_using_event, wait_fixed

from gpuwatch.bootstrap import real_monotonic
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.chat.replies import Webhooks
from gpuwatch.daemon.log_records import RecentLog
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.installation import install_hint
from gpuwatch.redaction import redact
from gpuwatch.settings.model import split_listen
from gpuwatch.web.api.event_stream import EventFanout
from gpuwatch.web.application import build_app

if TYPE_CHECKING:
    from gpuwatch.app.setup.metrics import TaskHealth
    from gpuwatch.bootstrap.service import Service
    from gpuwatch.daemon.task_progress import TaskProgress
    from gpuwatch.settings import Settings
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


_code_log = logging.getLogger(f"{__name__}.code")  # a separate logger, so that the page Log can omit it

_RETRY_S = 10.0
_STOP_WITHIN_S = 3.0
_NEEDED = ("starlette", "uvicorn", "jinja2", "multipart")


def require_web_extra() -> None:
    """Raise UsageError if the extra is not installed; the message explains how to install it."""
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise UsageError(f"the web page requires {missing[0]}: {install_hint('web')}")


@contextmanager
def serving(settings: Settings, print_line: Callable[[str], None], config: str | None = None) -> Iterator[str]:
    """Serve the page and the API while the block runs; yields the address.

    Args:
        config: the settings file as named; a page's changes to it are applied here at once.

    Raises:
        UsageError: the extra is not installed.
        SettingsError: the file of a token cannot be used.
        CannotListen: the address cannot be used.
    """
    require_web_extra()
    from gpuwatch.web.context import WebContext  # noqa: PLC0415
    from gpuwatch.web.page import ServingProcess  # noqa: PLC0415
    from gpuwatch.web.serving import WebServer  # noqa: PLC0415

    def reload() -> None:
        context.use(msgspec.structs.replace(load_settings(config), web=settings.web))

    owner = ServingProcess(config=config, reload=reload)
    context = WebContext(settings, lambda code: print_line(f"one-time code: {code}"), owner=owner)
    server = WebServer(context)
    print_line(f"web page: {server.url}")
    context.credentials.print_code()
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


class WebInterface:
    """The server beside a daemon: a failed start is logged and retried, and stops nothing else.

    Args:
        config: the settings file as named.
        webhooks: of the chats beside the same daemon.
    """

    def __init__(self, config: str | None, webhooks: Webhooks | None = None) -> None:
        self._config = config
        self._webhooks = webhooks or Webhooks()
        self._context: WebContext | None = None
        self._reported = ""
        self._recent_log = RecentLog(redact)
        # every user of this machine may read the page; changes need the code, which is only in gpuwatch's log
        self._recent_log.addFilter(lambda record: record.name != _code_log.name)

    @contextmanager
    def __call__(self, service: Service, progress: TaskProgress) -> Iterator[None]:
        """Serve while the service runs. Sessions survive a reload of the settings."""
        if not service.settings.web.enabled:
            yield
            return
        logging.getLogger().addHandler(self._recent_log)  # a second call has no effect
        ended = threading.Event()
        thread = threading.Thread(
            target=self._keep_serving, args=(service.settings, progress, ended), name="web", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_STOP_WITHIN_S)

    def _keep_serving(self, settings: Settings, progress: TaskProgress, ended: threading.Event) -> None:
        retrying = Retrying(
            retry=retry_if_exception_type(GpuwatchError),
            wait=wait_fixed(_RETRY_S),
            sleep=sleep_using_event(ended),
            before_sleep=self._report_failure,
        )
        try:
            server = retrying(lambda: None if ended.is_set() else self._start_server(settings, progress))
        except Exception:
            log.exception("cannot start the web page; gpuwatch continues without it")
            return
        if server is not None:
            ended.wait()
            server.stop()

    def _report_failure(self, state: RetryCallState) -> None:
        assert state.outcome is not None
        error = str(state.outcome.exception())
        if error != self._reported:
            log.critical("%s; gpuwatch continues without the web page, and retries", error)
        self._reported = error

    def _start_server(self, settings: Settings, progress: TaskProgress) -> WebServer:
        require_web_extra()
        from gpuwatch.web.context import WebContext  # noqa: PLC0415
        from gpuwatch.web.page import ServingProcess  # noqa: PLC0415
        from gpuwatch.web.serving import WebServer  # noqa: PLC0415

        is_first, context = self._context is None, self._context
        if context is None:
            context = WebContext(
                settings,
                lambda code: _code_log.info("one-time code: %s", code),
                lambda: failing_task(progress),
                lambda: task_health(progress),
                ServingProcess(
                    config=self._config,
                    reload=_reload_daemon,
                    recent_log=self._recent_log,
                    webhooks=self._webhooks,
                ),
            )
        else:
            context.use(settings)
        server = WebServer(context)
        log.info("web page: %s", server.url)
        if is_first:
            context.credentials.print_code()
        self._context = context
        server.start()
        return server


def _reload_daemon() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


def failing_task(progress: TaskProgress) -> str | None:
    """Return the first periodic task that makes no progress or keeps failing, or None."""
    tick_s = real_monotonic()
    stalled = progress.stalled(tick_s) or [fault.task for fault in progress.faults(tick_s)]
    return stalled[0] if stalled else None


def task_health(progress: TaskProgress) -> TaskHealth:
    """Return when each periodic task last succeeded, and which do not."""
    from gpuwatch.app.setup.metrics import TaskHealth  # noqa: PLC0415

    tick_s = real_monotonic()
    failing = {*progress.stalled(tick_s), *(fault.task for fault in progress.faults(tick_s))}
    return TaskHealth(last_success={**progress.last_success, **progress.rounds}, failing=frozenset(failing))
