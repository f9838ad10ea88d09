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
from gpuwatch.providers.runpod.catalogue import PROVIDER, SENTINEL, CatalogueRequest, need_one, offer_of
from gpuwatch.providers.runpod.error_mapping import graphql_data
from gpuwatch.providers.runpod.offer_ids import SECURE, PodPlacement, is_place
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


def parse_keyless(value: Any, asked: CatalogueRequest) -> ParseResult:
    """Parse the offers of one cloud and one GPU count.

    Raises:
        PayloadChanged: it is not a catalogue, or none of its rows is usable.
        KeyRejected: the API requires a key now.
    """
    data = graphql_data(value, PROVIDER)
    rows, known, result = data.get("gpuTypes"), 0, ParseResult()
    if not isinstance(rows, list) or not objects(rows):
        raise PayloadChanged(f"{PROVIDER}: the catalogue contains no list of GPUs")
    places = _places(data.get("dataCenters"), asked) if asked.cloud == SECURE else {}
    for one in objects(rows):
        result.rows += 1
        if one.get("id") == SENTINEL or one.get(f"{asked.cloud.lower()}Cloud") is False:
            continue
        reason = _odd(one, asked)
        if reason is not None:
            result.skip(reason)
            continue
        known += 1
        result.offers += _offers(one, asked, places, result)
    need_one(known, result)
    return result


def _odd(one: Mapping[str, Any], asked: CatalogueRequest) -> str | None:
    """Return why a row is skipped; None: it is usable."""
    kind, gpu_id = asked.cloud.lower(), word(one.get("id"), 80)
    if gpu_id is None or one.get("id") != gpu_id:
        return "no id of a GPU type"
    if one.get(f"{kind}Cloud") is not True:
        return f"{kind}Cloud is not true or false"
    if f"{kind}{asked.count}" not in one:
        return "stock is missing"
    if _is_in_stock(one[f"{kind}{asked.count}"]) and usd_hour(one.get(f"{kind}Price")) is None:
        return "no price"
    return None


def _offers(
    one: Mapping[str, Any], asked: CatalogueRequest, places: Mapping[str, list[str]], result: ParseResult
) -> Iterator[Offer]:
    """Yield the offers of a usable row: one per place."""
    kind = asked.cloud.lower()
    price, most = usd_hour(one.get(f"{kind}Price")), whole(one.get(f"maxGpuCount{kind.capitalize()}Cloud"), 1)
    in_stock = _is_in_stock(one[f"{kind}{asked.count}"])
    if not in_stock or price is None or (most is not None and asked.count > most):
        return
    for place in places.get(one["id"]) or (None,):
        wanted = PodPlacement(one["id"], asked.cloud, asked.count, place)
        offer = offer_of(wanted, price, whole(one.get("memoryInGb"), 1, 4096), asked)
        if offer is None:
            result.skip("its id is not one that can be kept")
            return
        yield offer


def _places(rows: Any, asked: CatalogueRequest) -> dict[str, list[str]]:
    """Return GPU type → data centres that have this many at once; empty for a list that cannot be read."""
    found: dict[str, list[str]] = {}
    for row in objects(rows):
        place = word(row.get("id"), 40)
        for one in objects(row.get(f"n{asked.count}")) if is_place(place) else []:
            gpu_id = one.get("gpuTypeId")
            if isinstance(gpu_id, str) and place is not None and one.get("available") is True and _is_in_stock(one):
                found.setdefault(gpu_id, []).append(place)
    return found


def _is_in_stock(stated: Any) -> bool:
    """Parse the stock: title case here, upper case in REST; null and unknown words do not prove stock."""
    status = stated.get("stockStatus") if isinstance(stated, dict) else None
    return isinstance(status, str) and _IN_STOCK.get(status.lower(), False)


def parse_balance(value: Any) -> float:
    """Return the account's balance in US dollars. Raises ProviderError."""
    myself = graphql_data(value, PROVIDER).get("myself")
    balance = number(myself.get("clientBalance"), -1e9, 1e9) if isinstance(myself, dict) else None
    if balance is None:
        raise PayloadChanged(f"{PROVIDER}: GraphQL: the account answer has no balance")
    return balance


def parse_ssh_keys(value: Any) -> bool:
    """Return whether the account has an SSH key. Raises PayloadChanged, KeyRejected."""
    found = at(graphql_data(value, PROVIDER), "myself", "pubKey")
    if not isinstance(found, str):
        raise PayloadChanged(f"{PROVIDER}: the answer has no SSH keys of the account")
    return bool(found.strip())


def parse_account(value: Any) -> str:
    """Return the account's id. Raises ProviderError."""
    myself = graphql_data(value, PROVIDER).get("myself")
    named = word(myself.get("id"), 100) if isinstance(myself, dict) else None
    if not named:
        raise PayloadChanged(f"{PROVIDER}: GraphQL: the account answer has no id")
    return named
