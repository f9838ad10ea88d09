"""The market of vast.ai: one page for a hunt, all pages for a sweep, and the query object of a query.

source: the vendor's client 1.9 and documents; names and filters as live clients report them, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import NO_GPU, Offer
from gpuwatch.errors import ProviderError
from gpuwatch.ports import Answer, Completeness, Query
from gpuwatch.providers.toolkit.post_processing import cheapest_first, matching
from gpuwatch.providers.vastai.answer_parser import ParsedAnswer, parse_offers
from gpuwatch.providers.vastai.client import SEARCH_PATH, VastClient
from gpuwatch.providers.vastai.rows import PROVIDER, RowReader

MAX_ROWS: Final = 1000  # sent if all rows are wanted
SILENT_CAP: Final = 64  # rows returned for larger requests, too: without a key always, with one sometimes
DEFAULT_DISK_GB: Final = 8.0  # in a quote, if the query has no disk
_ROUNDING: Final = 1.0 + 1e-9  # doubles: the last digit must not exclude an offer exactly at the bound


def search_params(query: Query, from_usd_hour: float | None = None) -> dict[str, str]:
    """Return the URL parameters of one search. Leaves out filters that the server is known to apply wrongly.

    Args:
        from_usd_hour: only offers at or above this price, for the next page.
    """
    return {"q": _conditions_text(query, from_usd_hour)}


@lru_cache(maxsize=64)  # each hunt repeats the same queries
def _conditions_text(query: Query, from_usd_hour: float | None) -> str:
    return msgspec.json.encode(_conditions(query, from_usd_hour)).decode()


def row_limit(query: Query) -> int:
    """Return the `limit` to send."""
    return min(query.limit, MAX_ROWS) if query.limit is not None else MAX_ROWS


def _conditions(query: Query, from_usd_hour: float | None) -> dict[str, Any]:
    conditions: dict[str, Any] = {"rentable": {"eq": True}}
    if query.gpus and not query.wants_no_gpu:
        conditions["gpu_name"] = {"in": list(wire_names(query.gpus))}
    if query.count_max is not None and query.count_min == query.count_max:
        conditions["num_gpus"] = {"eq": query.count_min}
    else:
        least = query.count_min if query.count_min > 1 or not query.gpus else None  # without names: no machines without
        counts = _bounds(least, query.count_max)
        conditions |= {"num_gpus": counts} if counts else {}
    max_usd_hour = query.max_listed_usd_hour
    prices = _bounds(from_usd_hour, None if max_usd_hour is None else max_usd_hour * _ROUNDING)
    conditions |= {"dph_total": prices} if prices else {}
    if query.verified is not None:
        conditions["verified"] = {"eq": query.verified}
    if query.min_reliability is not None:
        conditions["reliability2"] = {"gte": query.min_reliability}
    if query.disk_gb is not None:
        conditions["allocated_storage"] = query.disk_gb
    return conditions | {
        "order": [["dph_total", "asc"]],
        "type": "bid" if query.spot else "on-demand",
        "limit": row_limit(query),
    }


def wire_names(gpus: tuple[str, ...]) -> tuple[str, ...]:
    """Return vast.ai's spellings of canonical names. Unknown spellings get an empty list from vast.ai, not an error.

    A GPU never seen there is requested by all known spellings: it may be new there. Empty: vast.ai has no name for
    this card alone.
    """
    names: dict[str, None] = {}
    for gpu in gpus:
        names.update(dict.fromkeys(_wire_names_of(gpu)))
    return tuple(names)


@cache
def _wire_names_of(gpu: str) -> tuple[str, ...]:
    row = catalog().get(gpu)
    if row is None:
        return _unlisted_wire_names(gpu)
    resolved = {name: catalog().resolve(name, row.memory_gib) for name in _known_names()}  # it always states the memory
    listed_names = tuple(name for name, found in resolved.items() if found.name == gpu)
    # A card that it offers under an ambiguous name ("Tesla V100") is requested only by that name.
    if listed_names or row.members or any(gpu in found.candidates for found in resolved.values()):
        return listed_names
    return row.spellings


def _unlisted_wire_names(gpu: str) -> tuple[str, ...]:
    """The spellings of a card that the catalogue lacks: vast.ai writes "RTX 4090D" where others write "RTX 4090 D"."""
    start, _, suffix = gpu.rpartition(" ")
    joined = (f"{start}{suffix}",) if len(suffix) == 1 and start else ()
    listed_names = (name for name in _known_names() if catalog().resolve(name).name == gpu)
    return tuple(dict.fromkeys((gpu, *joined, *listed_names)))


@cache
def _known_names() -> tuple[str, ...]:
    """Return the marketplace's own list, plus the spellings seen live."""
    return tuple(Path(__file__).with_name("gpu-names.txt").read_text("ascii").splitlines())


def _bounds(minimum: float | None, maximum: float | None) -> Mapping[str, float]:
    bounds = {"gte": minimum, "lte": maximum}
    return {operator: value for operator, value in bounds.items() if value is not None}


_PAGES_MAX: Final = 400  # 25,600 rows at 64 per page: six times the market of 2026
_PRICE_STEP: Final = 1e-9  # to get past a price that fills a whole page by itself
_PRICE_TOLERANCE_USD: Final = 1e-6  # rounding error of a price, in dollars
OnOffers = Callable[[Sequence[Offer]], None]


class VastMarket:
    """Searches vast.ai. A query with a `limit` is a hunt: one page, ahead of waiting sweeps."""

    name = PROVIDER

    def __init__(self, client: VastClient) -> None:
        self._client = client

    def search(self, query: Query, on_offers: OnOffers | None = None) -> Answer:
        """Return the matching offers, cheapest first.

        Args:
            on_offers: receives offers as they arrive, unsorted; twice if an answer is cut off and requested again.

        Raises:
            ProviderError: no usable answer.
        """
        tools = self._client.tools
        started_s, observed_at = tools.monotonic(), tools.now()
        disk_gb = DEFAULT_DISK_GB if query.disk_gb is None else query.disk_gb
        reader = RowReader(query.spot, disk_gb, observed_at, query.gpus)
        paged = _PagedSearch(query)
        while not paged.is_done:
            fetch_page = partial(self._page, query, paged.from_usd_hour, reader, on_offers)
            try:
                page = self._client.read("search", fetch_page, urgent=query.limit is not None)
            except ProviderError as error:
                if not paged.searches:
                    raise
                paged.abort(f"page {paged.searches + 1}: {error}")
                break
            paged.add_page(page)
        return paged.answer(observed_at, tools.monotonic() - started_s)

    def _page(
        self,
        query: Query,
        from_usd_hour: float | None,
        reader: RowReader,
        on_offers: OnOffers | None,
        deadline_s: float,
    ) -> ParsedAnswer:
        on_parsed = None if on_offers is None else _filtered(query, on_offers)
        with self._client.stream(
            "GET", SEARCH_PATH, params=search_params(query, from_usd_hour), deadline_s=deadline_s
        ) as reply:
            return parse_offers(reply.chunks, reader, on_parsed)


class _PagedSearch:
    """Pages by price, the only way to get past the marketplace's cap on rows."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._row_limit = row_limit(query)
        self._offers: dict[str, Offer] = {}
        self._skipped: dict[str, int] = {}
        self._drift: dict[str, None] = {}
        self._rows = 0
        self._completeness = Completeness.COMPLETE
        self._complete_to_usd_hour: float | None = None
        self._is_sorted = True
        self._incomplete_because = ""
        self.searches = 0
        self.from_usd_hour: float | None = None
        # vast.ai has no offers of names that it does not use, such as those shared by several cards
        self.is_done = bool(query.gpus) and not query.wants_no_gpu and not wire_names(query.gpus)

    def add_page(self, page: ParsedAnswer) -> None:
        """Add a page, and decide whether another one is needed."""
        self.searches += 1
        self._rows += page.rows
        for reason, count in page.skipped.items():
            self._skipped[reason] = self._skipped.get(reason, 0) + count
        self._drift.update(dict.fromkeys(page.drift))
        count_before = len(self._offers)
        self._offers = {offer.offer_id: offer for offer in reversed(page.offers)} | self._offers
        self._update_completeness(page, new=len(self._offers) - count_before)

    def abort(self, reason: str) -> None:
        """Mark the result as partial after a later page failed: the offers so far are correct."""
        self._incomplete_because = reason.replace(f"{PROVIDER}: ", "")
        self._completeness = Completeness.PARTIAL

    def answer(self, observed_at: datetime, elapsed_s: float) -> Answer:
        """Return all offers found, in order."""
        complete = self._completeness is Completeness.COMPLETE
        return Answer(
            provider=PROVIDER,
            observed_at=observed_at,
            offers=cheapest_first(matching(self._offers.values(), self._query)),
            completeness=self._completeness,
            rows=self._rows,
            searches=self.searches,
            skipped=self._skipped,
            not_listed=tuple(gpu for gpu in self._query.gpus if gpu != NO_GPU and not wire_names((gpu,))),
            drift=tuple(self._drift),
            complete_to_usd_hour=None if complete or not self._is_sorted else self._complete_to_usd_hour,
            incomplete_because=self._incomplete_because,
            elapsed_s=elapsed_s,
        )

    def _update_completeness(self, page: ParsedAnswer, new: int) -> None:
        """Decide whether the result is complete, truncated, or needs one more page.

        A server that sends more rows than requested does not truncate.
        """
        if page.rows not in (self._row_limit, SILENT_CAP):
            self.is_done = True
            return
        if ignored := self._ignored_filter(page):
            self._stop_unfiltered(page.rows, ignored)
            return
        prices = [offer.quoted_usd_hour for offer in page.offers]
        is_sorted = all(map(float.__le__, prices, prices[1:]))
        self._is_sorted = self._is_sorted and is_sorted
        last_usd_hour, from_usd_hour = max(prices), self.from_usd_hour
        if self._complete_to_usd_hour is None or not self._truncated:
            self._complete_to_usd_hour = last_usd_hour
        self.from_usd_hour = last_usd_hour
        if self._query.limit is not None or self.searches >= _PAGES_MAX:
            self._truncate(is_done=True)
        elif not self._is_sorted:
            # One more page distinguishes a server that ignores only the order from one that ignores the prices, too.
            self._truncate(is_done=self.searches > 1)
        elif not new:
            # A full page at one price: other offers at that price are unreachable.
            self._truncate(is_done=last_usd_hour != from_usd_hour)
            self.from_usd_hour = last_usd_hour + _PRICE_STEP

    @property
    def _truncated(self) -> bool:
        return self._completeness is Completeness.TRUNCATED

    def _truncate(self, is_done: bool) -> None:
        self._completeness, self.is_done = Completeness.TRUNCATED, is_done

    def _ignored_filter(self, page: ParsedAnswer) -> str:
        """Return the filter that the rows of a page prove to be ignored; empty: none."""
        if page.other_gpu_rows:
            return "GPU names"
        prices = [offer.quoted_usd_hour for offer in page.offers]
        min_usd_hour, max_usd_hour = self.from_usd_hour, self._query.max_listed_usd_hour
        if min_usd_hour is not None and min(prices) < min_usd_hour - _PRICE_TOLERANCE_USD:
            return "lowest price"
        # the quote of a bid may exceed `dph_total`, which the server filters by
        reached_usd_hour = min(prices) if self._query.spot else max(prices)
        is_over = max_usd_hour is not None and reached_usd_hour > max_usd_hour + _PRICE_TOLERANCE_USD
        return "highest price" if is_over else ""

    def _stop_unfiltered(self, rows: int, ignored: str) -> None:
        """Stop at a page that was not filtered. A short one counts as truncated: reading all rows may help."""
        if rows < SILENT_CAP:
            self._is_sorted = False
            self._truncate(is_done=True)
            return
        self._incomplete_because = f"it ignored the {ignored} in a search and sent a full page of {rows} rows"
        self._completeness, self.is_done = Completeness.PARTIAL, True


def _filtered(query: Query, on_offers: OnOffers) -> OnOffers:
    def report(offers: Sequence[Offer]) -> None:
        found = matching(offers, query)
        if found:
            on_offers(found)

    return report
