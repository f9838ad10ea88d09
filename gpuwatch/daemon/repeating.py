"""Repeats work on its own thread while a block runs: it may wait for a database without delaying the block."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def repeating(name: str, work: Callable[[], object], every_s: float) -> Iterator[None]:
    """Do it at once, and then at this interval; the end of the block does not wait for it."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            try:
                work()
            except Exception:
                log.exception("%s failed; retrying", name)
            ended.wait(every_s)

    threading.Thread(target=repeat, name=name, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
