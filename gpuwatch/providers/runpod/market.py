"""The market of RunPod: the catalogue of REST v2 with a key, that of GraphQL without one.

One GraphQL query returns all GPU types, clouds and GPU counts. Its prices are those of the type (`securePrice`,
`communityPrice`); `lowestPrice` is used only for the stock, because the two sometimes disagree. The API retires early
in 2027.
source: the vendor's GraphQL guide, recorded answers of 2026-05-31.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderError
from gpuwatch.ports import Answer, Completeness, ProviderSettings, Query
from gpuwatch.providers.runpod.catalogue import (
    MAX_GPUS,
    PROVIDER,
    SECURE,
    CatalogueRequest,
    GpuTypeRow,
    gpu_id_of,
    gpu_types,
    is_place,
    max_gpus_per_pod,
    parse_catalogue,
    parse_types,
)
from gpuwatch.providers.runpod.client import RunpodClient, graphql_data
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped, build_answer
from gpuwatch.providers.toolkit.validation import at, number, objects, usd_hour, whole, word

KEYLESS_GPUS: Final = 8  # in one pod, if the query has no maximum: each count makes the GraphQL query longer
BALANCE: Final = "query { myself { clientBalance } }"
ACCOUNT: Final = "query { myself { id } }"
SSH_KEYS: Final = "query { myself { pubKey } }"


def catalogue_query(counts: Iterable[int], clouds: Iterable[str]) -> str:
    """Build the GraphQL query. Stock has aliases such as `secure8`, data centres such as `n8`."""
    counts = list(counts)
    stock = " ".join(
        f"{cloud.lower()}{count}: lowestPrice(input: {{gpuCount: {count}, "
        f"secureCloud: {'true' if cloud == SECURE else 'false'}}}) {{ stockStatus }}"
        for cloud in clouds
        for count in counts
    )
    places = " ".join(
        f"n{count}: gpuAvailability(input: {{gpuCount: {count}}}) {{ gpuTypeId available stockStatus }}"
        for count in counts
    )
    return (
        "query { gpuTypes { id memoryInGb secureCloud communityCloud securePrice communityPrice "
        f"maxGpuCountSecureCloud maxGpuCountCommunityCloud {stock} }} dataCenters {{ id {places} }} }}"
    )


def parse_keyless(value: Any, request: CatalogueRequest) -> ParseResult:
    """Like `parse_catalogue`, from the answer to `catalogue_query`.

    Raises:
        PayloadChanged: it is not a catalogue, or none of its rows is usable.
        KeyRejected: the API requires a key now.
    """
    data = graphql_data(value, PROVIDER)
    rows = data.get("gpuTypes")
    if not isinstance(rows, list) or not objects(rows):
        raise PayloadChanged(f"{PROVIDER}: the catalogue contains no list of GPUs")
    places = _places(data.get("dataCenters"), request) if request.cloud == SECURE else {}

    def read(one: Mapping[str, Any], request: CatalogueRequest, _result: ParseResult) -> GpuTypeRow | None:
        return _read_type(one, request, places)

    return parse_types(objects(rows), request, read)


def _read_type(
    one: Mapping[str, Any], request: CatalogueRequest, places: Mapping[str, Sequence[str]]
) -> GpuTypeRow | None:
    cloud = request.cloud.lower()
    if one.get(f"{cloud}Cloud") is False:
        return None
    gpu_id = gpu_id_of(one)
    if one.get(f"{cloud}Cloud") is not True:
        raise RowSkipped(f"{cloud}Cloud is not true or false")
    if f"{cloud}{request.count}" not in one:
        raise RowSkipped("stock is missing")
    return GpuTypeRow(
        gpu_id=gpu_id,
        memory_gb=whole(one.get("memoryInGb"), 1, 4096),
        gpu_usd_hour=usd_hour(one.get(f"{cloud}Price")),
        is_in_stock=_is_in_stock(one[f"{cloud}{request.count}"]),
        max_count=whole(one.get(f"maxGpuCount{cloud.capitalize()}Cloud"), 1),
        places=places.get(gpu_id) or (None,),
    )


def _places(rows: Any, request: CatalogueRequest) -> dict[str, list[str]]:
    """Return GPU type → data centres that have this many at once; empty for a list that cannot be read."""
    places_by_gpu: dict[str, list[str]] = {}
    for row in objects(rows):
        place = word(row.get("id"), 40)
        for one in objects(row.get(f"n{request.count}")) if is_place(place) else []:
            gpu_id = one.get("gpuTypeId")
            if isinstance(gpu_id, str) and place is not None and one.get("available") is True and _is_in_stock(one):
                places_by_gpu.setdefault(gpu_id, []).append(place)
    return places_by_gpu


def _is_in_stock(value: Any) -> bool:
    """Parse the stock: title case here, upper case in REST; null and unknown words do not prove stock."""
    status = value.get("stockStatus") if isinstance(value, dict) else None
    return isinstance(status, str) and status.lower() in _IN_STOCK


def parse_balance(value: Any) -> float:
    """Return the account's balance in US dollars. Raises ProviderError."""
    account = graphql_data(value, PROVIDER).get("myself")
    balance = number(account.get("clientBalance"), -1e9, 1e9) if isinstance(account, dict) else None
    if balance is None:
        raise PayloadChanged(f"{PROVIDER}: GraphQL: the account answer has no balance")
    return balance


def parse_ssh_keys(value: Any) -> bool:
    """Return whether the account has an SSH key. Raises PayloadChanged, KeyRejected."""
    public_keys = at(graphql_data(value, PROVIDER), "myself", "pubKey")
    if not isinstance(public_keys, str):
        raise PayloadChanged(f"{PROVIDER}: the answer has no SSH keys of the account")
    return bool(public_keys.strip())


def parse_account(value: Any) -> str:
    """Return the account's id. Raises ProviderError."""
    account = graphql_data(value, PROVIDER).get("myself")
    account_id = word(account.get("id"), 100) if isinstance(account, dict) else None
    if not account_id:
        raise PayloadChanged(f"{PROVIDER}: GraphQL: the account answer has no id")
    return account_id


_TTL_S: Final = 2.5  # launches use the current price; shorter than the default `gather` of 3 s


_IN_STOCK: Final = frozenset({"high", "medium", "low"})  # title case there


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
