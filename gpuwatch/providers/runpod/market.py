"""The market of RunPod: the catalogue of REST v2 with a key, that of GraphQL without one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderError
from gpuwatch.ports import Answer, Completeness, ProviderSettings, Query
from gpuwatch.providers.runpod.catalogue import (
    MOST_GPUS,
    PROVIDER,
    CatalogueRequest,
    gpu_types,
    most_gpus,
    parse_catalogue,
)
from gpuwatch.providers.runpod.client import RunpodClient
from gpuwatch.providers.runpod.keyless import KEYLESS_GPUS, catalogue_query, parse_keyless
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.post_processing import ParseResult, build_answer

_FRESH_S: Final = 2.5  # launches use the current price; shorter than the default `gather` of 3 s


class _CatalogueReply(msgspec.Struct, frozen=True):
    """A decoded answer, the parameters of its request, and its time."""

    cloud: str
    count: int
    value: Any
    observed_at: datetime


class RunpodMarket:
    """Searches both clouds, or those in the settings. RunPod has had no spot machines since 2026-09."""

    name = PROVIDER

    def __init__(self, account: RunpodClient, settings: ProviderSettings, default_disk_gb: float) -> None:
        clouds = settings.options.get("clouds")
        self._account = account
        self._default_disk_gb = default_disk_gb
        self._clouds = clouds if isinstance(clouds, tuple) else ("SECURE", "COMMUNITY")
        self._reported: TtlCache[_CatalogueReply] = TtlCache(_FRESH_S, account.tools.monotonic)

    def search(self, query: Query) -> Answer:
        """Return matching offers: one request per cloud and GPU count; without a key one in all.

        Raises:
            ProviderError: no usable answer.
        """
        started_s = self._account.tools.monotonic()
        if query.spot:
            return self._nothing()
        result, observed_at = self._with_key(query) if self._account.has_key else self._without_key(query)
        elapsed_s = self._account.tools.monotonic() - started_s
        return build_answer(result, query, PROVIDER, observed_at=observed_at, elapsed_s=elapsed_s)

    def _disk_gb(self, query: Query) -> float:
        return self._default_disk_gb if query.disk_gb is None else query.disk_gb

    def _nothing(self) -> Answer:
        now = self._account.tools.now()
        return Answer(
            provider=PROVIDER, observed_at=now, offers=(), completeness=Completeness.COMPLETE, rows=0, searches=0
        )

    def _with_key(self, query: Query) -> tuple[ParseResult, datetime]:
        """Merge all catalogues; if some of them fail, the result is partial. Raises ProviderError."""
        stated, failed = [], list[ProviderError]()
        for cloud in self._clouds:
            try:
                stated += self._catalogues(cloud, query, failed)
            except KeyRejected:
                raise
            except ProviderError as error:
                failed.append(error)
        observed_at = min((one.observed_at for one in stated), default=self._account.tools.now())
        total = ParseResult()
        for one in stated:
            asked = CatalogueRequest(one.cloud, one.count, self._disk_gb(query), observed_at)
            try:
                total.add(parse_catalogue(one.value, asked))
            except PayloadChanged as error:
                failed.append(error)
        if failed and not total.rows:
            raise failed[0]
        total.searches = len(stated)
        for one_failed in failed:
            total.note_missing(str(one_failed))
        return total, observed_at

    def _catalogues(self, cloud: str, query: Query, failed: list[ProviderError]) -> list[_CatalogueReply]:
        """Return the catalogues of the wanted GPU counts up to the largest on sale. Raises ProviderError: none."""
        first = self._catalogue(cloud, query.count_min)
        most = min(most_gpus(gpu_types(first.value), cloud, query.gpus), query.count_max or MOST_GPUS, MOST_GPUS)
        stated = [first]
        for count in range(query.count_min + 1, most + 1):
            try:
                stated.append(self._catalogue(cloud, count))
            except ProviderError as error:
                failed.append(error)
                break  # the others would fail, too, and each would be tried three times
        return stated

    def _catalogue(self, cloud: str, count: int) -> _CatalogueReply:
        return self._reported.get(lambda: self._fetch(cloud, count), (cloud, count))

    def _fetch(self, cloud: str, count: int) -> _CatalogueReply:
        params = {"include": "AVAILABILITY", "product": "POD", "count": str(count), "cloud": cloud}
        value = self._account.get("/v2/catalog/gpus", params)
        return _CatalogueReply(cloud, count, value, self._account.tools.now())

    def _without_key(self, query: Query) -> tuple[ParseResult, datetime]:
        """Send one query for everything. Raises ProviderError."""
        counts = range(query.count_min, min(query.count_max or KEYLESS_GPUS, MOST_GPUS) + 1)
        text = catalogue_query(counts, self._clouds)
        stated = self._reported.get(
            lambda: _CatalogueReply("", 0, self._account.graphql(text), self._account.tools.now()), text
        )
        total = ParseResult()
        for cloud in self._clouds:
            for count in counts:
                asked = CatalogueRequest(cloud, count, self._disk_gb(query), stated.observed_at)
                total.add(parse_keyless(stated.value, asked))
        total.searches = 1
        return total, stated.observed_at
