"""The newest log records, kept in memory for who looks at them from inside the process, such as the web page."""

from __future__ import annotations

import logging
from collections import deque

from gpuwatch.daemon.log_record import Redact, SafeRecord, safe_record

KEPT = 500  # records, of some 300 bytes each


class RecentLog(logging.Handler):
    """Keeps the newest records, each made safe as for any other log."""

    def __init__(self, redact: Redact, kept: int = KEPT) -> None:
        super().__init__()
        self._redact = redact
        self._records: deque[SafeRecord] = deque(maxlen=kept)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it; the oldest goes."""
        self._records.append(safe_record(record, self._redact))

    def newest(self, level: int = logging.NOTSET, containing: str = "") -> list[SafeRecord]:
        """What is kept, newest first: of this level or above, with this text in it."""
        wanted = containing.casefold()
        return [
            record
            for record in reversed(tuple(self._records))
            if record.level >= level and wanted in _text(record).casefold()
        ]


def _text(record: SafeRecord) -> str:
    return f"{record.logger} {record.message} {record.extra} {record.below}"
