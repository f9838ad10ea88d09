"""Says a thing once, and once that it is over: the store keeps what was said, and a cache saves the query.

- `AlertReporter`: an alert by its key. Neither a restart nor another daemon repeats it.
- `SeenValues`: values that a provider never sent before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from gpuwatch.domain.alerts.alert import AlertSpec, OutboxAlert
from gpuwatch.errors import StoreError
from gpuwatch.ports import AlertQueue, UnitOfWorkFactory

log = logging.getLogger(__name__)

_KEYS_MAX = 10_000
_VALUE_LENGTH = 200


class AlertReporter:
    """Stores alerts that have a key. If the store fails, call again: nothing was said."""

    def __init__(self, alert_queue: AlertQueue, new_id: Callable[[], str]) -> None:
        self._alert_queue = alert_queue
        self._new_id = new_id
        self._said: set[str] = set()

    def report(self, outbox_alert: OutboxAlert) -> bool | None:
        """Store it unless that was done before; return whether it is new, or None if the store failed."""
        key = outbox_alert.once_key
        assert key, outbox_alert.alert.headline
        if key in self._said:
            return False
        try:
            is_new = self._alert_queue.enqueue(outbox_alert)
        except StoreError as error:
            log.warning("cannot store an alert yet: %s: %s", outbox_alert.alert.headline, error)
            return None
        if len(self._said) >= _KEYS_MAX:
            self._said.clear()  # the store still has them
        self._said.add(key)
        return is_new

    def report_spec(self, spec: AlertSpec, now: datetime, **fields: Any) -> bool | None:
        """Report what a declaration says; `fields` as in `AlertSpec.alert`."""
        return self.report(spec.outbox(self._new_id(), now, **fields))

    def resolve(self, spec: AlertSpec, now: datetime, **fields: Any) -> bool:
        """Say that it is over, if it was said by any process and is worth it; return False if the store failed.

        Args:
            fields: those that identify it.
        """
        assert spec.resolved is not None
        try:
            began = self._alert_queue.newest_key(spec.once.partition("{now")[0].format_map(fields), now)
        except StoreError as error:
            log.warning("cannot say that it is over yet: %s: %s", spec.resolved.headline.format_map(fields), error)
            return False
        if began is None:
            return True
        over = spec.resolved.outbox(self._new_id(), now, **fields)
        return self.report(msgspec.structs.replace(over, once_key=f"over:{began}"[:_VALUE_LENGTH])) is not None


class SeenValues:
    """Records values of one provider that it never sent before."""

    def __init__(self, provider: str, uow_factory: UnitOfWorkFactory) -> None:
        self.provider = provider
        self._uow_factory = uow_factory
        self._known: set[tuple[str, str]] = set()

    def new(
        self,
        kind: str,
        values: Iterable[str],
        now: datetime,
        alert_of: Callable[[list[str]], OutboxAlert] | None = None,
    ) -> list[str]:
        """Record values and return those that are new. Raises StoreError.

        Args:
            alert_of: returns the alert about new values; stored with them, so that neither is lost without the other.
        """
        unsure = [value for value in dict.fromkeys(values) if (kind, value) not in self._known]
        if not unsure:
            return []
        with self._uow_factory.open() as uow:
            new = [one for one in unsure if uow.record_new_value(self.provider, kind, one[:_VALUE_LENGTH], now)]
            if new and alert_of is not None:
                uow.enqueue(alert_of(new))
        self._known.update((kind, value) for value in unsure)
        return new
