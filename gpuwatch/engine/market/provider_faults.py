"""Contradictory answers of a provider: reported once a day if they last.

Reports values that a provider never sent before, once each: GPU spellings, fields, reasons to skip a row.

Logs that a provider does not answer: the first failure, then one line an hour with a count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.engine.alerts.health_alerts import drift_alert
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.alerts.outbox_alerts import outbox_alert
from gpuwatch.errors import NoRowUnderstood, PayloadChanged, ProviderError, QuotaSpent, StoreError
from gpuwatch.ports import AlertQueue, Answer, UnitOfWorkFactory

log = logging.getLogger(__name__)


_OFTEN = 3  # a list that lags briefly is not reported


class Contradictions:
    """Counts contradictions by launch.

    Args:
        monotonic: seconds.
    """

    def __init__(self, alert_queue: AlertQueue, launch_alerts: LaunchAlerts, monotonic: Callable[[], float]) -> None:
        self._alert_queue = alert_queue
        self._launch_alerts = launch_alerts
        self._monotonic = monotonic
        self._noted: dict[str, tuple[float, int]] = {}  # launch → since when, how often
        self._reported: dict[str, datetime] = {}

    def note(self, launch: Launch, why: str, lasting_s: float, now: datetime) -> None:
        """Note that two answers about a launch contradict each other; report it after `lasting_s`."""
        since_s, times = self._noted.get(launch.launch_id, (self._monotonic(), 0))
        self._noted[launch.launch_id] = since_s, times + 1
        reported_at = self._reported.get(launch.launch_id)
        reported_today = reported_at is not None and reported_at.date() == now.date()
        if times + 1 < _OFTEN or self._monotonic() - since_s < lasting_s or reported_today:
            return
        try:
            self._alert_queue.enqueue(self._launch_alerts.contradiction(launch, why, now))
            self._reported = {one: at for one, at in self._reported.items() if at.date() == now.date()}
            self._reported[launch.launch_id] = now
        except StoreError as error:
            log.warning("launch %s: cannot report a contradiction yet: %s", launch.launch_id, error)

    def clear(self, launch: Launch) -> None:
        """Note that the answers agree again."""
        self._noted.pop(launch.launch_id, None)


class DriftDetector:
    """Records new values of one provider; caches what the store already contains."""

    def __init__(self, provider: str, uow_factory: UnitOfWorkFactory, new_id: Callable[[], str]) -> None:
        self._provider = provider
        self._uow_factory = uow_factory
        self._new_id = new_id
        self._known: set[tuple[str, str]] = set()

    def check(self, answer: Answer, now: datetime) -> None:
        """Log new values and alert about a changed format. Raises StoreError."""
        gpus = {offer.gpu_wire for offer in answer.offers if not offer.gpu_known}
        met = [("gpu", word) for word in gpus] + [("skip", reason) for reason in answer.skipped]
        for kind, word in self._new(met, now):
            log.warning("%s: %s", _SAYING[kind], word, extra={"provider": self._provider})
        self._report_new("field", answer.drift, now)

    def note_unusable(self, error: NoRowUnderstood, now: datetime) -> None:
        """Note changes that the alert of the health monitor has reported, so that they are not reported again.

        Raises StoreError.
        """
        self._new([("field", note) for note in error.drift], now)

    def _new(self, met: Iterable[tuple[str, str]], now: datetime) -> list[tuple[str, str]]:
        unsure = [word for word in met if word not in self._known]
        if not unsure:
            return []
        with self._uow_factory.open() as uow:
            found = [
                (kind, word) for kind, word in unsure if uow.record_new_value(self._provider, kind, word[:200], now)
            ]
        self._known.update(unsure)
        return found

    def _report_new(self, kind: str, notes: Iterable[str], now: datetime) -> None:
        """Store new values and alert about them in one transaction, so that neither is lost without the other."""
        unsure = [note for note in notes if (kind, note) not in self._known]
        if not unsure:
            return
        with self._uow_factory.open() as uow:
            new = [note for note in unsure if uow.record_new_value(self._provider, kind, note[:200], now)]
            if new:
                alert = drift_alert(self._provider, new, alert_id=self._new_id(), now=now)
                uow.enqueue(outbox_alert(alert))
        self._known.update((kind, note) for note in unsure)


_SAYING = {
    "gpu": "a GPU spelling that is not in the catalogue (stored as it is, searchable)",
    "skip": "rows were not understood",
}


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
