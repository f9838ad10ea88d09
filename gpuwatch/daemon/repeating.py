"""Repeats work on its own thread while a block runs: for the keeper and the supervisor alone.

Both must work while the scheduler hangs. Every other periodic task is one of the scheduler (`scheduler.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def repeating_thread(name: str, action: Callable[[], object], every_s: float) -> Iterator[None]:
    """Do it at once, and then at this interval; the end of the block does not wait for it."""
    stopped = threading.Event()

    def repeat() -> None:
        while not stopped.is_set():
            try:
                action()
            except Exception:
                log.exception("%s failed; retrying", name)
            stopped.wait(every_s)

    threading.Thread(target=repeat, name=name, daemon=True).start()
    try:
        yield
    finally:
        stopped.set()
