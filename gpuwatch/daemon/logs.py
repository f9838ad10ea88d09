"""Logging for people, for machines and for the journal; always to standard error, never with a secret.

Text on a terminal, fields in the journal if systemd has connected standard error to it, else one JSON object per line.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TextIO

from gpuwatch.daemon.log_records import Redact, RepeatedLines, SafeRecord, safe_record

log = logging.getLogger(__name__)


STYLES = ("auto", "text", "json", "journal")
_NOISY_LOGGERS = ("alembic", "apscheduler", "httpcore", "httpx")  # they log heartbeats; gpuwatch logs changes


def configure(style: str = "auto", level: int = logging.INFO, redact: Redact = str) -> None:
    """Send all logging of this process to standard error, or to the journal behind it.

    Python's warnings and exceptions of threads are logged, too: otherwise their tracebacks would not be redacted.

    Args:
        style: one of STYLES; "auto" decides by the kind of standard error.
        level: the minimum level; at least WARNING for chatty libraries.
        redact: applied to every message, extra and traceback.
    """
    handler = build_handler(style, sys.stderr, os.environ, redact)
    handler.addFilter(RepeatedLines())
    root = logging.getLogger()
    for existing in list(root.handlers):
        root.removeHandler(existing)
        existing.close()
    root.addHandler(handler)
    root.setLevel(level)
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    threading.excepthook = _log_thread_exception


def build_handler(style: str, stream: TextIO, env: Mapping[str, str], redact: Redact) -> logging.Handler:
    """Return the handler for a style.

    Raises:
        ValueError: unknown style.
    """
    if style not in STYLES:
        raise ValueError(f"unknown log style {style!r}; expected one of {', '.join(STYLES)}")
    if style == "journal" or (style == "auto" and _is_journal(stream, env)):
        return JournalHandler(JOURNAL, stream, redact)
    text = style == "text" or (style == "auto" and stream.isatty())
    return LineHandler(stream, record_text if text else as_json, redact)


class LineHandler(logging.Handler):
    """Writes each record as one line (in text style followed by its indented traceback) and flushes it."""

    def __init__(self, stream: TextIO, write: Callable[[SafeRecord], str], redact: Redact) -> None:
        super().__init__()
        self._stream = stream
        self._write = write
        self._redact = redact

    def emit(self, record: logging.LogRecord) -> None:
        """Write it. If that fails the record is lost: there is no other place to report it."""
        try:
            line = self._write(safe_record(record, self._redact))
            encoding = self._stream.encoding or "utf-8"
            self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            return


def record_text(safe: SafeRecord) -> str:
    """Format as `2026-11-21T04:36:00Z warning  the message  key=value`, then its details and the traceback."""
    extra = "".join(f"  {key}={_text_value(value)}" for key, value in safe.extra.items())
    level = logging.getLevelName(safe.level).lower()
    line = f"{_utc(safe.created_s)} {level:<8} {safe.message}{extra}"
    return f"{line}\n{safe.details_text}" if safe.details_text else line


def as_json(safe: SafeRecord) -> str:
    """Format as one object: `at`, `level`, `logger`, `message`, `details`, the extras, `exception`."""
    fields: dict[str, object] = {
        "at": _utc(safe.created_s),
        "level": logging.getLevelName(safe.level).lower(),
        "logger": safe.logger,
        "message": safe.message,
    }
    if safe.details:
        fields["details"] = list(safe.details)
    if safe.trace:
        fields["exception"] = safe.trace
    extra = {(f"{key}_" if key in fields else key): _json_value(value) for key, value in safe.extra.items()}
    return json.dumps({**fields, **extra}, ensure_ascii=False, allow_nan=False)


def _text_value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(_json_value(value), ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and (" " in text or not text) else text


def _json_value(value: object) -> object:
    """Replace NaN and infinity, which JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _json_value(item) for key, item in value.items()}
    return [_json_value(item) for item in value] if isinstance(value, list) else value


def _utc(seconds: float) -> str:
    at = datetime.fromtimestamp(seconds, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_journal(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Whether a stream leads to the journal: JOURNAL_STREAM has its device and inode (systemd.exec(5))."""
    try:
        info = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return env.get("JOURNAL_STREAM", "") == f"{info.st_dev}:{info.st_ino}"


def _log_thread_exception(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or isinstance(args.exc_value, SystemExit):
        return
    name = args.thread.name if args.thread else "?"
    log.error("thread %s died", name, exc_info=args.exc_value)


# --- the journal ------------------------------------------------------------------------------------------------------


JOURNAL = "/run/systemd/journal/socket"

_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7
_RESERVED_FIELDS = frozenset({"PRIORITY", "SYSLOG_IDENTIFIER", "LOGGER", "MESSAGE"})
_MAX_FIELD_LENGTH = 64


class JournalHandler(logging.Handler):
    """Sends one datagram per record, in the journal's native protocol: every field can be searched there.

    If the journal rejects it, the message goes to the stream.

    Source: "Native Journal Protocol", systemd.io/JOURNAL_NATIVE_PROTOCOL.
    """

    def __init__(self, address: str, stream: TextIO, redact: Redact) -> None:
        super().__init__()
        self._address = address
        self._stream = stream
        self._redact = redact
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(1.0)

    def emit(self, record: logging.LogRecord) -> None:
        """Send it. A record that neither the journal nor the stream takes is lost."""
        safe = safe_record(record, self._redact)
        try:
            self._socket.sendto(datagram(safe), self._address)
        except OSError:
            self._write_to_stream(safe)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()

    def _write_to_stream(self, safe: SafeRecord) -> None:
        try:
            self._stream.write(f"<{_priority(safe.level)}>{safe.message}\n")
            self._stream.flush()
        except (OSError, ValueError):
            return


def datagram(safe: SafeRecord) -> bytes:
    """Return the record as the journal's fields; extras in upper case."""
    message = f"{safe.message}\n{safe.details_text}" if safe.details_text else safe.message
    fields = {
        "PRIORITY": str(_priority(safe.level)),
        "SYSLOG_IDENTIFIER": "gpuwatch",
        "LOGGER": safe.logger,
        "MESSAGE": message,
    }
    for key, value in safe.extra.items():
        fields[_field_name(key)] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return b"".join(_field(name, value.encode("utf-8", "backslashreplace")) for name, value in fields.items())


def _field(name: str, value: bytes) -> bytes:
    if b"\n" not in value:
        return name.encode() + b"=" + value + b"\n"
    return name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"


def _field_name(key: str) -> str:
    """Return a valid field name: upper case, digits and underscores after a letter; never one of the record's own."""
    name = re.sub(r"[^A-Z0-9_]", "_", key.upper()).lstrip("_0123456789") or "EXTRA"
    return (f"EXTRA_{name}" if name in _RESERVED_FIELDS else name)[:_MAX_FIELD_LENGTH]


def _priority(level: int) -> int:
    return next((priority for min_level, priority in _PRIORITIES if level >= min_level), _DEBUG)
