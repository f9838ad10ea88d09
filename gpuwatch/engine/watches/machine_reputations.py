"""The current reputations for watches with `min_reputation`: the results of your own launches, read once a minute."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.setup.durations import is_recent
from gpuwatch.domain.watches.reputation import MachineRecords
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.errors import StoreError

log = logging.getLogger(__name__)

REPUTATIONS_READ_EVERY = timedelta(minutes=1)


class MachineReputations:
    """Safe to call from the hunts of several providers at once.

    Args:
        read: returns the results of recent launches, by machine; raises StoreError.
    """

    def __init__(self, read: Callable[[datetime], MachineRecords]) -> None:
        self._read = read
        self._records: MachineRecords = {}
        self._read_at: datetime | None = None
        self._lock = threading.Lock()

    def with_records(self, watch: Watch, now: datetime) -> Watch:
        """Return the watch with its reputations, or unchanged if it needs none. If reading fails, the old ones stay."""
        if watch.min_reputation is None:
            return watch
        with self._lock:
            if self._read_at is None or not is_recent(self._read_at, now, REPUTATIONS_READ_EVERY):
                try:
                    self._records = self._read(now)
                except StoreError as error:
                    log.warning("min_reputation: %s", error)
                self._read_at = now
        return msgspec.structs.replace(watch, records=self._records)
