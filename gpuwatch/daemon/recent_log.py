"""Keeps the newest log records in memory, for the web page."""

from __future__ import annotations

import logging
from collections import deque

from gpuwatch.daemon.log_records import Redact, SafeRecord, safe_record

MAX_RECORDS = 500  # records of about 300 bytes each


class RecentLog(logging.Handler):
    """Keeps the newest records, made safe as for any other log."""

    def __init__(self, redact: Redact, max_records: int = MAX_RECORDS) -> None:
        super().__init__()
        self._redact = redact
        self._records: deque[SafeRecord] = deque(maxlen=max_records)

    def emit(self, record: logging.LogRecord) -> None:
        """Store it, and drop the oldest."""
        self._records.append(safe_record(record, self._redact))

    def newest(self, level: int = logging.NOTSET, containing: str = "") -> list[SafeRecord]:
        """Return the stored records, newest first: of this level or above, and containing this text."""
        search_text = containing.casefold()
        return [
            record
            for record in reversed(tuple(self._records))
            if record.level >= level and search_text in _searched_text(record).casefold()
        ]


def _searched_text(record: SafeRecord) -> str:
    return f"{record.logger} {record.message} {record.extra} {record.details_text}"
