"""Reports status words of a provider's instances that gpuwatch does not know, once each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from gpuwatch.engine.alerts.alerts import outbox_alert
from gpuwatch.errors import StoreError
from gpuwatch.ports import Alert, AlertKind, Instance, UnitOfWorkFactory

log = logging.getLogger(__name__)

_KIND = "status"


class UnknownStatuses:
    """Records the unknown words of one provider; caches what the store already contains."""

    def __init__(self, provider: str, uow_factory: UnitOfWorkFactory, new_id: Callable[[], str]) -> None:
        self._provider = provider
        self._uow_factory = uow_factory
        self._new_id = new_id
        self._known: set[str] = set()

    def check(self, instances: Iterable[Instance], now: datetime) -> None:
        """Alert about words that are new, in the transaction that records them. A failing store delays the report."""
        words = {one.unknown_status for one in instances if one.unknown_status is not None} - self._known
        if not words:
            return
        try:
            with self._uow_factory.open() as uow:
                new = [word for word in sorted(words) if uow.record_new_value(self._provider, _KIND, word[:200], now)]
                if new:
                    uow.enqueue(
                        outbox_alert(unknown_status_alert(self._provider, new, alert_id=self._new_id(), now=now))
                    )
        except StoreError as error:
            log.warning("%s: cannot report unknown status words yet: %s", self._provider, error)
            return
        self._known |= words
        for word in new:
            log.warning("a status of an instance that is not known: %s", word, extra={"provider": self._provider})


def unknown_status_alert(provider: str, words: Sequence[str], *, alert_id: str, now: datetime) -> Alert:
    """Alert that instances have a status that gpuwatch does not know."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.DRIFT,
        subject=provider,
        created_at=now,
        headline=f"{provider}: unknown status of an instance: {', '.join(words[:3])}",
        facts=(("Provider", provider), ("Status", "; ".join(words[:10]))),
        why="The provider's own client did not know it when this gpuwatch was written. Each word is reported once.",
        did="gpuwatch changes nothing because of it. An instance that is not running within `ready_within` is ended.",
        can_do=("See what the provider's own page says: gpuwatch launches", "Check for a newer gpuwatch"),
    )
