"""Starting and ending the server: for `gpuwatch web`, and beside the daemon.

This module is light: what answers requests is imported when a server starts.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.bootstrap import real_monotonic
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.chat.webhooks import Webhooks
from gpuwatch.daemon.recent_log import RecentLog
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.installation import install_hint
from gpuwatch.redaction import redact

if TYPE_CHECKING:
    from gpuwatch.app.metrics import TaskHealth
    from gpuwatch.bootstrap.service import Service
    from gpuwatch.daemon.task_progress import TaskProgress
    from gpuwatch.settings import Settings
    from gpuwatch.web.context import WebContext
    from gpuwatch.web.server import WebServer

log = logging.getLogger(__name__)
_code_log = logging.getLogger(f"{__name__}.code")  # of its own, so that the page Log can leave it out

_AGAIN_S = 10.0
_STOP_WITHIN_S = 3.0
_NEEDED = ("starlette", "uvicorn", "jinja2", "multipart")


def require_web_extra() -> None:
    """Raises UsageError: the extra is not installed; the line says how."""
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise UsageError(f"the web page requires {missing[0]}: {install_hint('web')}")


@contextmanager
def serving(settings: Settings, say: Callable[[str], None], config: str | None = None) -> Iterator[str]:
    """The page and the API while the block runs; its address.

    Args:
        config: the settings file as it was named; what a page changes in it is in force here at once.

    Raises:
        UsageError: the extra is not installed.
        SettingsError: the file of a token cannot be used.
        CannotListen: the address cannot be used.
    """
    require_web_extra()
    from gpuwatch.web.context import WebContext  # noqa: PLC0415
    from gpuwatch.web.page import ServingProcess  # noqa: PLC0415
    from gpuwatch.web.server import WebServer  # noqa: PLC0415

    def reload() -> None:
        context.use(msgspec.structs.replace(load_settings(config), web=settings.web))

    owner = ServingProcess(config=config, reload=reload)
    context = WebContext(settings, lambda code: say(f"one-time code: {code}"), owner=owner)
    server = WebServer(context)
    say(f"web page: {server.url}")
    context.credentials.print_code()
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


class WebInterface:
    """The server beside a daemon: what keeps it from starting is logged and tried again, and stops nothing else.

    Args:
        config: the settings file as it was named.
        webhooks: of the chats beside the same daemon.
    """

    def __init__(self, config: str | None, webhooks: Webhooks | None = None) -> None:
        self._config = config
        self._webhooks = webhooks or Webhooks()
        self._context: WebContext | None = None
        self._reported = ""
        self._recent_log = RecentLog(redact)
        # every user of this machine may read the page; who may change something reads the code where gpuwatch logs
        self._recent_log.addFilter(lambda record: record.name != _code_log.name)

    @contextmanager
    def __call__(self, service: Service, progress: TaskProgress) -> Iterator[None]:
        """While the service runs. Sessions outlive a reload of the settings."""
        if not service.settings.web.enabled:
            yield
            return
        logging.getLogger().addHandler(self._recent_log)  # once: a second time changes nothing
        ended = threading.Event()
        thread = threading.Thread(target=self._keep, args=(service.settings, progress, ended), name="web", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_STOP_WITHIN_S)

    def _keep(self, settings: Settings, progress: TaskProgress, ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                server = self._started(settings, progress)
            except GpuwatchError as error:
                if str(error) != self._reported:
                    log.critical("%s; gpuwatch continues without the web page, and retries", error)
                self._reported = str(error)
                ended.wait(_AGAIN_S)
            except Exception:
                log.exception("cannot start the web page; gpuwatch continues without it")
                return
            else:
                ended.wait()
                server.stop()

    def _started(self, settings: Settings, progress: TaskProgress) -> WebServer:
        require_web_extra()
        from gpuwatch.web.context import WebContext  # noqa: PLC0415
        from gpuwatch.web.page import ServingProcess  # noqa: PLC0415
        from gpuwatch.web.server import WebServer  # noqa: PLC0415

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
    """The first periodic task that makes no progress, or fails each time; None: all are well."""
    tick_s = real_monotonic()
    stalled = progress.stalled(tick_s) or [fault.task for fault in progress.faults(tick_s)]
    return stalled[0] if stalled else None


def task_health(progress: TaskProgress) -> TaskHealth:
    """When each periodic task last ended well, and which do not."""
    from gpuwatch.app.metrics import TaskHealth  # noqa: PLC0415

    tick_s = real_monotonic()
    failing = {*progress.stalled(tick_s), *(fault.task for fault in progress.faults(tick_s))}
    return TaskHealth(last_success={**progress.last_success, **progress.rounds}, failing=frozenset(failing))
