"""One list over many clouds: the parts of a price, the seller, and whether the list is complete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import httpx
import pytest
import respx

from gpuwatch.domain.market.money import Commission, price_of
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.errors import KeyRejected, PayloadChanged
from gpuwatch.ports import Completeness, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.providers.primeintellect import INFO, page_of, parse_rows
from gpuwatch.providers.toolkit.currency import ExchangeRate
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.testing.bench import Bench
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.clouds.primeintellect import PrimeIntellectServer, part, row
from tests.sent_requests import sent

pytestmark = pytest.mark.respx(base_url=INFO.base_url)
PATH = "/api/v1/availability/gpus"
RECORDED = TESTS / "recorded" / "primeintellect"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
DAY = date(2026, 11, 20)
BENCH = Bench(name="primeintellect", place=PrimeIntellectServer, gpu="H100 PCIe")
RATES = {"USD": ExchangeRate("USD", 1.0), "EUR": ExchangeRate("EUR", 1.25, DAY)}


@pytest.fixture
def adapter() -> Iterator[Adapter]:
    with BENCH.pointed_at(INFO.base_url) as adapter:
        yield adapter


def pages(respx_mock: respx.MockRouter, rows: list[Any], size: int = 100, total: int | None = None) -> respx.Route:
    """Route the list, in pages of `size` rows, whatever is requested."""
    count = len(rows) if total is None else total

    def page(request: httpx.Request) -> httpx.Response:
        start = (int(request.url.params["page"]) - 1) * size
        return httpx.Response(200, json={"items": rows[start : start + size], "totalCount": count})

    return respx_mock.get(PATH).mock(side_effect=page)


def types(count: int) -> list[dict[str, Any]]:
    return [row("runpod", f"type-{n}", "H100_80GB", "PCIe", 2.0) for n in range(count)]


def parsed(*rows: Any) -> ParseResult:
    return parse_rows(list(rows), RATES.get, NOW)


def one(**fields: Any) -> Offer:
    reported = {"gpu": "H100_80GB", "socket": "PCIe", "usd_hour": 2.0} | fields
    [offer] = parsed(row("runpod", "NVIDIA H100 PCIe", reported.pop("gpu"), reported.pop("socket"), **reported)).offers
    return offer


def prices(**reported: Any) -> dict[str, Any]:
    return {"prices": {"onDemand": 2.0, "communityPrice": None, "isVariable": None, "currency": "USD"} | reported}


# --- the price --------------------------------------------------------------------------------------------------------


def test_the_price_is_that_of_the_whole_configuration() -> None:
    offer = one(usd_hour=24.0, gpuCount=8)
    assert (offer.gpu_count, offer.quoted_usd_hour) == (8, 24.0)


def test_parts_that_are_not_included_are_added() -> None:
    offers = {offer.region: offer for offer in parsed(*json.loads(
        (RECORDED / "availability-gpus-reconstructed.json").read_bytes())["items"]).offers}  # fmt: skip
    assert offers["US-KS-2"].quoted_usd_hour == pytest.approx(2.69 + 80 * 0.00014)
    assert offers["CANADA-1"].quoted_usd_hour == pytest.approx(1.9)


def test_more_disk_costs_its_rate_by_the_month() -> None:
    offer = one(disk=part(defaultCount=80, maxCount=1000, pricePerUnit=0.0001, defaultIncludedInPrice=False))
    assert (offer.quoted_disk_gb, offer.disk_usd_gb_month, offer.disk_free_gb) == (80, pytest.approx(0.072), 1000)
    assert price_of(offer, 180.0, Commission()).listed_microusd_hour == round((2.0 + 180 * 0.0001) * 1_000_000)


@pytest.mark.parametrize("name", ["disk", "vcpu", "memory"])
@pytest.mark.parametrize("unit", [None, "dear", -1, float("nan")])
def test_a_part_whose_price_is_not_reported_makes_no_price(name: str, unit: Any) -> None:
    more = {name: part(defaultCount=80, pricePerUnit=unit, defaultIncludedInPrice=False)}
    seen = parsed(row("runpod", "x", "H100_80GB", "PCIe", 2.0, **more))
    assert (seen.offers, seen.skipped) == ([], {f"{name} costs more, and nobody says how much": 1})


def test_a_community_offer_has_its_own_price() -> None:
    assert one(security="community_cloud", **prices(onDemand=3.0, communityPrice=1.5)).quoted_usd_hour == 1.5
    assert one(**prices(onDemand=3.0, communityPrice=1.5)).quoted_usd_hour == 3.0
    assert one(security="community_cloud", **prices()).quoted_usd_hour == 2.0


def test_euros_become_dollars_by_a_dated_rate_that_is_reported() -> None:
    disk = part(defaultCount=100, pricePerUnit=0.001, defaultIncludedInPrice=False)
    offer = one(disk=disk, **prices(currency="EUR"))
    assert offer.quoted_usd_hour == pytest.approx(2.1 * 1.25)
    assert offer.disk_usd_gb_month == pytest.approx(0.72 * 1.25)
    assert (offer.terms.currency, offer.terms.usd_rate, offer.terms.usd_rate_on) == ("EUR", 1.25, DAY)


@pytest.mark.parametrize("currency", ["CHF", "eur", "", 5, "EUROS"])
def test_a_currency_without_a_rate_makes_no_price(currency: Any) -> None:
    if not currency:
        assert one(**prices(currency=currency)).terms.currency == "USD"
        return
    seen = parsed(row("runpod", "x", "H100_80GB", "PCIe", 2.0, **prices(currency=currency)))
    assert (seen.offers, seen.skipped) == ([], {"a price in a currency without a rate": 1})


def test_a_price_that_is_none_is_skipped() -> None:
    cases: list[Any] = [None, 0, -1, "free", float("nan"), 1e9, True]
    for price in cases:
        with case(price):
            seen = parsed(row("runpod", "x", "H100_80GB", "PCIe", 2.0, **prices(onDemand=price)))
            assert (seen.offers, list(seen.skipped.values())) == ([], [1])


# --- seller, hardware, and availability -------------------------------------------------------------------------------


def test_the_seller_is_named_as_gpuwatch_names_it() -> None:
    cases: list[Any] = [("lambdalabs", "lambda"), ("runpod", "runpod"), ("nebius", "nebius")]
    for seller, known in cases:
        with case((seller, known)):
            [offer] = parsed(row(seller, "gpu_1x_h100", "H100_80GB", "PCIe", 2.0)).offers
            assert (offer.terms.seller, offer.terms.instance_type) == (known, "gpu_1x_h100")


def test_stock_tells_the_kind_of_a_price() -> None:
    cases: list[Any] = [("Available", "live"), ("Low", "live"), ("High", "live"), (None, "live"), ("Perhaps", "listed")]
    for stock, kind in cases:
        with case((stock, kind)):
            offer = one(stockStatus=stock)
            assert offer.kind is OfferKind(kind)
            assert (offer.terms.note is None) == (stock in ("Available", "High", None))


def test_what_is_sold_out_or_has_no_gpu_is_left_out_without_a_fault() -> None:
    seen = parsed(
        row("runpod", "x", "H100_80GB", "PCIe", 2.0, stockStatus="Unavailable"),
        row("runpod", "y", "CPU_NODE", "PCIe", 0.1),
    )
    assert (seen.offers, seen.skipped, seen.rows) == ([], {}, 2)


def test_names_are_understood_with_their_socket() -> None:
    cases: list[Any] = [
        ("H100_80GB", "PCIe", 80, "H100 PCIe", 80), ("H100_80GB", "SXM5", 80, "H100 SXM", 80),
        ("A100_80GB", "SXM4", 80, "A100 SXM 80GB", 80), ("A6000_48GB", "PCIe", 48, "RTX A6000", 48),
        ("RTX6000Ada_48GB", "PCIe", 48, "RTX 6000 Ada", 48), ("RTX6000_24GB", "PCIe", 24, "Quadro RTX 6000", 24),
        ("RTX4000_8GB", "PCIe", 8, "Quadro RTX 4000", 8), ("GH200_480GB", "SXM5", 480, "GH200 96GB", 96),
        ("B300_262GB", "SXM6", 262, "B300 SXM", 262), ("H200_141GB", "PCIe", 141, "H200 NVL", 141),
    ]  # fmt: skip
    for wire, socket, reported, name, memory in cases:
        with case((wire, socket, reported, name, memory)):
            offer = one(gpu=wire, socket=socket, gpuMemory=reported)
            assert (offer.gpu, offer.gpu_known, offer.gpu_memory_gib) == (name, True, memory)


def test_a_gpu_that_leaves_its_socket_open_is_not_guessed() -> None:
    offer = one(socket=None)
    assert offer.gpu == "H100"
    assert "H100 SXM or H100 PCIe" in str(offer.terms.note)


def test_a_part_of_a_card_is_reported_by_its_sellers_plan() -> None:
    [offer] = parsed(row("vultr", "vcg-a16-2c-8g-2vram", "A16_16GB", "PCIe", 0.06, gpuMemory=2)).offers
    assert offer.terms.gpu_fraction == pytest.approx(2 / 16)
    assert one().terms.gpu_fraction == 1.0


def test_hours_that_are_charged_at_once_are_reported() -> None:
    terms = one(prepaidTime=720).terms
    assert (terms.prepaid, terms.min_billing_s, terms.note) == (True, 720 * 3600, "720 hours are charged at once")
    assert one().terms.prepaid is None


def test_an_offer_is_reported_from_others_of_the_same_cloud_id() -> None:
    rows = [
        row("runpod", "x", "H100_80GB", "PCIe", 2.0, **more)
        for more in ({}, {"dataCenter": "A"}, {"gpuCount": 2}, {"isSpot": True}, {"security": "community_cloud"})
    ]
    offers = parsed(*rows, row("vultr", "x", "H100_80GB", "PCIe", 2.0)).offers
    assert len({offer.offer_id for offer in offers}) == len({offer.identity for offer in offers}) == 6


def test_long_names_fit_the_store_and_stay_different() -> None:
    offers = parsed(*[row("runpod", f"{'x' * 100}{n}", "H100_80GB", "PCIe", 2.0) for n in range(3)]).offers
    assert len({offer.offer_id for offer in offers}) == len({offer.machine_id for offer in offers}) == 3
    assert {len(offer.offer_id) for offer in offers} == {64}


def test_one_offer_that_comes_twice_is_shown_once_at_its_lower_price(
    respx_mock: respx.MockRouter, adapter: Adapter
) -> None:
    a6000 = [row("massedcompute", "a6000", "A6000_48GB", "PCIe", usd, gpuMemory=48) for usd in (0.4, 0.45)]
    pages(respx_mock, a6000)
    assert [offer.quoted_usd_hour for offer in adapter.market.search(Query()).offers] == [0.4]


def test_spot_is_reported_from_on_demand_and_the_banks_rate_is_read_without_the_key(
    respx_mock: respx.MockRouter, adapter: Adapter
) -> None:
    euros = prices(onDemand=1.6, isVariable=True, currency="EUR")
    plain = row("datacrunch", "1A100.22V", "A100_80GB", "SXM4", 1.6, **euros)
    pages(respx_mock, [plain, row("datacrunch", "1A100.22V", "A100_80GB", "SXM4", 0.8, isSpot=True)])
    rates = '<Cube time="2026-11-20"><Cube currency="USD" rate="1.1500"/></Cube>'
    bank = respx_mock.get("https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml").respond(text=rates)
    [offer] = adapter.market.search(Query()).offers
    assert (offer.quoted_usd_hour, offer.terms.note) == (pytest.approx(1.6 * 1.15), "the price may change")
    [spot] = adapter.market.search(Query(spot=True)).offers
    assert (spot.quoted_usd_hour, spot.terms.currency) == (0.8, "USD")
    assert "authorization" not in bank.calls.last.request.headers


def test_junk_between_the_rows_is_counted_by_its_reason() -> None:
    seen = parsed(17, row("runpod", "x", "H100_80GB", "PCIe", 2.0, gpuCount=0), {"gpuType": "H100_80GB", "gpuCount": 1})
    assert seen.offers == []
    assert seen.skipped == {
        "a row that is no object": 1,
        "a number of GPUs that is none": 1,
        "a row without its GPU, its seller or its id": 1,
    }


# --- pages ------------------------------------------------------------------------------------------------------------


def test_all_pages_are_read_once_for_all_watches(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    listed = pages(respx_mock, types(250))
    for query in (Query(), Query(gpus=("H100 PCIe",))):
        found = adapter.market.search(query)
        assert (len(found.offers), found.rows, found.completeness) == (250, 250, Completeness.COMPLETE)
    assert sent(listed.calls) == [("GET", f"{PATH}?page={page}&page_size=100", None) for page in (1, 2, 3)]
    assert {call.request.headers["authorization"] for call in listed.calls} == {"Bearer demo-key"}


def test_a_later_page_that_fails_makes_the_answer_a_part(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    first = httpx.Response(200, json={"items": types(100), "totalCount": 250})
    respx_mock.get(PATH).side_effect = [first, httpx.Response(404)]
    found = adapter.market.search(Query())
    assert (len(found.offers), found.completeness) == (100, Completeness.PARTIAL)


@pytest.mark.parametrize(
    ("size", "total", "completeness"),
    [
        (40, 120, Completeness.COMPLETE),  # short pages
        (120, 150, Completeness.PARTIAL),  # it ends early
    ],
)
def test_pages_are_followed_to_the_end(
    respx_mock: respx.MockRouter, adapter: Adapter, size: int, total: int, completeness: Completeness
) -> None:
    pages(respx_mock, types(120), size, total)
    found = adapter.market.search(Query())
    assert (len(found.offers), found.completeness) == (120, completeness)


def test_the_same_page_again_is_not_followed_for_ever(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    listed = respx_mock.get(PATH).respond(json={"items": types(40), "totalCount": 120})
    found = adapter.market.search(Query())
    assert (len(found.offers), found.completeness, listed.call_count) == (40, Completeness.PARTIAL, 2)


def test_the_older_answer_and_one_without_empty_fields_are_understood(
    respx_mock: respx.MockRouter, adapter: Adapter
) -> None:
    """As recorded: a list for each GPU, and rows that leave out what is empty."""
    older = json.loads((RECORDED / "availability-legacy-reconstructed.json").read_bytes())
    newer = json.loads((RECORDED / "availability-gpus-reconstructed.json").read_bytes())
    respx_mock.get(PATH).respond(json=older)
    found = {offer.offer_id for offer in adapter.market.search(Query()).offers}
    assert found == {offer.offer_id for offer in parsed(*page_of(newer)[0]).offers}
    sparse = {key: value for key, value in newer["items"][0].items() if value is not None}
    assert parsed(sparse).offers == parsed(newer["items"][0]).offers


def test_no_list_is_no_market_without_offers() -> None:
    cases: list[Any] = [{}, {"items": None}, {"items": {}}, [], None, {"detail": "no"}]
    for value in cases:
        with case(value), pytest.raises(PayloadChanged):
            page_of(value)


def test_nothing_is_asked_without_a_key(respx_mock: respx.MockRouter) -> None:
    with BENCH.pointed_at(INFO.base_url, None) as adapter, pytest.raises(KeyRejected):
        adapter.market.search(Query())
    assert list(respx_mock.calls) == []
