"""Starts and stops the server: for `gpuwatch web`, and beside the daemon.

This module is light: the request handlers are imported when a server starts.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from tenacity import RetryCallState, Retrying, retry_if_exception_type, sleep_using_event, wait_fixed

from gpuwatch.bootstrap import real_monotonic
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.chat.interface import Webhooks
from gpuwatch.daemon.log_records import RecentLog
from gpuwatch.errors import GpuwatchError
from gpuwatch.redaction import redact

if TYPE_CHECKING:
    from gpuwatch.app.setup.metrics import TaskHealth
    from gpuwatch.bootstrap.service import Service
    from gpuwatch.daemon.task_progress import TaskProgress
    from gpuwatch.engine.plan.own_machines import OwnMachines
    from gpuwatch.settings import Settings
    from gpuwatch.web.context import WebContext
    from gpuwatch.web.server import WebServer

log = logging.getLogger(__name__)
_code_log = logging.getLogger(f"{__name__}.code")  # a separate logger, so that the page Log can omit it

_RETRY_S = 10.0
_STOP_WITHIN_S = 3.0


@contextmanager
def serving(settings: Settings, print_line: Callable[[str], None], config: str | None = None) -> Iterator[str]:
    """Serve the page and the API while the block runs; yields the address.

    Args:
        config: the settings file as named; a page's changes to it are applied here at once.

    Raises:
        SettingsError: the file of a token cannot be used.
        CannotListen: the address cannot be used.
    """
    from gpuwatch.web.context import WebContext  # noqa: PLC0415
    from gpuwatch.web.page import ServingProcess  # noqa: PLC0415
    from gpuwatch.web.server import WebServer  # noqa: PLC0415

    web = msgspec.structs.replace(
        settings.web, probe_listen=""
    )  # probes ask for the daemon's health, and there is none

    def reload() -> None:
        context.use(msgspec.structs.replace(load_settings(config), web=web))

    owner = ServingProcess(config=config, reload=reload)
    settings = msgspec.structs.replace(settings, web=web)
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
        self._machines: OwnMachines | None = None
        self._recent_log = RecentLog(redact)
        # every user of this machine may read the page; changes need the code, which is only in gpuwatch's log
        self._recent_log.addFilter(lambda record: record.name != _code_log.name)

    @contextmanager
    def __call__(self, service: Service, progress: TaskProgress) -> Iterator[None]:
        """Serve while the service runs. Sessions survive a reload of the settings."""
        if not service.settings.web.enabled:
            yield
            return
        self._machines = service.own_machines
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
        from gpuwatch.web.context import WebContext  # noqa: PLC0415
        from gpuwatch.web.page import ServingProcess  # noqa: PLC0415
        from gpuwatch.web.server import WebServer  # noqa: PLC0415

        is_first, context = self._context is None, self._context
        if context is None:
            context = WebContext(
                settings,
                lambda code: _code_log.info("one-time code: %s", code),
                lambda: failing_task(progress),
                lambda: task_health(progress, self._machines),
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


def task_health(progress: TaskProgress, machines: OwnMachines | None = None) -> TaskHealth:
    """Return when each periodic task last succeeded, which do not, and what was read of the owner's own machines."""
    from gpuwatch.app.setup.metrics import TaskHealth  # noqa: PLC0415

    tick_s = real_monotonic()
    failing = {*progress.stalled(tick_s), *(fault.task for fault in progress.faults(tick_s))}
    return TaskHealth(
        last_success={**progress.last_success, **progress.rounds},
        failing=frozenset(failing),
        machines=() if machines is None else machines.newest,
    )
