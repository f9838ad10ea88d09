"""Shared by all requests: the current settings, the credentials, the sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gpuwatch.app.launches.glance import Glance, glance
from gpuwatch.app.setup.metrics import TaskHealth
from gpuwatch.bootstrap import real_monotonic, real_now, share_open_stores
from gpuwatch.settings import Settings
from gpuwatch.settings.model import WebSettings
from gpuwatch.web.page import ServingProcess
from gpuwatch.web.page_frame import GlanceReader
from gpuwatch.web.security.credentials import Credentials, LoginLimit, SessionStore


class WebContext:
    """One server's state. A reload replaces the settings as a whole.

    Args:
        announce: receives each one-time code.
        failing_task: returns the periodic task without progress; None: all make progress, or there are none.
        task_health: returns the health of the daemon's tasks in this process; None: there is no daemon.
        owner: what this process can do in addition to reading.

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
        self.settings_read_at = real_now()
        self.failing_task = failing_task
        self.task_health = task_health
        self.owner = owner or ServingProcess()
        self.credentials = Credentials(settings.web, announce)
        self.sessions = SessionStore(real_monotonic)
        self.login_limit = LoginLimit(real_monotonic)
        self.glances = GlanceReader(self._glance)
        self.stopping = threading.Event()

    @property
    def web(self) -> WebSettings:
        """`[web]` of the current settings."""
        return self.settings.web

    def _glance(self) -> Glance:
        with share_open_stores(self.owner.stores):
            return glance(self.settings, real_now())

    def use(self, settings: Settings) -> None:
        """Apply new settings; if credentials change, everybody must log in again.

        Raises:
            SettingsError: the file of a token cannot be used; the old settings stay.
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
        self.settings_read_at = real_now()
