"""Queries several places and merges their answers. gpuwatch can exit without waiting for a silent server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from gpuwatch.errors import PayloadChanged, ProviderDown, ProviderError, RateLimited
from gpuwatch.providers.toolkit.post_processing import ParseResult

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


def query_in_turn(
    queries: Iterable[tuple[str, Callable[[], T]]], one_server: bool = False
) -> Iterator[tuple[str, T | ProviderError]]:
    """Query places one after the other, and yield the answer or error of each with its name.

    Args:
        one_server: all places are on one server; if it is down or limits the rate, the rest is not requested.
    """
    for name, query in queries:
        try:
            yield name, query()
        except ProviderError as error:
            yield name, error
            if one_server and isinstance(error, ProviderDown | RateLimited):
                return


def merge_answers(answers: Iterable[tuple[str, ParseResult | ProviderError]], prefixed: bool = False) -> ParseResult:
    """Merge the parts of an answer: the name of each, and what it has, or its error, which makes the whole partial.

    Args:
        prefixed: put the name of the part before its reasons for skipped rows.

    Raises:
        ProviderError: the first error, if no part has an answer.
    """
    merged, first_error = ParseResult(searches=0), None
    for name, answer in answers:
        if isinstance(answer, ProviderError):
            first_error = first_error or answer
            merged.skip(f"{name}: {'not understood' if isinstance(answer, PayloadChanged) else 'no answer'}")
            merged.note_missing(f"{name}: {answer}")
        else:
            merged.add(answer, name if prefixed else "")
    if first_error is not None and not merged.searches:
        raise first_error
    return merged
