"""Prevents a lasting fault from filling the log: the same line is logged once, then once an hour with a count."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from gpuwatch.domain.setup.durations import format_moment

REPEAT_AFTER_S = 3600.0
# Loggers whose lines a periodic task repeats at every run. The owner's actions (a reload) are always logged.
PERIODIC = (
    "gpuwatch.engine",
    "gpuwatch.hooks",
    "gpuwatch.providers",
    "gpuwatch.storage",
    "gpuwatch.daemon.scheduler",
    "gpuwatch.daemon.repeating",
)
_MAX_LINES = 1000  # different lines; beyond that the oldest are forgotten


class _Line(msgspec.Struct):
    since_s: float
    newest_s: float
    logged_s: float
    count: int = 1


class RepeatedLines(logging.Filter):
    """Drops a line that was logged less than an hour ago; after an hour, logs it with the number of repetitions.

    Lines are the same if logger, level, text and exception are equal. A record with `alert_id` is a single event and
    always passes.
    """

    def __init__(self, loggers: Sequence[str] = PERIODIC) -> None:
        super().__init__()
        self._loggers = tuple(loggers)
        self._lines: dict[tuple[str, int, str, str], _Line] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log it. A handler calls this under its lock."""
        if not self._is_periodic(record.name) or hasattr(record, "alert_id"):
            return True
        now_s = record.created
        key = (record.name, record.levelno, record.getMessage(), repr(record.exc_info[1]) if record.exc_info else "")
        line = self._lines.pop(key, None)
        if line is None or not 0 <= now_s - line.newest_s < REPEAT_AFTER_S:
            self._remember(key, _Line(now_s, now_s, now_s))
            return True
        line.count, line.newest_s = line.count + 1, now_s
        self._remember(key, line)
        if 0 <= now_s - line.logged_s < REPEAT_AFTER_S:
            return False
        line.logged_s = now_s
        since = datetime.fromtimestamp(line.since_s, UTC)
        record.msg = f"{record.getMessage()} ({line.count} times since {format_moment(since)})"
        record.args = ()
        return True

    def _is_periodic(self, name: str) -> bool:
        return any(name == logger or name.startswith(f"{logger}.") for logger in self._loggers)

    def _remember(self, key: tuple[str, int, str, str], line: _Line) -> None:
        self._lines[key] = line  # ordered: newest last
        if len(self._lines) > _MAX_LINES:
            del self._lines[next(iter(self._lines))]
