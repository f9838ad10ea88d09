"""How Azure's price list is read: pages, families, what is cached, partial answers."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch import providers
from gpuwatch.errors import PayloadChanged, ProviderDown
from gpuwatch.ports import Completeness, Query
from gpuwatch.testing.bench import Bench
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving
from tests.clouds.azure import AzurePrices, price_row

BENCH = Bench(name="azure", place=AzurePrices, gpu="H100 NVL", key="a-key")
H100 = Query(gpus=("H100 SXM", "H100 NVL"))
ROW = price_row("Standard_NC40ads_H100_v5", "eastus", 6.98)


def test_all_pages_of_a_family_are_read() -> None:
    with AzurePrices(page_size=7) as place, BENCH.pointed_at(place.url) as adapter:
        answer = adapter.market.search(H100)
        assert len(answer.offers) == 15
        assert answer.completeness is Completeness.COMPLETE
        assert place.count("GET /api/retail/prices") == 10
        assert {request.params["api-version"] for request in place.requests} == {"2023-01-01-preview"}


def test_both_rental_types_and_all_watches_share_what_was_fetched() -> None:
    with AzurePrices() as place, BENCH.pointed_at(place.url) as adapter:
        on_demand = adapter.market.search(H100)
        spot = adapter.market.search(Query(gpus=("H100 NVL",), spot=True))
        assert place.count("GET") == 1
        assert {offer.spot for offer in on_demand.offers} == {False}
        assert {offer.spot for offer in spot.offers} == {True}
        adapter.market.search(Query(gpus=("T4",)))
        assert place.count("GET") == 2


def test_a_gpu_that_azure_does_not_have_costs_no_request() -> None:
    with AzurePrices() as place, BENCH.pointed_at(place.url) as adapter:
        answer = adapter.market.search(Query(gpus=("RTX 4090",)))
        assert (list(answer.offers), answer.completeness) == ([], Completeness.COMPLETE)
        assert place.requests == []


def test_no_key_is_ever_sent() -> None:
    with AzurePrices() as place, BENCH.pointed_at(place.url) as adapter:
        adapter.market.search(H100)
        assert [request.headers.get("authorization") for request in place.requests] == [None]


def test_regions_of_the_settings_narrow_the_question() -> None:
    bench = Bench(name="azure", place=AzurePrices, gpu="T4", options={"regions": ("UK South", "x' or 'a' eq 'a")})
    with AzurePrices() as place, bench.pointed_at(place.url) as adapter:
        answer = adapter.market.search(Query())
        assert {offer.region for offer in answer.offers} == {"uksouth"}
        assert "x'" not in place.requests[0].params["$filter"]


@pytest.mark.parametrize(
    "link", ["https://elsewhere.example/next", "file:///etc/passwd", "http://[", "/next", "circle", 7]
)
def test_a_link_to_a_foreign_instance_or_in_a_circle_is_not_followed_and_makes_a_part(link: object) -> None:
    def answer(request: ReceivedRequest, wire: ReplyWriter) -> None:
        there = f"http://{request.headers['host']}/next" if link == "circle" else link
        wire.answer(200, {"Items": [ROW], "NextPageLink": there})

    with serving(answer) as server, BENCH.pointed_at(server.url) as adapter:
        answer_ = adapter.market.search(Query(gpus=("H100 NVL",)))
        assert answer_.completeness is Completeness.PARTIAL
        assert [offer.quoted_usd_hour for offer in answer_.offers] == [6.98]
        assert len(server.requests) == (2 if link == "circle" else 1)


def test_a_family_that_is_not_understood_makes_a_part_of_the_answer() -> None:
    with AzurePrices() as place, BENCH.pointed_at(place.url) as adapter:
        place.fail("GET", 200, {"Items": "none"})
        answer = adapter.market.search(Query())
        assert answer.completeness is Completeness.PARTIAL
        assert answer.skipped["GB200: no answer"] == 1
        assert {offer.gpu_family for offer in answer.offers} >= {"H100", "T4"}


def test_a_server_that_is_away_is_not_asked_for_the_other_families() -> None:
    with AzurePrices() as place, BENCH.pointed_at(place.url) as adapter:
        place.fail("GET", 503, times=10)
        with pytest.raises(ProviderDown):
            adapter.market.search(Query())
        assert place.count("GET") == 3  # one query, three times


def test_an_empty_page_is_no_data_and_never_no_offers() -> None:
    with AzurePrices([]) as place, BENCH.pointed_at(place.url) as adapter, pytest.raises(PayloadChanged):
        adapter.market.search(H100)


def test_far_fewer_rows_than_usual_are_a_part() -> None:
    with AzurePrices() as place, BENCH.pointed_at(place.url) as adapter:
        market: Any = adapter.market
        assert market._fetch_family("H100").is_complete
        place.rows = [ROW]
        assert not market._fetch_family("H100").is_complete


def test_azure_never_rents() -> None:
    info = providers.info("azure")
    assert not info.launches
    with AzurePrices() as place, BENCH.pointed_at(place.url) as adapter:
        assert adapter.launcher is None
