"""The market of RunPod: the catalogue of REST v2 with a key, that of GraphQL without one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderError
from gpuwatch.ports import Answer, Completeness, ProviderSettings, Query
from gpuwatch.providers.runpod.catalogue import (
    MAX_GPUS,
    PROVIDER,
    CatalogueRequest,
    gpu_types,
    max_gpus_per_pod,
    parse_catalogue,
)
from gpuwatch.providers.runpod.client import RunpodClient
from gpuwatch.providers.runpod.keyless import KEYLESS_GPUS, catalogue_query, parse_keyless
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.post_processing import ParseResult, build_answer

_TTL_S: Final = 2.5  # launches use the current price; shorter than the default `gather` of 3 s


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
        self._cache: TtlCache[_CatalogueReply] = TtlCache(_TTL_S, account.tools.monotonic)

    def search(self, query: Query) -> Answer:
        """Return matching offers: one request per cloud and GPU count; without a key one in all.

        Raises:
            ProviderError: no usable answer.
        """
        started_s = self._account.tools.monotonic()
        if query.spot:
            return self._empty_answer()
        result, observed_at = self._with_key(query) if self._account.has_key else self._without_key(query)
        elapsed_s = self._account.tools.monotonic() - started_s
        return build_answer(result, query, PROVIDER, observed_at=observed_at, elapsed_s=elapsed_s)

    def _disk_gb(self, query: Query) -> float:
        return self._default_disk_gb if query.disk_gb is None else query.disk_gb

    def _empty_answer(self) -> Answer:
        now = self._account.tools.now()
        return Answer(
            provider=PROVIDER, observed_at=now, offers=(), completeness=Completeness.COMPLETE, rows=0, searches=0
        )

    def _with_key(self, query: Query) -> tuple[ParseResult, datetime]:
        """Merge all catalogues; if some of them fail, the result is partial. Raises ProviderError."""
        replies, errors = [], list[ProviderError]()
        for cloud in self._clouds:
            try:
                replies += self._catalogues(cloud, query, errors)
            except KeyRejected:
                raise
            except ProviderError as error:
                errors.append(error)
        observed_at = min((reply.observed_at for reply in replies), default=self._account.tools.now())
        merged = ParseResult()
        for reply in replies:
            request = CatalogueRequest(reply.cloud, reply.count, self._disk_gb(query), observed_at)
            try:
                merged.add(parse_catalogue(reply.value, request))
            except PayloadChanged as error:
                errors.append(error)
        if errors and not merged.rows:
            raise errors[0]
        merged.searches = len(replies)
        for failure in errors:
            merged.note_missing(str(failure))
        return merged, observed_at

    def _catalogues(self, cloud: str, query: Query, errors: list[ProviderError]) -> list[_CatalogueReply]:
        """Return the catalogues of the wanted GPU counts up to the largest on sale. Raises ProviderError: none."""
        first = self._catalogue(cloud, query.count_min)
        max_count = min(
            max_gpus_per_pod(gpu_types(first.value), cloud, query.gpus), query.count_max or MAX_GPUS, MAX_GPUS
        )
        replies = [first]
        for count in range(query.count_min + 1, max_count + 1):
            try:
                replies.append(self._catalogue(cloud, count))
            except ProviderError as error:
                errors.append(error)
                break  # the others would fail, too, and each would be tried three times
        return replies

    def _catalogue(self, cloud: str, count: int) -> _CatalogueReply:
        return self._cache.get(lambda: self._fetch(cloud, count), (cloud, count))

    def _fetch(self, cloud: str, count: int) -> _CatalogueReply:
        params = {"include": "AVAILABILITY", "product": "POD", "count": str(count), "cloud": cloud}
        value = self._account.get("/v2/catalog/gpus", params)
        return _CatalogueReply(cloud, count, value, self._account.tools.now())

    def _without_key(self, query: Query) -> tuple[ParseResult, datetime]:
        """Send one query for everything. Raises ProviderError."""
        counts = range(query.count_min, min(query.count_max or KEYLESS_GPUS, MAX_GPUS) + 1)
        text = catalogue_query(counts, self._clouds)
        reply = self._cache.get(
            lambda: _CatalogueReply("", 0, self._account.graphql(text), self._account.tools.now()), text
        )
        merged = ParseResult()
        for cloud in self._clouds:
            for count in counts:
                request = CatalogueRequest(cloud, count, self._disk_gb(query), reply.observed_at)
                merged.add(parse_keyless(reply.value, request))
        merged.searches = 1
        return merged, reply.observed_at
