"""A market whose whole catalogue is one answer, or merged from those of several places.

It is reused for all watches for a few seconds. gpuwatch can exit without waiting for a silent server.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from gpuwatch.errors import PayloadChanged, ProviderDown, ProviderError, RateLimited
from gpuwatch.ports import Answer, Query
from gpuwatch.ports.declarations import ProviderInfo
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.list_prices import drop_implausible
from gpuwatch.providers.toolkit.post_processing import ParseResult, build_answer

log = logging.getLogger(__name__)
_STOP_POLL_S: Final = 0.2  # how often to check whether gpuwatch is stopping
TTL_S = 5.0  # gpuwatch rents from this catalogue: the price must be current
T = TypeVar("T")
Fetch = Callable[[ApiClient], tuple[ParseResult, datetime]]


class CatalogueMarket:
    """The market of such a provider. `INFO` states whether it needs a key, and which rental types exist.

    Skips prices that nobody would ask, such as $0.00001 or $9999 for a GPU-hour.

    Args:
        fetch: returns the whole catalogue, parsed, and the time of the answer. Raises ProviderError.
        ttl_s: how long to reuse it.
        fetch_cpu: as `fetch`, machines without GPUs alone, for queries about them; None: the catalogue has them.
    """

    def __init__(
        self,
        info: ProviderInfo,
        client: ApiClient,
        fetch: Fetch,
        ttl_s: float = TTL_S,
        fetch_cpu: Fetch | None = None,
    ) -> None:
        self.name = info.name
        self._info = info
        self._client = client
        self._fetch, self._fetch_cpu = fetch, fetch_cpu or fetch
        self._cache: TtlCache[tuple[ParseResult, datetime]] = TtlCache(ttl_s, client.tools.monotonic)

    def search(self, query: Query) -> Answer:
        """Return matching offers; none for a rental type that the provider does not have. Raises ProviderError."""
        if not self._info.searches_without_key:
            self._client.require_key()
        tools = self._client.tools
        started_s = tools.monotonic()
        if query.spot in self._info.spots:
            fetch = self._fetch_cpu if query.wants_no_gpu else self._fetch
            result, observed_at = self._cache.get(partial(self._fetch_plausible, fetch), fetch)
        else:
            result, observed_at = ParseResult(searches=0), tools.now()
        return build_answer(result, query, self.name, observed_at=observed_at, elapsed_s=tools.monotonic() - started_s)

    def _fetch_plausible(self, fetch: Fetch) -> tuple[ParseResult, datetime]:
        result, observed_at = fetch(self._client)
        drop_implausible(result, self.name)
        return result, observed_at


def read_types(
    types: Collection[T], name: str, read: Callable[[T, ParseResult], bool | None], now: datetime | None = None
) -> ParseResult:
    """Parse the offers of a list of instance types, except those that are announced to end.

    Args:
        now: when the list arrived; None: the times of announced ends are not compared.
        read: adds a type's offers to the result. Returns False: gpuwatch watches no such types; a type without a GPU
            says nothing about the format of the others. Raises RowSkipped: unreadable, not "sold out".

    Raises:
        PayloadChanged: there are none, or none of them can be read.
    """
    if not types:
        raise PayloadChanged(f"{name}: the list of instance types is empty")
    result, is_any_read = ParseResult(rows=len(types)), False
    for row in types:
        if is_ending(row, now):
            continue
        with result.counting_skips():
            is_any_read |= read(row, result) is not False
    if not is_any_read and result.skipped:
        raise result.no_usable_row(f"{name}: none of {len(types)} instance types can be used")
    return result


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
