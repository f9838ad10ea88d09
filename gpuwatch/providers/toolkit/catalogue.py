"""A market whose whole catalogue comes in one answer, which is reused for all watches for a few seconds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import TypeVar

from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import Answer, Query
from gpuwatch.ports.declarations import ProviderInfo
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.list_prices import drop_implausible
from gpuwatch.providers.toolkit.post_processing import ParseResult, build_answer

TTL_S = 5.0  # gpuwatch rents from this catalogue: the price must be current
T = TypeVar("T")


class CatalogueMarket:
    """The market of such a provider. `INFO` states whether it needs a key, and which rental types exist.

    Skips prices that nobody would ask, such as $0.00001 or $9999 for a GPU-hour.

    Args:
        fetch: returns the whole catalogue, parsed, and the time of the answer. Raises ProviderError.
        ttl_s: how long to reuse it.
    """

    def __init__(
        self,
        info: ProviderInfo,
        client: ApiClient,
        fetch: Callable[[ApiClient], tuple[ParseResult, datetime]],
        ttl_s: float = TTL_S,
    ) -> None:
        self.name = info.name
        self._info = info
        self._client = client
        self._fetch = fetch
        self._cache: TtlCache[tuple[ParseResult, datetime]] = TtlCache(ttl_s, client.tools.monotonic)

    def search(self, query: Query) -> Answer:
        """Return matching offers; none for a rental type that the provider does not have. Raises ProviderError."""
        if not self._info.searches_without_key:
            self._client.require_key()
        tools = self._client.tools
        started_s = tools.monotonic()
        if query.spot in self._info.spots:
            result, observed_at = self._cache.get(self._fetch_plausible)
        else:
            result, observed_at = ParseResult(searches=0), tools.now()
        return build_answer(result, query, self.name, observed_at=observed_at, elapsed_s=tools.monotonic() - started_s)

    def _fetch_plausible(self) -> tuple[ParseResult, datetime]:
        result, observed_at = self._fetch(self._client)
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
