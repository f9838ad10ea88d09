"""systemd's journal in its native protocol: every field can be searched (`journalctl PROVIDER=vastai`).

Protocol: "Native Journal Protocol", systemd.io/JOURNAL_NATIVE_PROTOCOL.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import struct
from typing import TextIO

from gpuwatch.daemon.log_records import Redact, SafeRecord, safe_record

JOURNAL = "/run/systemd/journal/socket"

_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7
_RESERVED_FIELDS = frozenset({"PRIORITY", "SYSLOG_IDENTIFIER", "LOGGER", "MESSAGE"})
_MAX_FIELD_LENGTH = 64


class JournalHandler(logging.Handler):
    """Sends one datagram per record. If the journal rejects it, the message goes to the stream."""

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
