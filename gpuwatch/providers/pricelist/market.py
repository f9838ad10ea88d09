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
from gpuwatch.providers.pricelist.declaration import PriceSource, built_in_sources, own_sources
from gpuwatch.providers.pricelist.source_client import SourceClient, rebase_url
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
        self._exchange = ExchangeRates(tools, rebase_url(rate_url, "rates", self._base_url))
        self._dated = DatedLists(settings.options.get("dated"), self._exchange.rate)
        self._lock = threading.Lock()
        self._clients: list[SourceClient] | None = None
        self._failing: set[str] = set()

    def search(self, query: Query) -> Answer:
        """Return the matching offers of all sources.

        Raises:
            ProviderError: no source has a usable answer; or a declaration is wrong.
        """
        started_s, now = self._tools.monotonic(), self._tools.now()
        clients = [
            source_client
            for source_client in self._source_clients()
            if source_client.source.sells_spot or not query.spot
        ]
        answers = query_all({one.name: one.read for one in clients}, self._tools.stop)
        result, errors = ParseResult(searches=0), list[ProviderError]()
        for client, answer in zip(clients, answers, strict=True):
            if isinstance(answer, ProviderError):
                errors.append(answer)
                kind = "not understood" if isinstance(answer, PayloadChanged) else "no answer"
                result.skip(f"{client.source.name}: {kind}")
                result.note_missing(f"{client.source.name}: {answer}")
            else:
                _add_matching(result, client.source, answer, query, now)
            self._log_change(client, answer)
        if errors and len(errors) == len(clients):
            raise errors[0]
        result.add(self._dated.read(now))
        return build_answer(result, query, self.name, observed_at=now, elapsed_s=self._tools.monotonic() - started_s)

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


def _add_matching(result: ParseResult, source: PriceSource, found: ParseResult, query: Query, now: datetime) -> None:
    """Add the matching offers. A cached price still applies, so it gets the time of the others."""
    offers = [msgspec.structs.replace(offer, observed_at=now) for offer in matching(found.offers, query)]
    result.add(msgspec.structs.replace(found, offers=offers), source.name)
