"""Requests Azure's price list: all pages of a family, cached for a while."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import Answer, ProviderSettings, Query
from gpuwatch.ports.declarations import Tools
from gpuwatch.providers.azure.machine_types import families_of, filter_of, listable_gpus
from gpuwatch.providers.azure.prices import parse_prices
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.list_prices import RowCountGuard
from gpuwatch.providers.toolkit.post_processing import ParseResult, build_answer

_PATH: Final = "/api/retail/prices"
_VERSION: Final = "2023-01-01-preview"  # since this version, filter values are case-sensitive
_PAGES_MAX: Final = 50  # of 1,000 rows: ten times the largest family
_REGION: Final = re.compile(r"[A-Za-z0-9]{2,40}")


class AzureMarket:
    """The market. Fetches and caches a family's prices, of all regions and both rental types."""

    def __init__(self, settings: ProviderSettings, tools: Tools, name: str) -> None:
        self.name = name
        self._client = ApiClient(settings, tools, headers={})
        self._tools = tools
        self._base_origin = _origin(settings.base_url)
        self._regions = _regions(settings.options.get("regions"))
        # Half a poll interval: each poll fetches again, and the watches of one poll share the result.
        self._cache: TtlCache[_FamilyPages] = TtlCache(settings.poll_every_s / 2, tools.monotonic)
        self._row_count_guard = RowCountGuard()

    def search(self, query: Query) -> Answer:
        """Return matching prices. If a family fails, the answer is partial; if all fail, raises the first error.

        Raises:
            ProviderError: no usable answer.
        """
        started_s, now = self._tools.monotonic(), self._tools.now()
        result, first_error = ParseResult(searches=0), None
        for family in families_of(query.gpus):
            try:
                pages = self._cache.get(partial(self._fetch_family, family), family)
            except ProviderError as error:
                first_error = first_error or error
                result.skip(f"{family}: no answer")
                result.note_missing(f"{family}: {error}")
                if not isinstance(error, PayloadChanged):
                    break  # the server is down or limits the rate, which affects the other families, too
                continue
            result.add(parse_prices(pages.rows, now))
            if not pages.is_complete:
                result.note_missing(f"{family}: its pages break off, or show less than a third of the usual prices")
                self._cache.invalidate(family)
        if first_error is not None and not result.searches:
            raise first_error
        elapsed_s = self._tools.monotonic() - started_s
        return build_answer(result, query, self.name, observed_at=now, elapsed_s=elapsed_s, listable=listable_gpus())

    def _fetch_family(self, family: str) -> _FamilyPages:
        """Return all pages of one family's prices."""
        params = {"api-version": _VERSION, "$filter": filter_of(family, self._regions)}
        page = _page(self._client.get(_PATH, params))
        rows, links, is_complete = list(page.rows), set[str](), True
        while page.next_link is not None:
            if page.next_link in links or len(links) >= _PAGES_MAX or _origin(page.next_link) != self._base_origin:
                is_complete = False  # in a circle, endless, or at another host
                break
            links.add(page.next_link)
            page = _page(self._client.get(page.next_link))
            rows += page.rows
        if not rows and not self._regions:
            raise PayloadChanged(f"azure: no prices at all for {family}")
        return _FamilyPages(rows, is_complete and not self._row_count_guard.is_too_few(family, len(rows)))


class _FamilyPages(NamedTuple):
    rows: list[Any]
    is_complete: bool


class _Page(NamedTuple):
    rows: list[Any]
    next_link: str | None


def _page(value: object) -> _Page:
    rows = value.get("Items") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(rows, list):
        raise PayloadChanged("azure: the answer has no list of prices")
    link = value.get("NextPageLink")
    return _Page(rows, str(link) if link else None)


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    """Return the host of a URL; None: not a URL. Links in the price list contain the port, its own URL does not."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return None


def _regions(option: object) -> tuple[str, ...]:
    """Return region names for the filter: lower case, no spaces; others would break it."""
    values = option if isinstance(option, tuple) else ()
    names = (str(value).replace(" ", "").lower() for value in values)
    return tuple(dict.fromkeys(name for name in names if _REGION.fullmatch(name)))
