"""Requests one source: its places, its pages, its rate limit; without a key, and never from another host."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.providers.pricelist.declaration import PriceSource
from gpuwatch.providers.pricelist.paths import count_entries
from gpuwatch.providers.pricelist.source_reader import Rates, SourceReader
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.list_prices import TOO_FEW_ROWS, RowCountGuard
from gpuwatch.providers.toolkit.post_processing import ParseResult
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


def rebase_url(url: str, name: str, base_url: str | None) -> str:
    """Return the URL of a source, or of its stand-in below another `base_url`: base/NAME/path.

    Args:
        base_url: None: the default; each source is then requested at its own URL.
    """
    if base_url is None:
        return url
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{base_url.rstrip('/')}/{name}{parts.path}{query}"
