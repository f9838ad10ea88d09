"""Tracks for each lane whether a provider answers usably: a quiet hunt does not hide a broken sweep.

A lane is blind after three intervals without a complete answer, and at once after an answer in which no row is
usable. An answer without rows proves a connection, not that gpuwatch could read its rows. A pause of gpuwatch's own,
because no query is due or the day's rows are used, is not the provider's silence.

`FailureLog` logs the failures in between: the first one, then one line an hour with a count.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import msgspec

from gpuwatch.domain.alerts.alert import outbox_alert
from gpuwatch.domain.alerts.market_texts import OWN_ROWS_USED, QUOTA_USED
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.engine.alerts.health_alerts import blind_alert, drift_alert, recovery_alert
from gpuwatch.errors import NoRowUnderstood, PayloadChanged, ProviderError, QuotaSpent
from gpuwatch.ports import LANES, SWEEP, Alert, ProviderHealth, UnitOfWorkFactory

log = logging.getLogger(__name__)

BLIND_AFTER_INTERVALS = 3
LOG_AGAIN_AFTER = timedelta(hours=1)


class _Lane:
    """One lane: its stored health, and the queries whose last answer had no usable row."""

    def __init__(self, health: ProviderHealth, tick_s: float) -> None:
        self.health = health
        self.complete_s = tick_s  # monotonic: the last complete answer, the end of an own pause, or the start
        self.is_failing = False  # the newest query was not answered completely
        self.without_rows: dict[str, datetime] = {}  # query → time
        self.understood_at: datetime | None = None  # time of the last usable rows

    @property
    def is_blind(self) -> bool:
        return self.health.blind_since is not None

    def take(self, query: str, has_rows: bool, now: datetime) -> None:
        """Note a complete answer. One without rows clears its query once other queries return usable rows again."""
        if has_rows:
            self.understood_at = now
            self.without_rows.pop(query, None)
        elif self.understood_at is not None and self.understood_at >= self.without_rows.get(query, now):
            self.without_rows.pop(query, None)

    def has_recovered(self) -> bool:
        """Whether the last answer ends the blindness. After a restart, only usable rows do."""
        return not self.without_rows and (self.understood_at is not None or not self.health.not_understood)


class HealthMonitor:
    """The health of one provider. Called from its hunt, its sweep and its periodic health check.

    Args:
        monotonic: seconds; silence is measured by it, because the wall clock may jump.
        base_url: for log lines.
    """

    def __init__(
        self,
        provider: str,
        uow_factory: UnitOfWorkFactory,
        new_id: Callable[[], str],
        monotonic: Callable[[], float],
        base_url: str = "",
    ) -> None:
        self._provider = provider
        self._uow_factory = uow_factory
        self._new_id = new_id
        self._lock = threading.Lock()
        self._monotonic = monotonic
        stored, tick_s = uow_factory.provider_health(), monotonic()
        self._lanes = {lane: _Lane(stored.get((provider, lane), ProviderHealth()), tick_s) for lane in LANES}
        self._failures = FailureLog(provider, base_url)
        self._paused_until: datetime | None = None  # the reported pause of gpuwatch's own

    @property
    def lanes(self) -> Mapping[str, ProviderHealth]:
        """The current state of each lane."""
        return {name: lane.health for name, lane in self._lanes.items()}

    def answered(self, lane: str, query: str, has_rows: bool, now: datetime) -> None:
        """Note a complete answer. Raises StoreError.

        Args:
            query: the query as text, the same text each time.
            has_rows: whether the answer has usable rows.
        """
        with self._lock:
            one = self._lanes[lane]
            one.complete_s, one.is_failing = self._monotonic(), False
            one.take(query, has_rows, now)
            if not one.is_blind:
                one.health = ProviderHealth(complete_at=now)
                self._failures.answered(lane)
            elif one.has_recovered():
                self._recovers(lane, now)
            else:
                one.health = msgspec.structs.replace(one.health, complete_at=now)

    def answered_in_part(self, lane: str, why: str) -> None:
        """Note an answer that lacks some of the requested data: neither complete nor a failure to answer."""
        with self._lock:
            one = self._lanes[lane]
            one.is_failing = True
            one.health = msgspec.structs.replace(one.health, last_error=why)

    def failed(self, lane: str, query: str, error: ProviderError, now: datetime) -> None:
        """Note a failed query. A used-up quota and an answer without usable rows make the lane blind at once.

        Raises StoreError.
        """
        with self._lock:
            one = self._lanes[lane]
            one.is_failing = True
            one.health = msgspec.structs.replace(one.health, last_error=str(error))
            self._failures.failed(lane, error, now)
            changes = error.drift if isinstance(error, NoRowUnderstood) else ()
            if isinstance(error, NoRowUnderstood):
                one.without_rows[query] = now
                self._not_understood(lane, changes, now)
            elif isinstance(error, QuotaSpent) and not one.is_blind:
                resets = format_moment(error.resets_at)
                alert = QUOTA_USED.alert(self._new_id(), now, subject=self._provider, resets=resets)
                self._goes_blind(lane, msgspec.structs.replace(one.health, blind_since=now), now, alert)
            if one.is_blind and not one.health.reported and not self._is_covered(lane):
                # the other lane, whose alert covered it, recovered
                self._goes_blind(lane, one.health, now, changes=changes)

    def nothing_due(self, lane: str) -> None:
        """Note that gpuwatch sent no query, because none was due; after a failure, the silence goes on."""
        with self._lock:
            one = self._lanes[lane]
            if not one.is_failing:
                one.complete_s = self._monotonic()

    def paused_for_rows(self, rows_per_day: int, rows_used: int, resets_at: datetime, now: datetime) -> None:
        """Report once a day that gpuwatch polls no more, because the rows of its own plan are used.

        Raises StoreError.
        """
        for lane in LANES:
            self.nothing_due(lane)
        if self._paused_until != resets_at:
            alert = OWN_ROWS_USED.outbox(
                self._new_id(),
                now,
                subject=self._provider,
                resets_at=resets_at,
                resets=format_moment(resets_at),
                rows_used=rows_used,
                rows_per_day=rows_per_day,
            )
            with self._uow_factory.open() as uow:
                uow.enqueue(alert)
            self._paused_until = resets_at

    def check(self, lane: str, interval_s: float, now: datetime) -> None:
        """Mark a lane blind that was silent for too long. A sweep that was never tried is exempt: it may lack rows."""
        with self._lock:
            one = self._lanes[lane]
            if one.is_blind or (lane == SWEEP and one.health.last_error is None):
                return
            silent_s = self._monotonic() - one.complete_s
            if silent_s > interval_s * BLIND_AFTER_INTERVALS:
                since = now - timedelta(seconds=silent_s)
                self._goes_blind(lane, msgspec.structs.replace(one.health, blind_since=since), now)

    def not_polled(self, lane: str) -> None:
        """Reset a lane that is not polled any more: it cannot be blind. Raises StoreError."""
        with self._lock:
            if self._lanes[lane].is_blind:
                self._save(lane, ProviderHealth())

    # --- transitions --------------------------------------------------------------------------------------------------

    def _is_covered(self, lane: str) -> bool:
        """Whether the other lane's blindness was reported: one fault on two lanes is one alert."""
        others = [one.health for name, one in self._lanes.items() if name != lane]
        return any(health.blind_since is not None and health.reported for health in others)

    def _not_understood(self, lane: str, changes: Sequence[str], now: datetime) -> None:
        one = self._lanes[lane]
        if one.health.not_understood:
            return
        health = msgspec.structs.replace(one.health, not_understood=True)
        if one.is_blind:
            self._save(lane, health, self._change_alert(changes, now))
        else:
            self._goes_blind(lane, msgspec.structs.replace(health, blind_since=now), now, changes=changes)

    def _goes_blind(
        self,
        lane: str,
        health: ProviderHealth,
        now: datetime,
        alert: Alert | None = None,
        changes: Sequence[str] = (),
    ) -> None:
        """Mark it blind with an alert, which is also logged; if the other lane's alert covers it, only log a line.

        Args:
            changes: of the format, if they are the cause: part of the alert, because one cause is one alert.
        """
        covered = self._is_covered(lane)
        health = msgspec.structs.replace(health, reported=not covered)
        if covered:
            alert = self._change_alert(changes, now)
        elif alert is None:
            alert = blind_alert(self._provider, lane, health, changes, alert_id=self._new_id(), now=now)
        self._save(lane, health, alert)
        if covered:
            log.warning("%s: the %s is blind as well", self._provider, lane, extra=self._extra(lane))

    def _change_alert(self, changes: Sequence[str], now: datetime) -> Alert | None:
        """Alert about a changed format after the provider's silence was reported; None: another lane's alert did."""
        if not changes or any(one.health.not_understood for one in self._lanes.values()):
            return None
        return drift_alert(self._provider, changes, alert_id=self._new_id(), now=now)

    def _recovers(self, lane: str, now: datetime) -> None:
        before = self._lanes[lane].health
        outbox_alert = recovery_alert(self._provider, lane, before, alert_id=self._new_id(), now=now)
        self._save(lane, ProviderHealth(complete_at=now), outbox_alert if before.reported else None)
        self._failures.recovered(lane)
        if not before.reported:
            log.info("%s: the %s is answered again as well", self._provider, lane, extra=self._extra(lane))

    def _save(self, lane: str, health: ProviderHealth, alert: Alert | None = None) -> None:
        """Save to the store first: if that fails, the next failure or answer tries again.

        No alert and no change if another process has stored the same change before.
        """
        with self._uow_factory.open() as uow:
            stored = uow.health(self._provider, lane)
            if _kind(stored) == _kind(health) != _kind(self._lanes[lane].health):
                health = msgspec.structs.replace(stored, last_error=health.last_error)
            else:
                if alert is not None:
                    uow.enqueue(outbox_alert(alert))
                uow.save_health(self._provider, lane, health)
        self._lanes[lane].health = health

    def _extra(self, lane: str) -> dict[str, str]:
        return {"provider": self._provider, "lane": lane}


def _kind(health: ProviderHealth) -> tuple[bool, bool]:
    return health.blind_since is not None, health.not_understood


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
        if self._newest_at is None or not timedelta(0) <= now - self._newest_at < LOG_AGAIN_AFTER:
            self._since, self._count, self._logged_at, self._kinds = now, 0, None, set()
        self._newest_at, self._count = now, self._count + 1
        kind = type(error).__name__
        lately = self._logged_at is not None and timedelta(0) <= now - self._logged_at < LOG_AGAIN_AFTER
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
