"""What an answer holds that was never met before: GPU spellings, fields, reasons to skip a row. Each is told once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime

from gpuwatch.engine.alerts import drift_alert, life_of
from gpuwatch.ports import AlertKind, Answer, Desk

log = logging.getLogger(__name__)


class Novelty:
    """Notes new words of one provider; remembers within the process what the store knows already."""

    def __init__(self, provider: str, desk: Desk, channels: tuple[str, ...], new_id: Callable[[], str]) -> None:
        self._provider = provider
        self._desk = desk
        self._channels = channels
        self._new_id = new_id
        self._known: set[tuple[str, str]] = set()

    def look(self, answer: Answer, now: datetime) -> None:
        """Log what is new; a changed format is also told to the owner. Raises StoreError."""
        gpus = {offer.gpu_wire for offer in answer.offers if not offer.gpu_known}
        met = [("gpu", word) for word in gpus] + [("skip", reason) for reason in answer.skipped]
        for kind, word in self._new(met, now):
            log.warning("%s: %s", _SAYING[kind], word, extra={"provider": self._provider})
        drift = [word for _, word in self._new([("field", note) for note in answer.drift], now)]
        if drift:
            self._tell(drift, now)

    def _new(self, met: Iterable[tuple[str, str]], now: datetime) -> list[tuple[str, str]]:
        unsure = [word for word in met if word not in self._known]
        if not unsure:
            return []
        with self._desk.open() as page:
            found = [(kind, word) for kind, word in unsure if page.new_word(self._provider, kind, word[:200], now)]
        self._known.update(unsure)
        return found

    def _tell(self, drift: list[str], now: datetime) -> None:
        log.warning("the format changed: %s", "; ".join(drift), extra={"provider": self._provider})
        alert = drift_alert(self._provider, drift, alert_id=self._new_id(), now=now)
        with self._desk.open() as page:
            page.tell(alert, self._channels, now + life_of(AlertKind.DRIFT))


_SAYING = {
    "gpu": "a GPU spelling that the catalogue does not know (kept as it is, searchable)",
    "skip": "rows were not understood",
}
