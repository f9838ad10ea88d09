"""Reports values that a provider never sent before, once each: GPU spellings, fields, reasons to skip a row.

A changed format is an alert of its own; the other values are logged. The store remembers them across restarts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from gpuwatch.domain.alerts.alert import OutboxAlert, outbox_alert
from gpuwatch.engine.alerts.alert_reporter import SeenValues
from gpuwatch.engine.alerts.health_alerts import drift_alert
from gpuwatch.errors import NoRowUnderstood
from gpuwatch.ports import Answer, UnitOfWorkFactory

log = logging.getLogger(__name__)

_SAYING = {
    "gpu": "a GPU spelling that is not in the catalogue (stored as it is, searchable)",
    "skip": "rows were not understood",
}


class DriftDetector:
    """Records new values of one provider."""

    def __init__(self, provider: str, uow_factory: UnitOfWorkFactory, new_id: Callable[[], str]) -> None:
        self._seen = SeenValues(provider, uow_factory)
        self._new_id = new_id

    def check(self, answer: Answer, now: datetime) -> None:
        """Log new values and alert about a changed format. Raises StoreError."""
        unknown_gpus = {offer.gpu_wire for offer in answer.offers if not offer.gpu_known}
        for kind, words in (("gpu", unknown_gpus), ("skip", answer.skipped)):
            for word in self._seen.new(kind, words, now):
                log.warning("%s: %s", _SAYING[kind], word, extra={"provider": self._seen.provider})
        self._seen.new("field", answer.drift, now, lambda new: self._alert(new, now))

    def note_unusable(self, error: NoRowUnderstood, now: datetime) -> None:
        """Note changes that the alert of the health monitor has reported, so that they are not reported again.

        Raises StoreError.
        """
        self._seen.new("field", error.drift, now)

    def _alert(self, new: Sequence[str], now: datetime) -> OutboxAlert:
        return outbox_alert(drift_alert(self._seen.provider, new, alert_id=self._new_id(), now=now))
