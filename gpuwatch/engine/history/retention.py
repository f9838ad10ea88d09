"""Deletes what `[history] keep` no longer keeps, a little with each run, and reports what an older store would lose."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from gpuwatch.domain.alerts.alert import OutboxAlert
from gpuwatch.domain.alerts.service_texts import KEEP_UNDECIDED
from gpuwatch.storage.history.prune import SqlPruner
from gpuwatch.storage.history.store_growth import undecided_keep
from gpuwatch.storage.setup.database import Database

log = logging.getLogger(__name__)


class Retention:
    """The daemon's pruning.

    Args:
        enqueue: stores an alert, unless one with its key is stored.
    """

    def __init__(self, store: Database, pruner: SqlPruner, enqueue: Callable[[OutboxAlert], object]) -> None:
        self._store = store
        self._pruner = pruner
        self._enqueue = enqueue
        self._is_reported = False

    def run(self, now: datetime) -> None:
        """Take the next steps of the pass of the day. Raises StoreError."""
        if not self._is_reported:
            self._is_reported = True  # also if it fails: pruning does not depend on it
            if self._pruner.is_undecided() and (undecided := undecided_keep(self._store, now)) is not None:
                log.warning("%s", undecided.line)
                self._enqueue(KEEP_UNDECIDED.outbox(None, now, rows=undecided.rows, keep=undecided.keep))
        deleted = self._pruner.run(now)
        if deleted:
            log.info("pruned", extra={"rows": deleted})
