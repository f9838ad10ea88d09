"""RunPod's catalogue as offers, with a key and without."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest
import respx

from gpuwatch import providers
from gpuwatch.domain.market.money import Commission, price_of
from gpuwatch.domain.market.offer import OfferKind, is_slice
from gpuwatch.errors import KeyRejected, PayloadChanged, RateLimited
from gpuwatch.ports import Completeness, ProviderSettings, Query
from gpuwatch.providers.runpod.catalogue import (
    CatalogueRequest,
    PodPlacement,
    country_of,
    machine_id,
    offer_id,
    parse_catalogue,
    parse_offer_id,
)
from gpuwatch.providers.runpod.market import catalogue_query, parse_keyless
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.providers.runpod.bench import BENCH

RECORDED = TESTS / "recorded" / "runpod"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
SECURE = CatalogueRequest("SECURE", 1, 0.0, NOW)
COMMUNITY = CatalogueRequest("COMMUNITY", 1, 0.0, NOW)


def a_type(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = copy.deepcopy(json.loads((RECORDED / "v2-catalog-gpus-200.json").read_bytes())["gpus"][0])
    return row | changes


def of(*rows: Any, asked: CatalogueRequest = SECURE) -> ParseResult:
    return parse_catalogue({"gpus": list(rows)}, asked)


def test_the_price_is_of_the_cloud_times_the_gpus_plus_the_disk() -> None:
    [secure] = of(a_type(), asked=CatalogueRequest("SECURE", 4, 200.0, NOW)).offers
    [community] = of(a_type(), asked=CatalogueRequest("COMMUNITY", 2, 0.0, NOW)).offers
    assert secure.quoted_usd_hour == pytest.approx(4 * 0.44 + 200 * 0.10 / 730)
    assert community.quoted_usd_hour == pytest.approx(2 * 0.31)
    assert (secure.kind, secure.region, secure.country) == (OfferKind.LIVE, "US-KS-2", "US")


def test_another_disk_is_priced_at_the_rate_of_what_runs() -> None:
    [offer] = of(a_type()).offers
    price = price_of(offer, 730.0, Commission())
    assert price.listed_microusd_hour == round((0.44 + 0.10) * 1e6)


def test_a_price_beside_a_cloud_where_it_is_not_sold_is_no_price() -> None:
    row = a_type(community=False, price={"secure": 3.59, "community": 0.5})
    assert of(row, asked=COMMUNITY).offers == []
    assert of(row, asked=COMMUNITY).skipped == {}


def test_there_is_an_offer_for_each_place_that_has_stock() -> None:
    places = [
        {"id": "EU-RO-1", "name": "x", "availability": "LOW"},
        {"id": "EUR-IS-1", "name": "x", "availability": "NONE"},
        {"id": "XX-NEW-1", "name": "x", "availability": "HIGH"},
    ]
    offers = of(a_type(dataCenters=places)).offers
    assert [(o.region, o.country) for o in offers] == [("EU-RO-1", "RO"), ("XX-NEW-1", None)]
    assert len({offer.identity for offer in offers}) == 2


def test_without_a_list_of_places_it_is_somewhere() -> None:
    row = a_type()
    del row["dataCenters"]
    [offer] = of(row, asked=COMMUNITY).offers
    assert (offer.region, offer.offer_id) == (None, "NVIDIA GeForce RTX 4090/COMMUNITY/1/*")


def test_a_row_that_is_not_understood_is_skipped_with_its_reason() -> None:
    cases: list[Any] = [
        ({"price": {"secure": 0}}, "no price"),
        ({"price": None}, "no price"),
        ({"price": {"secure": -1}}, "no price"),
        ({"price": {"secure": 1e9}}, "no price"),
        ({"price": {"secure": "NaN"}}, "no price"),
        ({"availability": "PLENTY"}, "availability is not understood"),
        ({"availability": None}, "availability is not understood"),
        ({"availability": ["HIGH"]}, "availability is not understood"),
        ({"id": 17}, "no id of a GPU type"),
        ({"id": "a\u202eb"}, "no id of a GPU type"),
        ({"secure": "yes"}, "secure is not true or false"),
    ]
    for changes, reason in cases:
        with case((changes, reason)):
            seen = of(a_type(id="NVIDIA L4"), a_type(**changes))
            assert [offer.gpu for offer in seen.offers] == ["L4"]
            assert seen.skipped == {reason: 1}


def test_a_catalogue_without_a_row_that_is_understood_is_no_market_without_offers() -> None:
    cases: list[Any] = [[], None, {}, [17], [{}], [{"id": "NVIDIA L4"}]]
    for rows in cases:
        with case(rows), pytest.raises(PayloadChanged):
            parse_catalogue({"gpus": rows}, SECURE)


def test_what_is_sold_out_everywhere_is_no_offer_and_no_fault() -> None:
    seen = of(a_type(availability="NONE", dataCenters=None))
    assert (seen.offers, seen.skipped, seen.rows) == ([], {}, 1)


def test_more_gpus_than_a_pod_of_the_type_may_have_are_no_offer() -> None:
    assert of(a_type(), asked=CatalogueRequest("COMMUNITY", 5, 0.0, NOW)).offers == []  # 4 at most


def test_cuda_is_what_every_host_has_at_least() -> None:
    def of_versions(*versions: Any) -> float | None:
        rows = [{"version": version, "available": version != "11.8"} for version in versions]
        return of(a_type(cudaVersions=rows)).offers[0].cuda_max

    assert of_versions("12.8", "12.4", "11.8", "13.0") == 12.4
    assert [of_versions(), of_versions("11.8"), of_versions("12.8", "x"), of_versions(None)] == [None] * 4


def test_a_slice_is_reported_and_a_whole_card_is_none() -> None:
    mig = "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb"
    offers = of(a_type(id=mig, memory=24), a_type(id="NVIDIA RTX PRO 6000 Blackwell Server Edition", memory=96)).offers
    assert [is_slice(offer) for offer in offers] == [True, False]
    assert offers[0].gpu != offers[1].gpu
    assert offers[1].gpu == "RTX PRO 6000 Server"


def test_every_recorded_type_makes_ids_that_can_be_kept_and_read() -> None:
    for row in json.loads((RECORDED / "gpu-types-table-2026-02-12.json").read_bytes()):
        with case(row):
            for cloud, place in (("SECURE", "EUR-IS-1"), ("COMMUNITY", None), ("COMMUNITY", "CA-MTL-1")):
                wanted = PodPlacement(row["id"], cloud, 8, place)
                kept, machine = offer_id(wanted), machine_id(wanted)
                assert kept is not None
                assert machine is not None
                assert max(len(kept), len(machine)) <= 64
                assert parse_offer_id(kept) == wanted


def test_what_is_no_offer_id_stands_for_nothing() -> None:
    cases: list[Any] = ["", "a/SECURE/1", "a/SECURE/0/*", "a/ALL/1/*", "a/SECURE/1/eu", "\n/S/1/*", "a/S/1/*/"]
    for text in cases:
        with case(text):
            assert parse_offer_id(text) is None


def test_a_country_is_known_for_known_data_centres_alone() -> None:
    assert [country_of(place) for place in ("SEA-SG-1", "OC-AU-1", "EU-XX-1", None)] == ["SG", "AU", None, None]


# --- queries ---------------------------------------------------------------------------------------------------------


URL = "https://api.runpod.io"


@pytest.fixture
def catalogue(respx_mock: respx.MockRouter) -> respx.Route:
    """The route of the catalogue: the recorded type, of which both clouds sell up to three."""
    row = a_type(maxCount={"secure": 3, "community": 3})
    return respx_mock.get(f"{URL}/v2/catalog/gpus").respond(json={"gpus": [row]})


def asked(catalogue: respx.Route) -> list[tuple[str, str]]:
    return [(call.request.url.params["cloud"], call.request.url.params["count"]) for call in catalogue.calls]


def test_one_request_for_each_cloud_and_number_of_gpus_that_is_asked_for(catalogue: respx.Route) -> None:
    with BENCH.pointed_at(URL) as adapter:
        answer = adapter.market.search(Query(count_min=2, count_max=3))
        assert sorted(asked(catalogue)) == [("COMMUNITY", "2"), ("COMMUNITY", "3"), ("SECURE", "2"), ("SECURE", "3")]
        assert {offer.gpu_count for offer in answer.offers} == {2, 3}
        assert answer.searches == 4
        adapter.market.search(Query(count_min=2, count_max=2))
    assert catalogue.call_count == 4  # the answer is still fresh


def test_no_more_gpus_are_asked_for_than_are_sold_of_the_types_that_are_wanted(catalogue: respx.Route) -> None:
    with BENCH.pointed_at(URL) as adapter:
        adapter.market.search(Query(gpus=("RTX 4090",)))
    assert {count for _, count in asked(catalogue)} == {"1", "2", "3"}


def test_only_the_clouds_that_the_owner_names_are_asked(catalogue: respx.Route) -> None:
    bench = msgspec.structs.replace(BENCH, options={"clouds": ("COMMUNITY",)})
    with bench.pointed_at(URL) as adapter:
        found = adapter.market.search(Query(count_max=1)).offers
    assert {offer.offer_id.split("/")[1] for offer in found} == {"COMMUNITY"}
    assert asked(catalogue) == [("COMMUNITY", "1")]


@pytest.mark.respx
def test_spot_is_answered_empty_without_a_request() -> None:
    with BENCH.pointed_at(URL) as adapter:
        answer = adapter.market.search(Query(spot=True))
    assert (list(answer.offers), answer.completeness) == ([], Completeness.COMPLETE)


def test_a_cloud_that_fails_makes_the_answer_a_part(catalogue: respx.Route) -> None:
    def secure_fails_at_two(request: httpx.Request) -> httpx.Response:
        if (request.url.params["cloud"], request.url.params["count"]) == ("SECURE", "2"):
            return httpx.Response(503)
        return httpx.Response(200, json={"gpus": [a_type(maxCount={"secure": 3, "community": 3})]})

    catalogue.mock(side_effect=secure_fails_at_two)
    with BENCH.pointed_at(URL) as adapter:
        answer = adapter.market.search(Query())
    assert answer.completeness is Completeness.PARTIAL
    assert {offer.gpu_count for offer in answer.offers if "/SECURE/" in offer.offer_id} == {1}
    assert asked(catalogue).count(("SECURE", "2")) == 3
    assert ("SECURE", "3") not in asked(catalogue), "it would fail, too"


def test_a_gpu_that_is_sold_out_in_one_place_is_an_offer_in_the_other() -> None:
    with BENCH.place() as place, BENCH.pointed_at(place.url) as adapter:
        place.sell_out("NVIDIA H100 80GB HBM3", "SECURE", "US-KS-2")
        found = adapter.market.search(Query(gpus=("H100 SXM",), count_max=1)).offers
        assert [offer.region for offer in found] == ["CA-MTL-1"]


def test_without_a_key_one_question_brings_the_same_offers() -> None:
    with BENCH.place() as place:
        with BENCH.pointed_at(place.url) as adapter:
            with_key = adapter.market.search(Query(disk_gb=50.0)).offers
        place.requests.clear()
        with BENCH.pointed_at(place.url, None) as adapter:
            without = adapter.market.search(Query(disk_gb=50.0))
        assert list(without.offers) == list(with_key)
        assert [(request.method, request.path, request.key) for request in place.requests] == [
            ("POST", "/graphql", None)
        ]


def test_graphql_says_what_is_wrong_in_a_200() -> None:
    for message, error in (("Cannot query field", PayloadChanged), ("Unauthorized request", KeyRejected)):
        with pytest.raises(error):
            parse_keyless({"errors": [{"message": message}], "data": None}, SECURE)
    with pytest.raises(PayloadChanged):
        parse_keyless({"data": {"gpuTypes": None}}, SECURE)


def test_without_a_proof_of_stock_there_is_no_offer() -> None:
    row = {"id": "NVIDIA L4", "memoryInGb": 24, "secureCloud": True, "securePrice": 0.44, "communityCloud": False}
    for stock, offers in (
        (None, 0),
        ({"stockStatus": None}, 0),
        ({"stockStatus": "Out"}, 0),
        ({"stockStatus": "Low"}, 1),
    ):
        seen = parse_keyless({"data": {"gpuTypes": [row | {"secure1": stock}], "dataCenters": None}}, SECURE)
        assert len(seen.offers) == offers
    assert "secure3: lowestPrice(input: {gpuCount: 3, secureCloud: true})" in catalogue_query([3], ["SECURE"])


def test_a_place_without_the_type_is_no_place_of_it() -> None:
    row = {
        "id": "NVIDIA L4",
        "memoryInGb": 24,
        "secureCloud": True,
        "securePrice": 0.44,
        "secure1": {"stockStatus": "Low"},
    }
    reported = [("EU-RO-1", True, "Low"), ("US-KS-2", False, "Low"), ("CA-MTL-1", True, None)]
    places = [
        {"id": place, "n1": [{"gpuTypeId": "NVIDIA L4", "available": there, "stockStatus": stock}]}
        for place, there, stock in reported
    ]
    seen = parse_keyless({"data": {"gpuTypes": [row], "dataCenters": places}}, SECURE)
    assert [offer.region for offer in seen.offers] == ["EU-RO-1"]


def test_an_answer_of_several_requests_is_as_old_as_the_first(catalogue: respx.Route, http: PooledHttpClient) -> None:
    moments = (NOW + timedelta(seconds=n) for n in range(1, 100))
    settings = ProviderSettings(
        name="runpod", base_url=URL, api_key="demo-key", search_interval_s=0.0,
        options={"clouds": ("SECURE", "COMMUNITY"), "registry_id": None},
    )  # fmt: skip
    adapter = providers.build(settings, http, lambda: next(moments), lambda: 0.0)
    answer = adapter.market.search(Query(count_max=2))
    assert catalogue.call_count == 4
    assert answer.observed_at < NOW + timedelta(seconds=4)
    assert {offer.observed_at for offer in answer.offers} == {answer.observed_at}


def test_a_key_that_is_wrong_is_reported_and_not_asked_without(catalogue: respx.Route) -> None:
    catalogue.respond(401, json={"title": "x", "status": 401, "detail": "missing bearer token"})
    with BENCH.pointed_at(URL, "wrong-key-1234") as adapter, pytest.raises(KeyRejected, match="401"):
        adapter.market.search(Query())


def test_a_quota_that_is_used_up_is_reported_with_its_wait(catalogue: respx.Route) -> None:
    headers = {"RateLimit": '"hour";r=0;t=1800', "Retry-After": "1800"}
    catalogue.respond(429, json={"title": "x", "status": 429, "detail": "rate limit exceeded"}, headers=headers)
    with BENCH.pointed_at(URL) as adapter:
        with pytest.raises(RateLimited) as limited:
            adapter.market.search(Query(count_max=1))
        assert limited.value.retry_after_s == 1800
        requests = catalogue.call_count
        with pytest.raises(RateLimited):  # known already: nothing is sent
            adapter.market.search(Query(count_max=1))
    assert catalogue.call_count == requests
