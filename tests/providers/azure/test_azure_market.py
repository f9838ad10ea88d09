"""Azure's price list: every request, and what the pages of its answer mean."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
import respx

from gpuwatch.errors import PayloadChanged, ProviderDown
from gpuwatch.ports import Completeness, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.providers.azure import INFO
from gpuwatch.providers.azure.market import filter_of
from tests.checkout import TESTS
from tests.clouds.azure import price_row
from tests.providers.azure.bench import BENCH

pytestmark = pytest.mark.respx(base_url=INFO.base_url)
PATH = "/api/retail/prices"
RECORDED = json.loads((TESTS / "recorded" / "azure" / "h100_page_reconstructed.json").read_text())
NVL = Query(gpus=("H100 NVL",))
ROW = price_row("Standard_NC40ads_H100_v5", "eastus", 6.98)


@pytest.fixture
def adapter() -> Iterator[Adapter]:
    with BENCH.pointed_at(INFO.base_url, "a-key") as adapter:
        yield adapter


def page(*rows: Any, link: object = None) -> dict[str, Any]:
    return RECORDED | {"Items": list(rows), "NextPageLink": link, "Count": len(rows)}


def params(route: respx.Route) -> list[dict[str, str]]:
    return [dict(call.request.url.params) for call in route.calls]


def test_all_pages_of_a_family_are_read_by_their_links_and_without_a_key(
    respx_mock: respx.MockRouter, adapter: Adapter
) -> None:
    """The documented link has the port, which the own address has not."""
    listed = respx_mock.get(PATH)
    listed.side_effect = [httpx.Response(200, json=RECORDED), httpx.Response(200, json=page(ROW))]
    answer = adapter.market.search(Query(gpus=("H100 SXM", "H100 NVL")))
    asked = {"api-version": "2023-01-01-preview", "$filter": filter_of("H100")}
    linked = {"api-version": "2023-01-01-preview", "$filter": "serviceName eq 'Virtual Machines'", "$skip": "1000"}
    assert params(listed) == [asked, linked]
    assert all("authorization" not in call.request.headers for call in listed.calls)
    prices = {offer.offer_id: offer.quoted_usd_hour for offer in answer.offers}
    assert prices["Standard_ND96isr_H100_v5/eastus/od"] == 98.32
    assert prices["Standard_NC40ads_H100_v5/eastus/od"] == 6.98
    assert answer.completeness is Completeness.COMPLETE


def test_both_rental_types_and_all_watches_share_what_was_fetched(
    respx_mock: respx.MockRouter, adapter: Adapter
) -> None:
    spot = ROW | {"meterName": "NC40ads H100 v5 Spot", "retailPrice": 2.79}
    listed = respx_mock.get(PATH).respond(json=page(ROW, spot))
    assert [offer.quoted_usd_hour for offer in adapter.market.search(NVL).offers] == [6.98]
    found = adapter.market.search(Query(gpus=("H100 NVL",), spot=True))
    assert [(offer.spot, offer.quoted_usd_hour) for offer in found.offers] == [(True, 2.79)]
    assert listed.call_count == 1
    listed.respond(json=page(price_row("Standard_NC4as_T4_v3", "eastus", 0.526)))
    assert len(adapter.market.search(Query(gpus=("T4",))).offers) == 1
    assert params(listed)[-1]["$filter"] == filter_of("T4")


def test_a_gpu_that_azure_does_not_have_costs_no_request(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    answer = adapter.market.search(Query(gpus=("RTX 4090",)))
    assert (list(answer.offers), answer.completeness) == ([], Completeness.COMPLETE)
    assert list(respx_mock.calls) == []


def test_regions_of_the_settings_narrow_the_question(respx_mock: respx.MockRouter) -> None:
    listed = respx_mock.get(PATH).respond(json=page(price_row("Standard_NC4as_T4_v3", "uksouth", 0.526)))
    options = {"regions": ("UK South", "x' or 'a' eq 'a")}
    with msgspec.structs.replace(BENCH, options=options).pointed_at(INFO.base_url) as adapter:
        adapter.market.search(Query(gpus=("T4",)))
    assert params(listed)[0]["$filter"] == filter_of("T4", ("uksouth",))


@pytest.mark.parametrize(
    "link", ["https://elsewhere.example/next", "file:///etc/passwd", "http://[", "/next", f"{INFO.base_url}{PATH}", 7]
)
def test_a_link_to_a_foreign_host_or_in_a_circle_is_not_followed_and_makes_a_part(
    respx_mock: respx.MockRouter, adapter: Adapter, link: object
) -> None:
    listed = respx_mock.get(PATH).respond(json=page(ROW, link=link))
    answer = adapter.market.search(NVL)
    assert answer.completeness is Completeness.PARTIAL
    assert [offer.quoted_usd_hour for offer in answer.offers] == [6.98]
    assert listed.call_count == (2 if str(link).startswith(INFO.base_url) else 1)


def test_a_family_that_is_not_understood_makes_a_part_of_the_answer(
    respx_mock: respx.MockRouter, adapter: Adapter
) -> None:
    first, others = httpx.Response(200, json={"Items": "none"}), httpx.Response(200, json=page(ROW))
    respx_mock.get(PATH).side_effect = [first, *[others] * 7]
    answer = adapter.market.search(Query())
    assert (answer.completeness, answer.skipped["GB200: not understood"]) == (Completeness.PARTIAL, 1)
    assert {offer.gpu for offer in answer.offers} == {"H100 NVL"}


def test_a_server_that_is_away_is_not_asked_for_the_other_families(
    respx_mock: respx.MockRouter, adapter: Adapter
) -> None:
    listed = respx_mock.get(PATH).respond(503)
    with pytest.raises(ProviderDown):
        adapter.market.search(Query())
    assert listed.call_count == 3  # one query, three times


def test_a_later_page_without_an_answer_is_no_short_list(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    first = page(ROW, link=f"{INFO.base_url}{PATH}?$skip=1000")
    respx_mock.get(PATH).side_effect = [httpx.Response(200, json=first), *[httpx.Response(503)] * 3]
    with pytest.raises(ProviderDown):
        adapter.market.search(NVL)


def test_an_empty_page_is_no_data_and_never_no_offers(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    respx_mock.get(PATH).respond(json=page())
    with pytest.raises(PayloadChanged, match="no prices at all for H100"):
        adapter.market.search(NVL)


def test_far_fewer_rows_than_usual_are_a_part(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    listed = respx_mock.get(PATH).respond(json=page(ROW, *[ROW | {"armRegionName": f"region{n}"} for n in range(9)]))
    market: Any = adapter.market
    assert adapter.market.search(NVL).completeness is Completeness.COMPLETE
    listed.respond(json=page(ROW))
    market._tools.sleep(INFO.poll_every_s)
    assert adapter.market.search(NVL).completeness is Completeness.PARTIAL


def test_azure_never_rents(adapter: Adapter) -> None:
    assert (INFO.launches, adapter.launcher) == (False, None)
