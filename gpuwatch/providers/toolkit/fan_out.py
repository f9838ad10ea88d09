"""Queries several places in parallel. gpuwatch can exit without waiting for a silent server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from gpuwatch.errors import ProviderDown, ProviderError

log = logging.getLogger(__name__)
_STOP_POLL_S: Final = 0.2  # how often to check whether gpuwatch is stopping
T = TypeVar("T")


def query_all(queries: Mapping[str, Callable[[], T]], stop: threading.Event) -> list[T | ProviderError]:
    """Return the answer or error of each place, in order; ProviderDown for places still pending when gpuwatch stops.

    Args:
        queries: name of the place, for errors and logs → the function that queries it.
    """
    found: dict[str, T | ProviderError] = {}

    def run(place: str, query: Callable[[], T]) -> None:
        try:
            found[place] = query()
        except ProviderError as error:
            found[place] = error
        except Exception as error:  # a bug in one place must not hide the others, or look like an empty answer
            log.exception("%s: the request failed", place)
            found[place] = ProviderError(f"{place}: {type(error).__name__}")

    # Daemon threads: the process does not wait for them.
    threads = [threading.Thread(target=run, args=item, name=item[0], daemon=True) for item in queries.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not stop.is_set():
            thread.join(_STOP_POLL_S)
    pending = {place: ProviderDown(f"{place}: not waited for: gpuwatch is stopping") for place in queries}
    return list((pending | found).values())
