"""Work that is repeated on a thread of its own while a block runs: it may wait for a database without holding it up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def repeating(name: str, work: Callable[[], object], every_s: float) -> Iterator[None]:
    """Do it at once and then every so many seconds; at the end of the block it is not waited for."""
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
