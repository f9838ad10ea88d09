"""Logs that a provider does not answer: the first failure, then one line an hour with a count."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from gpuwatch.errors import PayloadChanged, ProviderError, QuotaSpent

log = logging.getLogger(__name__)

REPEAT_AFTER = timedelta(hours=1)


class FailureLog:
    """Logs the failures of one provider, on all its lanes. Not thread-safe: `HealthMonitor` holds its lock.

    Intermittent failures count as one fault while less than an hour lies between them.

    Args:
        base_url: its host is part of every line.
    """

    def __init__(self, provider: str, base_url: str) -> None:
        self._provider = provider
        self._host = urlsplit(base_url).netloc or base_url
        self._since: datetime | None = None
        self._newest_at: datetime | None = None
        self._logged_at: datetime | None = None
        self._count = 0
        self._kinds: set[str] = set()  # kinds of failures that were logged
        self._open_lane: str | None = None  # lane of the newest logged failure, until a line logs its end

    def failed(self, lane: str, error: ProviderError, now: datetime) -> None:
        """Log a failed search. Another kind of failure gets a line of its own; an unsent request is not a failure."""
        if not error.was_sent:
            return
        if self._newest_at is None or not timedelta(0) <= now - self._newest_at < REPEAT_AFTER:
            self._since, self._count, self._logged_at, self._kinds = now, 0, None, set()
        self._newest_at, self._count = now, self._count + 1
        kind = type(error).__name__
        lately = self._logged_at is not None and timedelta(0) <= now - self._logged_at < REPEAT_AFTER
        if lately and kind in self._kinds:
            return
        self._logged_at, self._open_lane = now, lane
        self._kinds.add(kind)
        self._warn(lane, error)

    def answered(self, lane: str) -> None:
        """Note a complete answer."""
        if self._open_lane == lane:
            self._open_lane = None
            log.info("%s answers again (%s)", self._provider, lane, extra=self._extra(lane))

    def recovered(self, lane: str) -> None:
        """Note the end of its blindness, which the log already shows through its alert."""
        if self._open_lane == lane:
            self._open_lane = None

    def _warn(self, lane: str, error: ProviderError) -> None:
        cause = str(error).removeprefix(f"{self._provider}: ")
        still = f"still {_state(error)}, {self._count} failures since {self._since:%Y-%m-%d %H:%M} UTC"
        state = _state(error) if self._count == 1 else still
        log.warning("%s is %s (%s, %s): %s", self._provider, state, self._host, lane, cause, extra=self._extra(lane))

    def _extra(self, lane: str) -> dict[str, str]:
        return {"provider": self._provider, "lane": lane}


def _state(error: ProviderError) -> str:
    if isinstance(error, PayloadChanged):
        return "not understood"
    return "not polled" if isinstance(error, QuotaSpent) else "not answering"
