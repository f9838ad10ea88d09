"""The journal of a file that others use."""

from __future__ import annotations

import sqlite3

import pytest

from gpuwatch.storage.setup.sqlite_driver import _choose_journal


class BusyConnection:
    """Refuses to change its journal mode some times, as SQLite does at once, whatever the busy timeout."""

    def __init__(self, refusals: int, code: int = sqlite3.SQLITE_BUSY) -> None:
        self.mode = "delete"
        self._refusals = refusals
        self._code = code

    def execute(self, statement: str) -> BusyConnection:
        if "=" in statement and self._refusals:
            self._refusals -= 1
            error = sqlite3.OperationalError("refused")
            error.sqlite_errorcode = self._code
            raise error
        self.mode = statement.partition("=")[2] or self.mode
        return self

    def fetchone(self) -> tuple[str]:
        return (self.mode,)


@pytest.mark.parametrize(("refusals", "mode"), [(0, "wal"), (3, "wal"), (100, "delete")])
def test_it_changes_once_the_file_is_free_and_stays_otherwise(refusals: int, mode: str) -> None:
    busy = BusyConnection(refusals)
    _choose_journal.retry_with(sleep=lambda _: None)(busy, "wal")
    assert busy.mode == mode


def test_another_error_is_raised_at_once() -> None:
    broken = BusyConnection(1, sqlite3.SQLITE_CORRUPT)
    with pytest.raises(sqlite3.OperationalError):
        _choose_journal(broken, "wal")
