"""Pings `[watchdog] heartbeat_url`, as healthchecks.io expects: URL/start, URL every healthy minute, URL/fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from gpuwatch.errors import GpuwatchError
from gpuwatch.ports.http import HttpClient, NetError

log = logging.getLogger(__name__)

INTERVAL_S = 60.0
_TIMEOUT_S = 10.0
_MAX_BYTES = 64 * 1024


class Heartbeat:
    """Pings a URL, so that its monitor notices when gpuwatch, its machine or its network fails. Waits for no answer.

    Args:
        url: secret; it is never shown.
        http: opens a client at the first ping.
    """

    def __init__(self, url: str, http: Callable[[], HttpClient]) -> None:
        self.url = url
        self._open_client = http
        self._http: HttpClient | None = None
        self._was_healthy: bool | None = None  # None: nothing was sent yet
        self._next_s = 0.0
        self.is_busy = False
        self._has_failed = False

    def report(self, is_healthy: bool, tick_s: float) -> None:
        """Ping once a minute, or at once when gpuwatch becomes unhealthy.

        Args:
            tick_s: now, on the monotonic clock.
        """
        has_changed = self._was_healthy is not is_healthy
        if self.is_busy or not (has_changed or tick_s >= self._next_s):
            return
        suffix = "start" if self._was_healthy is None and is_healthy else "" if is_healthy else "fail"
        self._was_healthy, self._next_s, self.is_busy = is_healthy, tick_s + INTERVAL_S, True
        threading.Thread(target=self._send, args=(suffix,), name="heartbeat", daemon=True).start()

    def _send(self, suffix: str) -> None:
        try:
            if self._http is None:
                self._http = self._open_client()
            url = f"{self.url}/{suffix}" if suffix else self.url
            reply = self._http.ask("GET", url, deadline_s=_TIMEOUT_S, max_bytes=_MAX_BYTES)
            if reply.status >= 400:
                raise NetError(f"its server answers {reply.status}")
        except GpuwatchError as error:
            if not self._has_failed:
                log.warning("cannot send the heartbeat: %s", error)
            self._has_failed = True
        else:
            if self._has_failed:
                log.info("the heartbeat works again")
            self._has_failed = False
        finally:
            self.is_busy = False
