"""Answers searches quickly: an index of the market, cached results, and rows that are encoded once."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import msgspec

from gpuwatch.emulator.answers import EmulatorReply
from gpuwatch.emulator.market.emulated_market import EmulatedMarket
from gpuwatch.emulator.market.machines import EmulatedListing
from gpuwatch.emulator.market.offer_query import OfferQuery, parse_query

CAP_ROWS = 64  # without a limit, and always without a key
BODY_CACHE_S = 60.0  # how long the body of a large answer is reused before its `duration`s are renewed
CACHE_SIZE = 256


@dataclass(slots=True)
class SearchResult:
    """The offers of one query on one version of the market."""

    query: OfferQuery
    listings: list[EmulatedListing]
    bodies: dict[int, tuple[float, bytes]]


class Search:
    """Searches a market.

    Args:
        market: the market to search.
        default_rows: rows without a `limit`; None: all.
        keyless_rows: the most rows without a key, whatever the limit; None: no cap.
        keyed_rows: the most rows with a key; None: no cap.
    """

    def __init__(
        self, market: EmulatedMarket, default_rows: int | None, keyless_rows: int | None, keyed_rows: int | None
    ) -> None:
        self.market = market
        self.default_rows = default_rows
        self.keyless_rows = keyless_rows
        self.keyed_rows = keyed_rows
        self._version = -1
        self._by_gpu: dict[str, list[EmulatedListing]] = {}
        self._results: OrderedDict[bytes, SearchResult] = OrderedDict()
        self._large_queries: dict[bytes, tuple[Any, bool]] = {}

    def answer(self, raw: Any, now: float, keyed: bool) -> EmulatorReply:
        """Answer a decoded query with `{"offers": […]}`."""
        result = self.find(raw, now)
        rows = self._rows(result.query, keyed)
        count = len(result.listings) if rows is None else min(rows, len(result.listings))
        if count > CAP_ROWS:
            self._large_queries[msgspec.json.encode(raw)] = (raw, keyed)
        return EmulatorReply(200, self._body(result, count, now), rows=count)

    def warm(self, now: float) -> None:
        """Rebuild the bodies of large answers after a change, before the next request."""
        for raw, keyed in list(self._large_queries.values())[-4:]:
            self.answer(raw, now, keyed)

    def find(self, raw: Any, now: float) -> SearchResult:
        """Find the offers of a query, in order; a repeated query on the same market costs only a look-up."""
        if self._version != self.market.version:
            self._index()
        cache_key = msgspec.json.encode(raw)
        result = self._results.get(cache_key)
        if result is not None:
            return result
        query = parse_query(raw)
        result = SearchResult(query, self._matching(query, now), {})
        if query.is_time_independent:
            self._results[cache_key] = result
            if len(self._results) > CACHE_SIZE:
                self._results.popitem(last=False)
        return result

    def _index(self) -> None:
        self._version = self.market.version
        self._results.clear()
        self._by_gpu = {}
        for listing in self.market.listings.values():
            self._by_gpu.setdefault(listing.slice.row["gpu_name"], []).append(listing)

    def _matching(self, query: OfferQuery, now: float) -> list[EmulatedListing]:
        names = query.gpu_names
        if names is None:
            listings = list(self.market.listings.values())
        else:
            listings = [listing for name in dict.fromkeys(names) for listing in self._by_gpu.get(name, ())]
        if query.conditions:
            listings = [listing for listing in listings if query.accepts(listing, now)]
        query.sort(listings, now)
        return listings

    def _rows(self, query: OfferQuery, keyed: bool) -> int | None:
        requested = self.default_rows if query.limit is None else query.limit
        cap = self.keyed_rows if keyed else self.keyless_rows
        return min((rows for rows in (requested, cap) if rows is not None), default=None)

    def _body(self, result: SearchResult, count: int, now: float) -> bytes:
        if count <= CAP_ROWS:
            return self._encode(result, count, now)
        cached = result.bodies.get(count)
        if cached is None or not 0 <= now - cached[0] < BODY_CACHE_S:
            cached = result.bodies[count] = (now, self._encode(result, count, now))
        return cached[1]

    def _encode(self, result: SearchResult, count: int, now: float) -> bytes:
        view = result.query.view
        return b'{"offers":[%b]}' % b",".join(listing.encode(view, now) for listing in result.listings[:count])
