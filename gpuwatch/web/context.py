"""Shared by all requests: the current settings, the credentials, the sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta

from gpuwatch.app.history.recent_readings import RecentReadings
from gpuwatch.app.launches.budget_uses import Glance, glance
from gpuwatch.app.setup.metrics import TaskHealth
from gpuwatch.bootstrap import real_monotonic, real_now, share_open_stores
from gpuwatch.errors import StoreError
from gpuwatch.settings import Settings
from gpuwatch.settings.model import WebSettings
from gpuwatch.web.page import ServingProcess, pages
from gpuwatch.web.security.credentials import Credentials, LoginLimit, SessionStore

_GLANCE_FOR = timedelta(seconds=1)


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
        self._glances: RecentReadings[Glance] = RecentReadings(_GLANCE_FOR)
        self.shared_pages: Mapping[str, RecentReadings[Mapping[str, object]]] = {
            page.path: RecentReadings(timedelta(seconds=page.shared_s)) for page in pages() if page.shared_s
        }
        self.stopping = threading.Event()

    @property
    def web(self) -> WebSettings:
        """`[web]` of the current settings."""
        return self.settings.web

    def glance(self) -> Glance:
        """Return the figures at the top of every page; without a store nothing waits, and nothing runs."""
        return self._glances.reading((), self.settings, real_now(), self._read_glance)

    def _read_glance(self) -> Glance:
        try:
            with share_open_stores(self.owner.stores):
                return glance(self.settings, real_now())
        except StoreError:
            return Glance()

    def forget_readings(self) -> None:
        """Read again what clients share: something has changed."""
        self._glances.forget()
        for readings in self.shared_pages.values():
            readings.forget()

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
