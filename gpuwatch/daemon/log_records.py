"""Makes a log record safe: no secrets, no control characters, limited size. Every log format uses it."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpuwatch.domain.market.text import is_hostile

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
    return "".join(_escape(character) if is_hostile(character) else character for character in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


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
