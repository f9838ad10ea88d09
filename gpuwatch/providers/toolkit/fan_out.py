"""Queries several places in parallel. gpuwatch can exit without waiting for a silent server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from gpuwatch.errors import ProviderDown, ProviderError

log = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 0.2  # how often to check whether gpuwatch is stopping
T = TypeVar("T")


def ask_all(questions: Mapping[str, Callable[[], T]], stop: threading.Event) -> list[T | ProviderError]:
    """Return the answer or error of each place, in order; ProviderDown for places still pending when gpuwatch stops.

    Args:
        questions: name of the place, for errors and logs → the function that queries it.
    """
    found: dict[str, T | ProviderError] = {}

    def ask(place: str, question: Callable[[], T]) -> None:
        try:
            found[place] = question()
        except ProviderError as error:
            found[place] = error
        except Exception as error:  # a bug in one place must not hide the others, or look like an empty answer
            log.exception("%s: the request failed", place)
            found[place] = ProviderError(f"{place}: {type(error).__name__}")

    # Daemon threads: the process does not wait for them.
    threads = [threading.Thread(target=ask, args=one, name=one[0], daemon=True) for one in questions.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not stop.is_set():
            thread.join(_LOOK_EVERY_S)
    late = {place: ProviderDown(f"{place}: not waited for: gpuwatch is stopping") for place in questions}
    return list((late | found).values())
