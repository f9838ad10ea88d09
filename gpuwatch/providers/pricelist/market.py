"""Queries all sources in parallel; if one fails, the answer is partial. Also adds the dated lists."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import Answer, ProviderSettings, Query
from gpuwatch.ports.declarations import ProviderInfo, Tools
from gpuwatch.ports.findings import Finding
from gpuwatch.ports.settings import Option
from gpuwatch.providers.pricelist.dated_lists import DatedLists
from gpuwatch.providers.pricelist.declaration import PriceSource, built_in, own_sources
from gpuwatch.providers.pricelist.source_client import SourceClient, rebased
from gpuwatch.providers.toolkit.currency import ExchangeRates
from gpuwatch.providers.toolkit.fan_out import query_all
from gpuwatch.providers.toolkit.post_processing import ParseResult, build_answer, matching

log = logging.getLogger(__name__)


class PriceLists:
    """The market."""

    def __init__(self, settings: ProviderSettings, tools: Tools, info: ProviderInfo) -> None:
        self.name = info.name
        self._settings = settings
        self._tools = tools
        base = settings.base_url.rstrip("/")
        self._base_url = None if base == info.base_url else base
        rate_url = str(settings.options.get("rate_url") or "")
        self._exchange = ExchangeRates(tools, rebased(rate_url, "rates", self._base_url))
        self._dated = DatedLists(settings.options.get("dated"), self._exchange.rate)
        self._lock = threading.Lock()
        self._askers: list[SourceClient] | None = None
        self._down: set[str] = set()

    def search(self, query: Query) -> Answer:
        """Return the matching offers of all sources.

        Raises:
            ProviderError: no source has a usable answer; or a declaration is wrong.
        """
        began, now = self._tools.monotonic(), self._tools.now()
        askers = [one for one in self._ready() if one.source.sells_spot or not query.spot]
        answers = query_all({one.name: one.seen for one in askers}, self._tools.stop)
        result, failed = ParseResult(searches=0), list[ProviderError]()
        for asker, found in zip(askers, answers, strict=True):
            if isinstance(found, ProviderError):
                failed.append(found)
                kind = "not understood" if isinstance(found, PayloadChanged) else "no answer"
                result.skip(f"{asker.source.name}: {kind}")
                result.note_missing(f"{asker.source.name}: {found}")
            else:
                _join(result, asker.source, found, query, now)
            self._tell(asker, found)
        if failed and len(failed) == len(askers):
            raise failed[0]
        result.add(self._dated.seen(now))
        return build_answer(result, query, self.name, observed_at=now, elapsed_s=self._tools.monotonic() - began)

    def findings(self) -> Iterator[Finding]:
        """For `gpuwatch doctor`: return the age of the dated lists."""
        return self._dated.findings(self._tools.now().date())

    def _ready(self) -> list[SourceClient]:
        with self._lock:
            if self._askers is None:
                self._askers = [self._asker(source) for source in wanted(self._settings.options)]
            return self._askers

    def _asker(self, source: PriceSource) -> SourceClient:
        url = rebased(source.url, source.name, self._base_url)
        return SourceClient(source, self._settings, self._tools, self._exchange.rate, url)

    def _tell(self, asker: SourceClient, found: ParseResult | ProviderError) -> None:
        """Log one line when a source fails, and one when it is back."""
        with self._lock:
            was_down, is_down = asker.name in self._down, isinstance(found, ProviderError)
            (self._down.add if is_down else self._down.discard)(asker.name)
        if is_down and not was_down:
            log.warning("%s", found)
        elif was_down and not is_down:
            log.info("%s: answers again", asker.name)


def wanted(options: Mapping[str, Option]) -> list[PriceSource]:
    """Return the sources to request: those in the settings, or all with whole prices; and the owner's own.

    Raises:
        ProviderError: an own declaration is wrong, or missing since the settings were read.
    """
    try:
        own, shipped = own_sources(options.get("files")), built_in()
    except ValueError as error:
        raise ProviderError(f"pricelist: {error}") from error
    named = options.get("sources")
    if not isinstance(named, tuple) or not named:
        named = tuple(name for name, source in shipped.items() if not source.only_if_named)
    return list(({name: shipped[name] for name in named if name in shipped} | own).values())


def _join(result: ParseResult, source: PriceSource, found: ParseResult, query: Query, now: datetime) -> None:
    """Add the matching offers. A cached price still applies, so it gets the time of the others."""
    offers = [msgspec.structs.replace(offer, observed_at=now) for offer in matching(found.offers, query)]
    result.add(msgspec.structs.replace(found, offers=offers), source.name)
