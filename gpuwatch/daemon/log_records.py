"""Log records: made safe for every format, logged once while a fault lasts, and the newest kept for the web page.

Safe: no secrets, no control characters, limited size."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from gpuwatch.domain.market.offer import is_hostile
from gpuwatch.domain.setup.durations import format_moment

Redact = Callable[[str], str]

MAX_MESSAGE_LENGTH = 8_000  # characters: far below the limit of a datagram to the journal
MAX_TRACE_LENGTH = 24_000
MAX_VALUE_LENGTH = 2_000
MAX_ITEMS = 50
MAX_DEPTH = 4
_MASK = "***"
_DETAILS = "details"
_RECORD_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeRecord:
    """The safe parts of one record.

    Attributes:
        created_s: seconds since 1970, UTC.
        extra: the keys of `extra=`, sorted; values are JSON values.
        trace: the traceback, each line indented so that none looks like a record of its own; "" without one.
        details: `extra={"details": […]}`: further lines of the message, such as the body of an alert.
    """

    created_s: float
    level: int
    logger: str
    message: str
    extra: Mapping[str, object]
    trace: str
    details: tuple[str, ...] = ()

    @property
    def details_text(self) -> str:
        """The text below the message, indented, in formats that allow several lines per record."""
        details = (f"    {line}" for line in self.details)
        return "\n".join((*details, *((self.trace,) if self.trace else ())))


def safe_record(record: logging.LogRecord, redact: Redact) -> SafeRecord:
    """Return the record's parts, each redacted before it is escaped and truncated."""
    return SafeRecord(
        created_s=record.created,
        level=record.levelno,
        logger=_line(record.name, redact, MAX_VALUE_LENGTH),
        message=_line(_message(record), redact, MAX_MESSAGE_LENGTH),
        extra={
            _line(key, redact, MAX_VALUE_LENGTH): _value(key, value, redact, MAX_DEPTH)
            for key, value in sorted(record.__dict__.items())
            if key not in _RECORD_ATTRIBUTES and key != _DETAILS
        },
        trace=_trace(record, redact),
        details=tuple(
            _line(_text_of(line), redact, MAX_VALUE_LENGTH) for line in list(getattr(record, _DETAILS, ()))[:MAX_ITEMS]
        ),
    )


def escaped(text: str) -> str:
    """Escape every control, format, surrogate and unassigned character, so that a line stays one line."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        one.encode("unicode_escape", "surrogatepass").decode("ascii") if is_hostile(one) else one for one in text
    )


def _line(text: str, redact: Redact, max_length: int) -> str:
    """Redact first: a truncated or escaped secret could not be recognised."""
    line = escaped(redact(text))
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # an error in a log call must not lose the line, or fail the task
        return f"{_text_of(record.msg)} (arguments do not match)"


def _value(key: str, value: object, redact: Redact, depth: int) -> object:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if redact(f"{key}=probe0123456789") != f"{key}=probe0123456789":  # the name alone marks it as secret
        return _MASK
    if depth and isinstance(value, Mapping):
        return {
            _line(str(name), redact, MAX_VALUE_LENGTH): _value(str(name), item, redact, depth - 1)
            for name, item in list(value.items())[:MAX_ITEMS]
        }
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return [_value(key, item, redact, depth - 1) for item in list(value)[:MAX_ITEMS]]
    return _line(_text_of(value), redact, MAX_VALUE_LENGTH)


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception:  # a value without a text form must not lose the line
        return f"<{type(value).__name__}>"


def _trace(record: logging.LogRecord, redact: Redact) -> str:
    text = ""
    if record.exc_info and record.exc_info[1] is not None:
        text = "".join(traceback.format_exception(record.exc_info[1]))
    if record.stack_info:
        text += record.stack_info
    if not text:
        return ""
    text = redact(text.rstrip("\n"))
    if len(text) > MAX_TRACE_LENGTH:
        text = "…" + text[-MAX_TRACE_LENGTH:]  # the end names the error
    return "\n".join("    " + escaped(line) for line in text.split("\n"))


# --- repeated lines ---------------------------------------------------------------------------------------------------


REPEAT_AFTER_S = 3600.0
# Loggers whose lines a periodic task repeats at every run. The owner's actions (a reload) are always logged.
PERIODIC = (
    "gpuwatch.engine",
    "gpuwatch.hooks",
    "gpuwatch.providers",
    "gpuwatch.storage",
    "gpuwatch.daemon.scheduler",
    "gpuwatch.daemon.scheduler",
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


# --- the newest records -----------------------------------------------------------------------------------------------


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
