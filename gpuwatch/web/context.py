"""What all requests share: the settings in force, who may log in, the stream of events."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gpuwatch.app.metrics import TaskHealth
from gpuwatch.bootstrap import real_monotonic
from gpuwatch.settings import Settings
from gpuwatch.settings.web import WebSettings
from gpuwatch.web.page import ServingProcess
from gpuwatch.web.security.credentials import Credentials
from gpuwatch.web.security.login_limit import LoginLimit
from gpuwatch.web.security.sessions import SessionStore


class WebContext:
    """One server's state. Settings are replaced as a whole when the daemon reads them again.

    Args:
        announce: gets each one-time code.
        failing_task: the periodic task that makes no progress; None: all do, or there are none.
        task_health: the periodic tasks of the daemon in this process; None: there is none.
        owner: what this process can do beside reading.

    Raises:
        SettingsError: the file of a token cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        announce: Callable[[str], None],
        failing_task: Callable[[], str | None] = lambda: None,
        task_health: Callable[[], TaskHealth | None] = lambda: None,
        owner: ServingProcess | None = None,
    ) -> None:
        self._announce = announce
        self.settings = settings
        self.failing_task = failing_task
        self.task_health = task_health
        self.owner = owner or ServingProcess()
        self.credentials = Credentials(settings.web, announce)
        self.sessions = SessionStore(real_monotonic)
        self.login_limit = LoginLimit(real_monotonic)
        self.stopping = threading.Event()

    @property
    def web(self) -> WebSettings:
        """`[web]` of the settings in force."""
        return self.settings.web

    def use(self, settings: Settings) -> None:
        """New settings are in force; with other credentials everybody logs in again.

        Raises:
            SettingsError: the file of a token cannot be used, and the old ones stay.
        """
        old, new = self.settings.web, settings.web
        credentials = Credentials(new, self._announce)
        if (old.password_hash, old.tokens) != (new.password_hash, new.tokens):
            self.sessions.close_all()
            self.credentials = credentials
            credentials.print_code()
        elif new.tokens:  # a token's file may have changed
            self.credentials = credentials
        self.settings = settings
