"""RunPod's catalogue without a key: one GraphQL query for all GPU types, clouds and GPU counts. Pure.

Prices are those of the type (`securePrice`, `communityPrice`). `lowestPrice` is used only for the stock, because the
two sometimes disagree. The API retires early in 2027.
source: the vendor's GraphQL guide, recorded answers of 2026-05-31.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpuwatch.domain.market.offer import Offer
from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.runpod.catalogue import PROVIDER, SENTINEL, CatalogueRequest, offer_of, require_usable_row
from gpuwatch.providers.runpod.error_mapping import graphql_data
from gpuwatch.providers.runpod.offer_ids import SECURE, PodPlacement, is_place
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.providers.toolkit.validation import at, number, objects, usd_hour, whole, word

KEYLESS_GPUS: Final = 8  # in one pod, if the query has no maximum: each count makes the GraphQL query longer
BALANCE: Final = "query { myself { clientBalance } }"
ACCOUNT: Final = "query { myself { id } }"
SSH_KEYS: Final = "query { myself { pubKey } }"
_IN_STOCK: Final = {"high": True, "medium": True, "low": True, "none": False, "out": False}


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
    """Parse the offers of one cloud and one GPU count.

    Raises:
        PayloadChanged: it is not a catalogue, or none of its rows is usable.
        KeyRejected: the API requires a key now.
    """
    data = graphql_data(value, PROVIDER)
    rows, usable_rows, result = data.get("gpuTypes"), 0, ParseResult()
    if not isinstance(rows, list) or not objects(rows):
        raise PayloadChanged(f"{PROVIDER}: the catalogue contains no list of GPUs")
    places = _places(data.get("dataCenters"), request) if request.cloud == SECURE else {}
    for one in objects(rows):
        result.rows += 1
        if one.get("id") == SENTINEL or one.get(f"{request.cloud.lower()}Cloud") is False:
            continue
        if is_ending(one, request.observed_at):
            continue
        reason = _skip_reason(one, request)
        if reason is not None:
            result.skip(reason)
            continue
        usable_rows += 1
        result.offers += _offers(one, request, places, result)
    require_usable_row(usable_rows, result)
    return result


def _skip_reason(one: Mapping[str, Any], request: CatalogueRequest) -> str | None:
    """Return why a row is skipped; None: it is usable."""
    kind, gpu_id = request.cloud.lower(), word(one.get("id"), 80)
    if gpu_id is None or one.get("id") != gpu_id:
        return "no id of a GPU type"
    if one.get(f"{kind}Cloud") is not True:
        return f"{kind}Cloud is not true or false"
    if f"{kind}{request.count}" not in one:
        return "stock is missing"
    if _is_in_stock(one[f"{kind}{request.count}"]) and usd_hour(one.get(f"{kind}Price")) is None:
        return "no price"
    return None


def _offers(
    one: Mapping[str, Any], request: CatalogueRequest, places: Mapping[str, list[str]], result: ParseResult
) -> Iterator[Offer]:
    """Yield the offers of a usable row: one per place."""
    kind = request.cloud.lower()
    price, max_count = usd_hour(one.get(f"{kind}Price")), whole(one.get(f"maxGpuCount{kind.capitalize()}Cloud"), 1)
    is_in_stock = _is_in_stock(one[f"{kind}{request.count}"])
    if not is_in_stock or price is None or (max_count is not None and request.count > max_count):
        return
    for place in places.get(one["id"]) or (None,):
        placement = PodPlacement(one["id"], request.cloud, request.count, place)
        offer = offer_of(placement, price, whole(one.get("memoryInGb"), 1, 4096), request)
        if offer is None:
            result.skip("its id is not one that can be kept")
            return
        yield offer


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
    return isinstance(status, str) and _IN_STOCK.get(status.lower(), False)


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
