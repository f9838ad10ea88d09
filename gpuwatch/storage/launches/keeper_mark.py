"""The mark of a living keeper: a file beside the keeper's file that it holds locked and touches every few seconds.

The lock is gone with its process, after kill -9 as well. The time shows a process that lives and no longer works: one
that was stopped, or hangs.
"""

from __future__ import annotations

import fcntl
import logging
import os
from datetime import datetime, timedelta
from pathlib import Path

log = logging.getLogger(__name__)

SUFFIX = ".keeper"  # after the name of the keeper's file
_TOUCH_EVERY_S = 5.0
_HUNG_AFTER = timedelta(seconds=60)


class KeeperMark:
    """Shows other processes that this one has a working keeper; the end of the process takes it back."""

    def __init__(self, obligations: Path) -> None:
        self._path = mark_path(obligations)
        self._handle: int | None = None
        self._next_s = 0.0
        self._is_reported = False

    def touch(self, tick_s: float) -> None:
        """Renew the mark. One that cannot be written stops nothing: a second keeper ends what this one would end."""
        if tick_s < self._next_s:
            return
        self._next_s = tick_s + _TOUCH_EVERY_S
        try:
            if self._handle is not None and os.fstat(self._handle).st_nlink == 0:  # somebody deleted it
                self.close()
            if self._handle is None:
                self._handle = _locked(self._path)
            os.utime(self._handle)
        except OSError as error:
            if not self._is_reported:
                log.warning("cannot write %s: %s; gpuwatch keep acts beside this daemon", self._path, error.strerror)
            self._is_reported = True

    def close(self) -> None:
        """Give the lock back; the file stays."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def mark_path(obligations: Path) -> Path:
    """The mark that belongs to a keeper's file."""
    return obligations.with_name(obligations.name + SUFFIX)


def is_keeper_alive(obligations: Path, now: datetime) -> bool:
    """Whether a process on this machine has a working keeper for this file."""
    try:
        handle = os.open(mark_path(obligations), os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # there is none, or it is another user's
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return abs(now - datetime.fromtimestamp(os.fstat(handle).st_mtime, now.tzinfo)) < _HUNG_AFTER
    except OSError:
        return False
    else:
        return False
    finally:
        os.close(handle)


def _locked(path: Path) -> int:
    """Open and lock it; several daemons may share a state folder. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # `gpuwatch keep` looks at it right now
        os.close(handle)
        raise
    return handle
