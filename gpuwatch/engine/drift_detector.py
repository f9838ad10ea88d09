"""Detects what a provider never answered before, and reports it once: GPU spellings, fields, reasons to skip a row."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime

from gpuwatch.engine.alerts import outbox_alert
from gpuwatch.engine.health_alerts import drift_alert
from gpuwatch.ports import Answer, UnitOfWorkFactory

log = logging.getLogger(__name__)


class DriftDetector:
    """Records new values of one provider; remembers within the process what the store knows already."""

    def __init__(self, provider: str, uow_factory: UnitOfWorkFactory, new_id: Callable[[], str]) -> None:
        self._provider = provider
        self._uow_factory = uow_factory
        self._new_id = new_id
        self._known: set[tuple[str, str]] = set()

    def check(self, answer: Answer, now: datetime) -> None:
        """Log what is new and alert about a changed format. Raises StoreError."""
        gpus = {offer.gpu_wire for offer in answer.offers if not offer.gpu_known}
        met = [("gpu", word) for word in gpus] + [("skip", reason) for reason in answer.skipped]
        for kind, word in self._new(met, now):
            log.warning("%s: %s", _SAYING[kind], word, extra={"provider": self._provider})
        drift = [word for _, word in self._new([("field", note) for note in answer.drift], now)]
        if drift:
            self._report(drift, now)

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

    def _report(self, drift: list[str], now: datetime) -> None:
        log.warning("the format changed: %s", "; ".join(drift), extra={"provider": self._provider})
        alert = drift_alert(self._provider, drift, alert_id=self._new_id(), now=now)
        with self._uow_factory.open() as uow:
            uow.enqueue(outbox_alert(alert))


_SAYING = {
    "gpu": "a GPU spelling that the catalogue does not know (kept as it is, searchable)",
    "skip": "rows were not understood",
}
