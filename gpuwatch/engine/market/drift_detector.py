"""Reports values that a provider never sent before, once each: GPU spellings, fields, reasons to skip a row.

A changed format is an alert of its own; the other values are logged. The store remembers them across restarts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime

from gpuwatch.domain.alerts.alert import outbox_alert
from gpuwatch.engine.alerts.health_alerts import drift_alert
from gpuwatch.errors import NoRowUnderstood
from gpuwatch.ports import Answer, UnitOfWorkFactory

log = logging.getLogger(__name__)

_SAYING = {
    "gpu": "a GPU spelling that is not in the catalogue (stored as it is, searchable)",
    "skip": "rows were not understood",
}


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
