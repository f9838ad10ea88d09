"""Google Cloud's prices: parts form machines, none is priced without its GPUs, and each source is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

import httpx
import pytest
import respx

from gpuwatch.domain.market.gpu_cards import gpu_fraction
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderDown, RateLimited
from gpuwatch.ports import Completeness, Query
from gpuwatch.providers.gcp import INFO
from gpuwatch.providers.gcp.market import WEEKLY_URL, parse_weekly, read_weekly
from gpuwatch.providers.gcp.parts import MACHINES, PartPrices, PricedPart, machine_price, part_of, read_skus
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.testing.bench import Bench
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.clouds.gcp import GooglePrices, price_list, sku

pytestmark = pytest.mark.respx(base_url=INFO.base_url)
SKUS = "/v1/services/6F81-5844-456A/skus"
RECORDED = TESTS / "recorded" / "gcp" / "pricing-2025-03-06-excerpt.yml"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@contextmanager
def asked(key: str | None = "demo-key", **options: Any) -> Iterator[Any]:
    """Return the adapter's search side."""
    bench = Bench(name="gcp", place=GooglePrices, gpu="L4", options=options)
    with bench.pointed_at(INFO.base_url, key) as adapter:
        yield adapter.market


def page(skus: list[dict[str, Any]], token: object = "") -> httpx.Response:
    return httpx.Response(200, json={"skus": skus, "nextPageToken": token})


Search = Callable[..., dict[str, Offer]]


@pytest.fixture
def found(respx_mock: respx.MockRouter) -> Search:
    """Return the offers of a price list, by machine type and region."""

    def search(skus: list[dict[str, Any]] | None = None, spot: bool = False) -> dict[str, Offer]:
        respx_mock.get(SKUS).mock(return_value=page(price_list() if skus is None else skus))
        with asked() as asking:
            return {offer.machine_id: offer for offer in asking.search(Query(spot=spot)).offers}

    return search


def weekly(more: str = "", computed_at: int = 1_795_200_000) -> str:
    """The recorded file as if it were of 2026-11-20, with `more` machines."""
    text = RECORDED.read_text().replace("timestamp: 1741233236", f"timestamp: {computed_at}")
    return text.replace("  instance:\n", f"  instance:\n{more}")


def test_the_parts_of_a_machine_make_the_price_that_google_lists(found: Search) -> None:
    """Google has listed it in Iowa at 3.673385 USD since 2022."""
    offer = found()["a2-highgpu-1g/us-central1"]
    assert offer.quoted_usd_hour == pytest.approx(3.673385, abs=1e-9)
    assert (offer.gpu, offer.gpu_count, offer.gpu_memory_gib) == ("A100 SXM 40GB", 1, 40)
    assert (offer.vcpu, offer.ram_gib, offer.region) == (12, 85, "us-central1")
    assert (offer.kind, offer.spot, offer.terms.instance_type) == (OfferKind.LISTED, False, "a2-highgpu-1g")
    assert offer.terms.tax_included is False
    assert found()["g2-standard-4/us-central1"].quoted_usd_hour == pytest.approx(0.706832, abs=1e-9)


def test_a_built_in_ssd_is_part_of_the_price(found: Search) -> None:
    offer = found()["a2-ultragpu-1g/us-central1"]
    assert offer.quoted_usd_hour == pytest.approx(12 * 0.031611 + 170 * 0.004237 + 3.9 + 375 * 0.08 / 730)


def test_spot_has_its_own_parts(found: Search) -> None:
    offer = found(spot=True)["a2-highgpu-8g/us-central1"]
    assert offer.quoted_usd_hour == pytest.approx(96 * 0.009483 + 680 * 0.001271 + 8 * 0.88)
    assert offer.spot


def test_a_slice_of_everything_is_one_part_and_sold_as_spot_alone(found: Search) -> None:
    assert found(spot=True)["a4-highgpu-8g/us-central1"].quoted_usd_hour == pytest.approx(8 * 8.1)
    assert not any(name.startswith("a4-") for name in found())


def test_what_is_priced_on_demand_and_not_sold_so_is_left_out(found: Search) -> None:
    assert "a3-highgpu-1g/us-central1" not in found()
    assert "a3-highgpu-1g/us-central1" in found(spot=True)
    assert "a3-highgpu-8g/us-central1" in found()


def test_parts_of_a_gpu_are_reported_and_keep_their_share_of_the_memory(found: Search) -> None:
    offers = found()
    half = offers["g4-standard-24/us-central1"]
    assert (half.terms.gpu_fraction, half.gpu_memory_gib, half.gpu_count) == (0.5, 48, 1)
    whole = offers["g4-standard-96/us-central1"]
    assert (whole.terms.gpu_fraction, whole.gpu_memory_gib, whole.gpu_count) == (1.0, 96, 2)


@pytest.mark.parametrize("missing", ["Nvidia L4 GPU", "G2 Instance Core", "G2 Instance Ram"])
def test_a_machine_of_which_a_part_has_no_price_has_none(found: Search, missing: str) -> None:
    skus = [one for one in price_list() if missing not in one["description"]]
    offers = found(skus)
    assert not any(name.startswith("g2-") for name in offers)
    assert "a2-highgpu-1g/us-central1" in offers


def test_a_part_that_is_missing_in_one_region_costs_that_region_alone(found: Search) -> None:
    skus = [one for one in price_list() if one["description"] != "Nvidia L4 GPU running in europe-west4"]
    offers = found(skus)
    assert "g2-standard-4/europe-west4" not in offers
    assert "g2-standard-4/us-central1" in offers


def test_every_page_is_read_once_for_all_questions_of_a_poll(respx_mock: respx.MockRouter) -> None:
    """The key goes into a header and never into an address."""
    skus = price_list()
    pages = [page(skus[:30], "a b"), page(skus[30:60], "c"), page(skus[60:])]
    listed = respx_mock.get(SKUS)
    listed.side_effect = pages
    with asked() as asking:
        first = asking.search(Query())
        asking.search(Query(spot=True, gpus=("L4",)))
    asked_for = [dict(call.request.url.params) for call in listed.calls]
    plain = {"pageSize": "5000", "currencyCode": "USD"}
    assert asked_for == [plain, plain | {"pageToken": "a b"}, plain | {"pageToken": "c"}]
    assert {call.request.headers["x-goog-api-key"] for call in listed.calls} == {"demo-key"}
    assert (first.searches, first.completeness, bool(first.offers)) == (3, Completeness.COMPLETE, True)


def test_a_page_that_fails_makes_the_answer_a_part_that_is_not_kept(respx_mock: respx.MockRouter) -> None:
    skus = sorted(price_list(), key=lambda one: "G2" in one["description"] or "L4" in one["description"])
    listed, down = respx_mock.get(SKUS), httpx.Response(503)
    listed.side_effect = [page(skus[:-12], "rest"), down, down, down, page(skus)]
    with asked() as asking:
        part = asking.search(Query())
        assert (part.completeness, bool(part.offers)) == (Completeness.PARTIAL, True)
        assert not any(offer.gpu == "L4" for offer in part.offers)
        assert asking.search(Query(gpus=("L4",))).completeness is Completeness.PARTIAL, "not asked again at once"
        asking._tools.sleep(61.0)
        whole = asking.search(Query())
        assert whole.completeness is Completeness.COMPLETE
        assert any(offer.gpu == "L4" for offer in whole.offers)


def test_pages_that_repeat_are_a_part_and_not_read_forever(respx_mock: respx.MockRouter) -> None:
    listed = respx_mock.get(SKUS).mock(return_value=page(price_list(), "again"))
    with asked() as asking:
        answer = asking.search(Query(gpus=("L4",)))
    assert (answer.completeness, bool(answer.offers)) == (Completeness.PARTIAL, True)
    assert listed.call_count == 2


def test_a_token_that_is_no_text_is_a_changed_format(respx_mock: respx.MockRouter) -> None:
    respx_mock.get(SKUS).mock(return_value=page(price_list(), 7))
    with asked() as asking, pytest.raises(PayloadChanged, match="token"):
        asking.search(Query())


def test_a_key_that_google_refuses_is_reported_as_such(respx_mock: respx.MockRouter) -> None:
    message = "API key not valid. Please pass a valid API key."
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    respx_mock.get(SKUS).respond(400, json={"error": error})
    with asked() as asking, pytest.raises(KeyRejected, match="API key not valid"):
        asking.search(Query())


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(404), PayloadChanged),
        (httpx.Response(429), RateLimited),
        (httpx.Response(503), ProviderDown),
        (httpx.Response(200, html="<p>maintenance</p>"), PayloadChanged),
        (httpx.ReadTimeout("silent"), ProviderDown),
    ],
)
def test_without_the_weekly_file_there_is_no_market_without_offers(
    respx_mock: respx.MockRouter, answer: httpx.Response | Exception, error: type[Exception]
) -> None:
    respx_mock.get(WEEKLY_URL).mock(side_effect=repeat(answer))
    with asked(None) as asking, pytest.raises(error):
        asking.search(Query())


def test_without_a_key_the_weekly_file_is_read_and_no_price_list(respx_mock: respx.MockRouter) -> None:
    file = respx_mock.get(WEEKLY_URL).respond(text=weekly())
    with asked(None) as asking:
        answer = asking.search(Query())
    headers = file.calls.last.request.headers
    assert (headers["accept"], "authorization" in headers, "x-goog-api-key" in headers) == ("*/*", False, False)
    offers = {offer.machine_id: offer for offer in answer.offers}
    assert offers["a2-highgpu-1g/us-central1"].quoted_usd_hour == 3.673385
    assert offers["a2-highgpu-1g/us-central1"].kind is OfferKind.LISTED
    assert "2026-11-20" in (offers["a2-highgpu-1g/us-central1"].terms.note or "")
    assert "a3-highgpu-4g/us-central1" not in offers  # not sold on demand


def test_another_file_can_be_named(respx_mock: respx.MockRouter) -> None:
    respx_mock.get("https://mirror.example/pricing.yml").respond(text=weekly())
    with asked(None, pricing_url="https://mirror.example/pricing.yml") as asking:
        assert asking.search(Query()).offers


def test_a_file_of_last_month_is_history(respx_mock: respx.MockRouter) -> None:
    respx_mock.get(WEEKLY_URL).respond(text=weekly(computed_at=1_795_200_000 - 40 * 86_400))
    with asked(None) as asking:
        answer = asking.search(Query())
    assert {offer.kind for offer in answer.offers} == {OfferKind.HISTORY}
    assert answer.completeness is Completeness.PARTIAL, "no watch matches these prices: that is not 'no offers'"
    assert "older than 30 days" in answer.incomplete_because


def test_a_price_list_without_one_usable_price_says_why(found: Search) -> None:
    skus = price_list()
    for one in skus:
        for rate in one["pricingInfo"][0]["pricingExpression"]["tieredRates"]:
            rate["unitPrice"]["currencyCode"] = "EUR"
    with pytest.raises(PayloadChanged, match="× a SKU without a price"):
        found(skus)


def test_a_machine_that_was_computed_without_its_gpus_is_no_bargain(respx_mock: respx.MockRouter) -> None:
    """A public feed listed an 8 × H100 at 10 USD for a week of 2024."""
    more = "    a3-megagpu-8g:\n      cost:\n        us-central1:\n          hour: 10.2\n          hour_spot: 4.1\n"
    respx_mock.get(WEEKLY_URL).respond(text=weekly(more))
    with asked(None) as asking:
        answer = asking.search(Query(gpus=("H100 SXM",)))
    assert {offer.terms.instance_type for offer in answer.offers} == {"a3-highgpu-8g"}
    assert answer.skipped["a machine that is priced as if without its GPUs"] == 2


def test_the_recorded_file_is_read_as_it_was_published() -> None:
    weekly = read_weekly(RECORDED.read_bytes())
    assert weekly.computed_at == datetime(2025, 3, 6, 3, 53, 56, tzinfo=UTC)
    assert weekly.prices["a3-highgpu-8g", "us-central1", True] == "35.3957496986301"
    assert len(weekly.prices) == 16
    offers = parse_weekly(weekly, ParseResult(), datetime(2025, 3, 7, tzinfo=UTC))
    assert len(offers) == 15  # the a3-highgpu-4g is not sold on demand


def test_a_file_of_another_form_is_reported_and_not_guessed_at() -> None:
    cases: list[Any] = [
        "", "---", "compute:\n  instance:\n", "<html>", "\0\xff", "compute: &a [*a, *a]", "a" * 100_000,
        "compute:\n  instance:\n    a2-highgpu-1g: {cost: {us-central1: {hour: 3}}}", " " * 100_000 + "hour: 1",
        "compute:\n  instance:\n    a2-highgpu-1g:\n      cost:\n        us-central1:\n              hour: 3",
    ]  # fmt: skip
    for text in cases:
        with case(text), pytest.raises(PayloadChanged):
            read_weekly(text.encode("utf-8", "surrogateescape"))


def test_a_price_that_is_none_costs_its_row() -> None:
    cases: list[Any] = ["nan", "-1", "0", "1e999", "!!python/object", "2,5", "999999"]
    for price in cases:
        with case(price):
            rows = ["compute:", "  instance:", "    g2-standard-4:", "      cost:"]
            rows += ["        a:", f"          hour: {price}", "        b:", "          hour: 0.7"]
            text = "\n".join(rows)
            seen = ParseResult()
            offers = parse_weekly(read_weekly(text.encode()), seen, NOW)
            assert [offer.region for offer in offers] == ["b"]
            assert seen.skipped == {"a price that nobody would ask": 1}


def test_a_description_names_a_part_or_none() -> None:
    cases: list[Any] = [
        ("Nvidia Tesla A100 GPU running in Americas", PricedPart("gpu", "a100")),
        ("Nvidia Tesla A100 80GB GPU attached to Spot Preemptible VMs running in Iowa", PricedPart("gpu", "a100 80gb")),
        ("Nvidia H100 80GB GPU running in Tokyo", PricedPart("gpu", "h100 80gb")),
        (
            "Nvidia H100 80GB Mega GPU attached to Spot Preemptible VMs running in Tokyo",
            PricedPart("gpu", "h100 80gb mega"),
        ),
        ("Nvidia H100 80GB Plus GPU running in Tokyo", PricedPart("gpu", "h100 80gb mega")),
        ("Nvidia H200 141GB GPU attached to Spot Preemptible VMs running in Iowa", PricedPart("gpu", "h200 141gb")),
        ("RTX 6000 96GB running in Iowa", PricedPart("gpu", "rtx 6000 96gb")),
        ("RTX 6000 96GB attached to Spot Preemptible VMs running in Iowa", PricedPart("gpu", "rtx 6000 96gb")),
        ("Nvidia L4 GPU running in Belgium", PricedPart("gpu", "l4")),
        ("A3Plus Instance Core running in Iowa", PricedPart("core", "a3plus")),
        ("Spot Preemptible A3Plus Instance Ram running in Tokyo", PricedPart("ram", "a3plus")),
        ("A3Ultra Instance Core running in Iowa", PricedPart("core", "a3ultra")),
        ("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Iowa", PricedPart("slice", "b200")),
        ("SSD backed Local Storage attached to Spot Preemptible VMs in Iowa", PricedPart("ssd", "")),
        ("DWS Calendar Mode A4 Nvidia B200 (1 gpu slice) running in Iowa", None),
        ("H200 141GB GPU attached to DWS Defined Duration VMs running in Iowa", None),
        ("Commitment v1: Nvidia H100 80GB GPU in Iowa for 1 Year", None),
        ("Reserved A2 Instance Core in Iowa", None),
        ("A2 Sole Tenancy Instance Core running in Iowa", None),
        ("Nvidia L4 Vws GPU running in Iowa", None),
        ("G2 Custom Instance Core running in Iowa", None),
        ("E2 Instance Core running in Iowa", None),
        ("Nvidia Tesla T4 GPU running in Iowa", None),
        ("Network Internet Egress from Iowa", None),
        ("", None),
    ]
    for description, part in cases:
        with case((description, part)):
            assert part_of(description) == part


def _read(*skus: dict[str, Any]) -> tuple[PartPrices, ParseResult]:
    parts: PartPrices = {}
    seen = ParseResult()
    read_skus({"skus": list(skus)}, parts, seen)
    return parts, seen


def test_a_sku_of_another_unit_or_currency_or_without_a_price_is_counted_and_left_out() -> None:
    good = sku("Nvidia L4 GPU running in x", "OnDemand", ["x"], "h", 0.56)
    free = sku("Nvidia L4 GPU running in y", "OnDemand", ["y"], "h", 0.0)
    month = sku("Nvidia L4 GPU running in z", "OnDemand", ["z"], "mo", 400.0)
    euro = sku("Nvidia L4 GPU running in e", "OnDemand", ["e"], "h", 0.5)
    euro["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]["currencyCode"] = "EUR"
    parts, seen = _read(
        good, free, month, euro, sku("Nvidia L4 GPU running", "OnDemand", ["n"], "h", 1, pricingInfo=[])
    )
    assert {region for _, region, _ in parts} == {"x"}
    assert seen.skipped == {"a SKU without a price": 3, "a SKU in another unit": 1}


def test_the_last_tier_counts_and_of_two_skus_the_dearer() -> None:
    tiered = sku("Nvidia L4 GPU running in x", "OnDemand", ["x"], "h", 0.56)
    tiered["pricingInfo"][0]["pricingExpression"]["tieredRates"].insert(
        0, {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 0}}
    )
    parts, _ = _read(tiered, sku("Nvidia L4 GPU running in the x", "OnDemand", ["x"], "h", 0.4))
    assert parts == {(PricedPart("gpu", "l4"), "x", False): 0.56}


def test_no_price_is_made_of_parts_of_two_kinds() -> None:
    parts: PartPrices = {
        (PricedPart("gpu", "l4"), "x", True): 0.2,
        (PricedPart("core", "g2"), "x", False): 0.02,
        (PricedPart("ram", "g2"), "x", False): 0.002,
    }
    assert machine_price(MACHINES["g2-standard-4"], "x", True, parts) is None
    assert machine_price(MACHINES["g2-standard-4"], "x", False, parts) is None


def test_every_machine_has_a_card_of_the_catalogue_and_a_share_that_its_name_tells() -> None:
    for machine in MACHINES.values():
        assert catalog().get(machine.gpu) is not None, machine.name
        assert gpu_fraction(machine.name) == min(machine.gpus, 1.0), machine.name
        assert machine.gpus >= 1 or machine.memory_gib < 96
