"""Translates database errors into messages of one line, without secrets. Imports no driver."""

from __future__ import annotations

import re
from typing import Final

from gpuwatch.errors import StoreDiskFailed, StoreError

# SQLite's primary result codes (sqlite.org/rescode.html); an extended code keeps the primary in its lowest byte
_SQLITE = {
    5: "has been locked by another program for too long; end it, or try again",
    6: "has been locked by another program for too long; end it, or try again",
    8: "cannot be written; check the permissions of the file and its folder",
    10: "cannot be read or written (the disk is full, reports an error, or a size limit was reached); check the disk, "
    "and gpuwatch continues automatically",
    11: "is damaged; replace it with a backup (see `gpuwatch store backup`)",
    13: "cannot grow: the disk is full; free some space, and gpuwatch continues automatically",
    14: "cannot be opened; check that its folder exists and is writable",
    23: "may not be accessed (not authorised)",
    26: "is not a database; set another file in database_url, or move this one away",
}
_OF_DISK = frozenset({10, 13})
_IN_ADDRESS: Final = r"(://[^:/@\s]*:)[^@\s]*@|(password=)\S+"
_NOT_UPGRADED: Final = r"no such (table|column)|(relation|column) .* does not exist"


def sqlite_error(error: Exception, place: str) -> StoreError:
    """Translate a driver error of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)
    message = _SQLITE.get(code & 0xFF) if isinstance(code, int) else None
    if isinstance(code, int) and message is not None:
        kind = StoreDiskFailed if code & 0xFF in _OF_DISK else StoreError
        return kind(f"the database {place} {message} ({_line(error)})")
    return _error_from_message(error, place)


def postgres_error(error: Exception, place: str) -> StoreError:
    """Translate a driver error of PostgreSQL."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        return StoreError(f"the database {place} does not answer; check the server and database_url ({_line(error)})")
    if state == "25006":
        return StoreError(f"the database {place} is read-only (a standby?); use the primary in database_url")
    if state.startswith("53"):
        return StoreDiskFailed(f"the database {place} is out of space or connections ({_line(error)})")
    return _error_from_message(error, place)


def _error_from_message(error: Exception, place: str) -> StoreError:
    if re.search(_NOT_UPGRADED, str(error)):
        return StoreError(f"the database {place} is not up to date; run `gpuwatch store upgrade` ({_line(error)})")
    return StoreError(f"the database {place} rejected the statement: {_line(error)}")


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return re.sub(_IN_ADDRESS, r"\1\2***@", text) if "@" in text or "password=" in text else text
