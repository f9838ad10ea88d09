"""The search side: one page, or as many as it takes to have seen everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from gpuwatch.domain.market.offer import Offer
from gpuwatch.errors import ProviderError
from gpuwatch.ports import Answer, Completeness, Query
from gpuwatch.providers.toolkit.post_processing import cheapest_first, matches_query
from gpuwatch.providers.vastai.answer_parser import ParsedAnswer, parse_offers
from gpuwatch.providers.vastai.client import VastClient
from gpuwatch.providers.vastai.query import DEFAULT_DISK_GB, SILENT_CAP, rows_asked, search_params, wire_names
from gpuwatch.providers.vastai.rows import PROVIDER, RowReader, VastRow

_PAGES_MAX: Final = 400  # 25,600 rows at 64 a page: six times the market of 2026
_NUDGE: Final = 1e-9  # past a price that fills a whole page by itself
_KINDS_MAX: Final = 8  # kinds of question, by rental type and disk, whose rows are remembered
_HAIR: Final = 1e-6  # a price's last digits, in dollars
OnOffers = Callable[[Sequence[Offer]], None]


class VastMarket:
    """vast.ai's search. A query with a `limit` is a hunt: one page, and it goes before sweeps that wait."""

    name = PROVIDER

    def __init__(self, account: VastClient) -> None:
        self._account = account
        self._before: dict[tuple[bool, float], dict[int | str, tuple[VastRow, Offer]]] = {}

    def search(self, query: Query, on_offers: OnOffers | None = None) -> Answer:
        """Offers that fit, cheapest first.

        Args:
            on_offers: gets offers as they arrive, unsorted, perhaps twice if an answer breaks off and is asked again.

        Raises:
            ProviderError: no usable answer at all.
        """
        tools = self._account.tools
        began, observed_at = tools.monotonic(), tools.now()
        walk = _PagedSearch(query)
        while not walk.done:
            ask = partial(self._page, query, walk.from_usd_hour, observed_at, on_offers)
            try:
                page = self._account.read("search", ask, urgent=query.limit is not None)
            except ProviderError:
                if not walk.searches:
                    raise
                walk.broke_off()
                break
            walk.take(page)
        return walk.answer(observed_at, tools.monotonic() - began)

    def _page(
        self,
        query: Query,
        from_usd_hour: float | None,
        observed_at: datetime,
        on_offers: OnOffers | None,
        deadline_s: float,
    ) -> ParsedAnswer:
        disk_gb = DEFAULT_DISK_GB if query.disk_gb is None else query.disk_gb
        if (query.spot, disk_gb) not in self._before and len(self._before) >= _KINDS_MAX:
            self._before.clear()
        before = self._before.setdefault((query.spot, disk_gb), {})
        reader = RowReader(query.spot, disk_gb, observed_at, query.gpus, before)
        told = None if on_offers is None else _only_fitting(query, on_offers)
        with self._account.search(search_params(query, from_usd_hour), deadline_s) as arriving:
            return parse_offers(arriving.chunks, reader, told)


class _PagedSearch:
    """Pages by price: there is no other way past the marketplace's cap."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._asked = rows_asked(query)
        self._offers: dict[str, Offer] = {}
        self._skipped: dict[str, int] = {}
        self._drift: dict[str, None] = {}
        self._rows = 0
        self._completeness = Completeness.COMPLETE
        self._known_to: float | None = None
        self._in_order = True
        self.searches = 0
        self.from_usd_hour: float | None = None
        # it tells apart what others leave open: of such names it has none
        self.done = bool(query.gpus) and not wire_names(query.gpus)

    def take(self, page: ParsedAnswer) -> None:
        """Add a page, and settle whether there must be another."""
        self.searches += 1
        self._rows += page.rows
        for reason, count in page.skipped.items():
            self._skipped[reason] = self._skipped.get(reason, 0) + count
        self._drift.update(dict.fromkeys(page.drift))
        known_before = len(self._offers)
        for offer in page.offers:
            self._offers.setdefault(offer.offer_id, offer)
        self._settle(page, new=len(self._offers) - known_before)

    def broke_off(self) -> None:
        """A later page failed: what is there is true, and not all."""
        self._completeness = Completeness.PARTIAL

    def answer(self, observed_at: datetime, elapsed_s: float) -> Answer:
        """Everything seen, in order."""
        complete = self._completeness is Completeness.COMPLETE
        return Answer(
            provider=PROVIDER,
            observed_at=observed_at,
            offers=cheapest_first(offer for offer in self._offers.values() if matches_query(offer, self._query)),
            completeness=self._completeness,
            rows=self._rows,
            searches=self.searches,
            skipped=self._skipped,
            drift=tuple(self._drift),
            complete_to_usd_hour=None if complete or not self._in_order else self._known_to,
            elapsed_s=elapsed_s,
        )

    def _settle(self, page: ParsedAnswer, new: int) -> None:
        """Complete, cut, or one more page. More rows than asked for: this server cuts nothing."""
        cut = page.rows == self._asked or (page.rows == SILENT_CAP < self._asked)
        prices = [offer.quoted_usd_hour for offer in page.offers]
        if not cut or self._is_static(page) or not prices:
            self.done = True
            return
        in_order = all(map(float.__le__, prices, prices[1:]))
        self._in_order = self._in_order and in_order
        last_usd_hour, from_usd_hour = max(prices), self.from_usd_hour
        if self._known_to is None or not self._truncated:
            self._known_to = last_usd_hour
        self.from_usd_hour = last_usd_hour
        if self._query.limit is not None or self.searches >= _PAGES_MAX:
            self._truncate(done=True)
        elif not self._in_order:
            # One more look tells a server that ignores the order from one that ignores the whole question.
            self._truncate(done=self.searches > 1)
        elif not new:
            # A whole page at one price: what else stands at that price cannot be reached.
            self._truncate(done=last_usd_hour != from_usd_hour)
            self.from_usd_hour = last_usd_hour + _NUDGE

    @property
    def _truncated(self) -> bool:
        return self._completeness is Completeness.TRUNCATED

    def _truncate(self, done: bool) -> None:
        self._completeness, self.done = Completeness.TRUNCATED, done

    def _is_static(self, page: ParsedAnswer) -> bool:
        """Rows that were not asked for: such a server answers all that it has, whatever the question."""
        least = self.from_usd_hour
        static = page.not_wanted > 0 or (
            least is not None and any(offer.quoted_usd_hour < least - _HAIR for offer in page.offers)
        )
        if static:
            self._completeness = Completeness.COMPLETE
        return static


def _only_fitting(query: Query, on_offers: OnOffers) -> OnOffers:
    def tell(offers: Sequence[Offer]) -> None:
        fitting = [offer for offer in offers if matches_query(offer, query)]
        if fitting:
            on_offers(fitting)

    return tell
