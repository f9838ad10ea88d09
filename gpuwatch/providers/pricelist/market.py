"""Requests all sources of price lists: their places, their pages, their rate limits; without a key, from no other host.

The sources are queried in parallel; if one fails, the answer is partial.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import ProviderSettings, Query
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.findings import Finding
from gpuwatch.ports.settings import Option
from gpuwatch.providers.pricelist.dated_lists import DatedLists
from gpuwatch.providers.pricelist.declaration import PriceSource, built_in_sources, count_entries, own_sources
from gpuwatch.providers.pricelist.source_reader import Rates, SourceReader
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache, rebase_url
from gpuwatch.providers.toolkit.catalogue import merge_answers, query_all
from gpuwatch.providers.toolkit.currency import ExchangeRates
from gpuwatch.providers.toolkit.list_prices import TOO_FEW_ROWS, RowCountGuard
from gpuwatch.providers.toolkit.post_processing import BasicMarket, ParseResult, matching
from gpuwatch.providers.toolkit.validation import at, decode_json, word

_PAGES_MAX: Final = 100
_MAX_BYTES: Final = 48 * 2**20  # OVHcloud's catalogue has several MB
_TTL: Final = 0.9  # of `every_s`: a slightly early poll fetches again


class SourceClient:
    """One source; its answer is cached as long as its declaration says. Thread-safe."""

    def __init__(self, source: PriceSource, settings: ProviderSettings, tools: Tools, rates: Rates, url: str) -> None:
        self.source = source
        self.name = f"{settings.name}: {source.name}"
        self._client = ApiClient(msgspec.structs.replace(settings, name=self.name, api_key=None), tools, headers={})
        self._tools = tools
        self._rates = rates
        self._url = url
        self._cache: TtlCache[ParseResult] = TtlCache(source.every_s * _TTL, tools.monotonic)
        self._row_count_guard = RowCountGuard()
        self._lock = threading.Lock()

    def read(self) -> ParseResult:
        """Return the source's offers, fresh or cached. Raises ProviderError: nothing usable."""
        with self._lock:
            result = self._cache.get(self._fetch)
            if result.partial:
                self._cache.invalidate()
            return result

    def _fetch(self) -> ParseResult:
        reader = SourceReader(self.source, self._rates, self._tools.now())
        first_error = None
        for place in self.source.places or ("",):
            try:
                for value in self._pages(place, reader):
                    self._parse(reader, value, place)
            except ProviderError as error:
                first_error = first_error or error
                reader.result.note_missing(f"{place}: {error}" if place else str(error))
                if reader.result.searches == 0 and not isinstance(error, PayloadChanged):
                    break  # it is down, also for the other places
        if first_error is not None and not reader.result.offers:
            raise first_error
        result = self._finish(reader)
        if self._row_count_guard.is_too_few(None, len(result.offers)) and self.source.kind == "listed":
            result.note_missing(TOO_FEW_ROWS)
        return result

    def _parse(self, reader: SourceReader, value: object, place: str) -> None:
        try:
            reader.add_page(value, place)
        except PayloadChanged as error:
            raise PayloadChanged(f"{self.name}: {error}") from error

    def _finish(self, reader: SourceReader) -> ParseResult:
        try:
            return reader.finish()
        except PayloadChanged as error:
            raise PayloadChanged(f"{self.name}: {error}") from error

    def _pages(self, place: str, reader: SourceReader) -> Iterator[Any]:
        """Yield the answers, page after page. An endless list makes the answer partial."""
        paging, previous = self.source.paging, object()
        params = dict(self.source.params)
        if paging is not None and paging.next is None:
            params[paging.param] = str(paging.first)
        for number in range(1, _PAGES_MAX + 1):
            value = self._request(self._url.replace("{place}", place), params)
            if value == previous:
                break  # it does not support the parameter of the next page
            yield value
            previous = value
            if paging is None:
                return
            if paging.next is not None:
                next_value = word(at(value, *paging.next.split(".")), 2000)
            else:
                is_full = count_entries(value, self.source.rows) >= paging.size
                next_value = str(paging.first + number) if is_full else None
            if next_value is None:
                return
            params[paging.param] = next_value
        reader.result.note_missing("it has more pages than are read")

    def _request(self, url: str, params: Mapping[str, str]) -> Any:
        options: dict[str, Any] = {"max_bytes": _MAX_BYTES}
        if self.source.body is not None:
            options["json"] = msgspec.json.decode(self.source.body)
        reply = self._client.request(self.source.method, url, params=params, **options)
        return decode_json(reply.body, self.name)


log = logging.getLogger(__name__)


class PriceLists(BasicMarket):
    """The market: queries all sources in parallel, and adds the dated lists."""

    def __init__(self, settings: ProviderSettings, tools: Tools, own_base_url: str) -> None:
        super().__init__(settings, tools)
        self._settings = settings
        base = settings.base_url.rstrip("/")
        self._base_url = None if base == own_base_url else base
        rate_url = str(settings.options.get("rate_url") or "")
        self._exchange = ExchangeRates(tools, rebase_url(rate_url, "rates", self._base_url))
        self._dated = DatedLists(settings.options.get("dated"), self._exchange.rate)
        self._lock = threading.Lock()
        self._clients: list[SourceClient] | None = None
        self._failing: set[str] = set()

    def _read(self, query: Query, now: datetime) -> ParseResult:
        clients = [client for client in self._source_clients() if client.source.sells_spot or not query.spot]
        answers = query_all({one.name: one.read for one in clients}, self._tools.stop)
        for client, answer in zip(clients, answers, strict=True):
            self._log_change(client, answer)
        names = [client.source.name for client in clients]
        found = [one if isinstance(one, ProviderError) else _matching(one, query, now) for one in answers]
        result = merge_answers(zip(names, found, strict=True), prefixed=True)
        result.add(self._dated.read(now))
        return result

    def findings(self) -> Iterator[Finding]:
        """For `gpuwatch doctor`: return the age of the dated lists."""
        return self._dated.findings(self._tools.now().date())

    def _source_clients(self) -> list[SourceClient]:
        with self._lock:
            if self._clients is None:
                self._clients = [self._build_client(source) for source in selected_sources(self._settings.options)]
            return self._clients

    def _build_client(self, source: PriceSource) -> SourceClient:
        url = rebase_url(source.url, source.name, self._base_url)
        return SourceClient(source, self._settings, self._tools, self._exchange.rate, url)

    def _log_change(self, client: SourceClient, answer: ParseResult | ProviderError) -> None:
        """Log one line when a source fails, and one when it is back."""
        with self._lock:
            was_failing, is_failing = client.name in self._failing, isinstance(answer, ProviderError)
            (self._failing.add if is_failing else self._failing.discard)(client.name)
        if is_failing and not was_failing:
            log.warning("%s", answer)
        elif was_failing and not is_failing:
            log.info("%s: answers again", client.name)


def selected_sources(options: Mapping[str, Option]) -> list[PriceSource]:
    """Return the sources to request: those in the settings, or all with whole prices; and the owner's own.

    Raises:
        ProviderError: an own declaration is wrong, or missing since the settings were read.
    """
    try:
        own, built_in = own_sources(options.get("files")), built_in_sources()
    except ValueError as error:
        raise ProviderError(f"pricelist: {error}") from error
    names = options.get("sources")
    if not isinstance(names, tuple) or not names:
        names = tuple(name for name, source in built_in.items() if not source.only_if_named)
    return list(({name: built_in[name] for name in names if name in built_in} | own).values())


def _matching(found: ParseResult, query: Query, now: datetime) -> ParseResult:
    """Return the matching offers. A cached price still applies, so it gets the time of the others."""
    offers = [msgspec.structs.replace(offer, observed_at=now) for offer in matching(found.offers, query)]
    return msgspec.structs.replace(found, offers=offers)
