"""Answers searches quickly: an index of the market, cached results, and rows that are encoded once."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import msgspec

from gpuwatch.emulator.answers import EmulatorReply
from gpuwatch.emulator.machines import EmulatedListing
from gpuwatch.emulator.market import EmulatedMarket
from gpuwatch.emulator.query import OfferQuery, parse_query

CAP_ROWS = 64  # without a limit, and always without a key
WHOLE_BODY_S = 60.0  # how long the body of a large answer is reused before its `duration`s are renewed
REMEMBERED = 256


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
        self._found: OrderedDict[bytes, SearchResult] = OrderedDict()
        self._large: dict[bytes, tuple[Any, bool]] = {}

    def answer(self, raw: Any, now: float, keyed: bool) -> EmulatorReply:
        """Answer a decoded query with `{"offers": […]}`."""
        found = self.find(raw, now)
        rows = self._rows(found.query, keyed)
        count = len(found.listings) if rows is None else min(rows, len(found.listings))
        if count > CAP_ROWS:
            self._large[msgspec.json.encode(raw)] = (raw, keyed)
        return EmulatorReply(200, self._body(found, count, now), rows=count)

    def warm(self, now: float) -> None:
        """Rebuild the bodies of large answers after a change, before the next request."""
        for raw, keyed in list(self._large.values())[-4:]:
            self.answer(raw, now, keyed)

    def find(self, raw: Any, now: float) -> SearchResult:
        """Find the offers of a query, in order; a repeated query on the same market costs only a look-up."""
        if self._version != self.market.version:
            self._index()
        remembered = msgspec.json.encode(raw)
        found = self._found.get(remembered)
        if found is not None:
            return found
        query = parse_query(raw)
        found = SearchResult(query, self._matching(query, now), {})
        if query.is_timeless:
            self._found[remembered] = found
            if len(self._found) > REMEMBERED:
                self._found.popitem(last=False)
        return found

    def _index(self) -> None:
        self._version = self.market.version
        self._found.clear()
        self._by_gpu = {}
        for listing in self.market.listings.values():
            self._by_gpu.setdefault(listing.slice.row["gpu_name"], []).append(listing)

    def _matching(self, query: OfferQuery, now: float) -> list[EmulatedListing]:
        names = query.gpu_names
        if names is None:
            pool = list(self.market.listings.values())
        else:
            pool = [listing for name in dict.fromkeys(names) for listing in self._by_gpu.get(name, ())]
        if query.conditions:
            pool = [listing for listing in pool if query.accepts(listing, now)]
        query.sort(pool, now)
        return pool

    def _rows(self, query: OfferQuery, keyed: bool) -> int | None:
        asked = self.default_rows if query.limit is None else query.limit
        cap = self.keyed_rows if keyed else self.keyless_rows
        return min((rows for rows in (asked, cap) if rows is not None), default=None)

    def _body(self, found: SearchResult, count: int, now: float) -> bytes:
        if count <= CAP_ROWS:
            return self._encode(found, count, now)
        kept = found.bodies.get(count)
        if kept is None or not 0 <= now - kept[0] < WHOLE_BODY_S:
            kept = found.bodies[count] = (now, self._encode(found, count, now))
        return kept[1]

    def _encode(self, found: SearchResult, count: int, now: float) -> bytes:
        view = found.query.view
        return b'{"offers":[%b]}' % b",".join(one.encoded(view, now) for one in found.listings[:count])
