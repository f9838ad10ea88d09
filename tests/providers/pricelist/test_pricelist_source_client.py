"""How sources are queried: separately, each at its own pace; one that fails never hides the others."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx

from gpuwatch.errors import PayloadChanged, ProviderDown, ProviderError
from gpuwatch.ports import Completeness, Query
from gpuwatch.providers.pricelist import INFO
from gpuwatch.providers.toolkit.api_client import rebase_url
from gpuwatch.testing.bench import Bench
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving
from tests.checkout import TESTS
from tests.clouds.pricelist import PriceListServer

RECORDED = TESTS / "recorded" / "pricelist"
ZONES = ("fr-par-1", "fr-par-2", "nl-ams-1", "pl-waw-2")
SCALEWAY = "https://api.scaleway.com/instance/v1/zones/{}/products/servers?per_page=100&page=1"
ADDRESSES: Mapping[str, tuple[str, ...]] = {
    "akash": ("https://console-api.akash.network/v1/gpu-prices",),
    "cloudrift": ("https://api.cloudrift.ai/api/v1/instance-types/list",),
    "lium": ("https://lium.io/api/public/v1/nodes",),
    "oracle": ("https://apexapps.oracle.com/pls/apex/cetools/api/v1/products/?currencyCode=USD",),
    "ovh": ("https://eu.api.ovh.com/v1/order/catalog/public/cloud?ovhSubsidiary=FR",),
    "scaleway": tuple(map(SCALEWAY.format, ZONES)),
    "verda": ("https://api.datacrunch.io/v1/instance-types",),
    "vultr": ("https://api.vultr.com/v2/plans?type=all&per_page=500",),
    "vultr-metal": ("https://api.vultr.com/v2/plans-metal?per_page=500",),
    "cudo": ("https://rest.compute.cudo.org/v1/vms/machine-types",),
    "daytona": ("https://billing.app.daytona.io/gpu-pricing",),
    "linode": ("https://api.linode.com/v4/linode/types?page_size=500&page=1",),
}
ONLY_IF_NAMED = {"cudo", "daytona", "linode"}
IN_EUROS = {"ovh", "scaleway", "verda"}
RATES = "https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml"


def asked(*sources: str, **options: Any) -> Any:
    reported: Mapping[str, Any] = {"sources": sources or None, **options}
    bench = Bench(name="pricelist", place=PriceListServer, gpu="L40S", options=reported)
    return bench.pointed_at(INFO.base_url, "a-key")


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}_reconstructed.json").read_bytes())


def listed(respx_mock: respx.MockRouter, *names: str) -> respx.Route:
    """Route these lists to their recorded answers, and the bank's rates if they are in euros. Returns the last list."""
    if IN_EUROS.intersection(names):
        respx_mock.get(RATES).respond(text='<Cube time="2026-11-20"><Cube currency="USD" rate="1.1500"/></Cube>')
    for name in names:
        for address in map(httpx.URL, ADDRESSES[name]):
            route = respx_mock.route(host=address.host, path=address.path).respond(json=recorded(name))
    return route


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_source_is_read_at_its_documented_address_and_without_a_key(respx_mock: respx.MockRouter, name: str) -> None:
    listed(respx_mock, name)
    with asked(name) as adapter:
        answer = adapter.market.search(Query())
    requests = [call.request for call in respx_mock.calls if str(call.request.url) != RATES]
    assert [str(request.url) for request in requests] == list(ADDRESSES[name])
    assert {request.method for request in requests} == {"POST" if name == "cloudrift" else "GET"}
    assert not any("a-key" in value for call in respx_mock.calls for value in call.request.headers.values())
    assert (bool(answer.offers), answer.completeness) == (True, Completeness.COMPLETE)


def test_what_is_posted_is_what_was_declared(respx_mock: respx.MockRouter) -> None:
    route = listed(respx_mock, "cloudrift")
    with asked("cloudrift") as adapter:
        adapter.market.search(Query())
    selector = {"ByServiceAndLocation": {"services": ["vm"]}}
    assert json.loads(route.calls.last.request.content) == {"version": "2025-03-21", "data": {"selector": selector}}


def test_every_source_is_asked_and_names_itself_as_the_seller(respx_mock: respx.MockRouter) -> None:
    listed(respx_mock, *sorted(ADDRESSES.keys() - ONLY_IF_NAMED))
    with asked() as adapter:
        answer = adapter.market.search(Query())
    assert answer.completeness is Completeness.COMPLETE
    assert {offer.terms.seller for offer in answer.offers} == {
        "oracle", "scaleway", "vultr", "ovh", "verda", "lium", "cloudrift", "akash",
    }  # fmt: skip


def test_spot_is_asked_only_where_there_is_spot(respx_mock: respx.MockRouter) -> None:
    listed(respx_mock, "lium", "verda")
    with asked() as adapter:
        answer = adapter.market.search(Query(spot=True))
    assert {offer.terms.seller for offer in answer.offers} == {"verda", "lium"}


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_one_source_that_fails_makes_a_part_and_is_named(respx_mock: respx.MockRouter, status: int) -> None:
    listed(respx_mock, "lium", "oracle").respond(status)
    with asked("oracle", "lium") as adapter:
        answer = adapter.market.search(Query())
    assert answer.completeness is Completeness.PARTIAL
    assert [reason for reason in answer.skipped if reason.startswith("oracle: ")] != []
    assert {offer.terms.seller for offer in answer.offers} == {"lium"}


def test_the_log_says_once_why_a_source_fails_and_when_it_is_back(
    respx_mock: respx.MockRouter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gpuwatch.providers.pricelist")
    broken = httpx.Response(200, json={"items": "none"})
    listed(respx_mock, "lium", "oracle").side_effect = [broken, broken, httpx.Response(200, json=recorded("oracle"))]
    with asked("oracle", "lium") as adapter:
        for _ in range(3):
            adapter.market.search(Query())
    failed, again = [record.getMessage() for record in caplog.records if "oracle" in record.getMessage()]
    assert ("no rows at items" in failed, "answers again" in again) == (True, True)


def test_if_all_fail_it_is_an_error_and_never_an_empty_market(respx_mock: respx.MockRouter) -> None:
    respx_mock.route().respond(503)
    with asked("oracle", "ovh") as adapter, pytest.raises(ProviderDown, match="pricelist: oracle: 503"):
        adapter.market.search(Query())


def test_a_source_is_asked_no_more_often_than_it_declares(respx_mock: respx.MockRouter) -> None:
    oracle, lium = listed(respx_mock, "oracle"), listed(respx_mock, "lium")
    with asked("oracle", "lium") as adapter:
        for seconds in (0.0, 30.0, 300.0):
            adapter.market._tools.sleep(seconds)
            adapter.market.search(Query())
    assert (oracle.call_count, lium.call_count) == (1, 2)


def test_a_part_of_an_answer_is_not_kept(respx_mock: respx.MockRouter) -> None:
    warsaw = listed(respx_mock, "scaleway")
    warsaw.respond(500)
    with asked("scaleway") as adapter:
        part = adapter.market.search(Query())
        assert (part.completeness, {offer.region for offer in part.offers}) == (Completeness.PARTIAL, set(ZONES[:3]))
        warsaw.respond(json=recorded("scaleway"))
        whole = adapter.market.search(Query())
        assert (whole.completeness, {offer.region for offer in whole.offers}) == (Completeness.COMPLETE, set(ZONES))


def test_euros_are_computed_with_the_rate_that_is_served(respx_mock: respx.MockRouter) -> None:
    listed(respx_mock, "ovh")
    with asked("ovh") as adapter:
        offer = next(o for o in adapter.market.search(Query()).offers if o.gpu == "L40S")
    assert offer.quoted_usd_hour == pytest.approx(1.4 * 1.15)
    assert (offer.terms.usd_rate, str(offer.terms.usd_rate_on), offer.terms.note) == (1.15, "2026-11-20", None)


def test_without_a_rate_from_outside_the_offer_says_what_it_was_computed_with(respx_mock: respx.MockRouter) -> None:
    listed(respx_mock, "ovh")
    respx_mock.get(RATES).respond(text="<html>closed</html>")
    with asked("ovh") as adapter:
        offer = next(o for o in adapter.market.search(Query()).offers if o.gpu == "L40S")
    assert "built-in rate of 2025-06-30" in (offer.terms.note or "")
    assert offer.terms.usd_rate is not None


def test_pages_are_read_until_one_is_not_full(respx_mock: respx.MockRouter) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        page = int(request.url.params["page"])
        full = {f"X{page}-{n}": {"hourly_price": 1.0, "gpu": None} for n in range(99)}
        gpus = {f"L40S-{page}-48G": {"hourly_price": 1.4 * page, "gpu": page}}
        return httpx.Response(200, json={"servers": (full | gpus) if page < 3 else gpus})

    respx_mock.get(RATES).respond(503)
    route = respx_mock.route(host="api.scaleway.com").mock(side_effect=answer)
    with asked("scaleway") as adapter:
        found = adapter.market.search(Query(gpus=("L40S",)))
    assert sorted({offer.gpu_count for offer in found.offers}) == [1, 2, 3]
    assert (found.completeness, route.call_count) == (Completeness.COMPLETE, 3 * len(ZONES))


def test_a_cursor_is_followed_and_a_circle_ends_as_a_part(respx_mock: respx.MockRouter) -> None:
    following = {None: "b", "b": "c", "c": "c"}
    plans = recorded("vultr")["plans"]

    def answer(request: httpx.Request) -> httpx.Response:
        cursor = request.url.params.get("cursor")
        page = plans if cursor is None else []
        return httpx.Response(200, json={"plans": page, "meta": {"links": {"next": following[cursor]}}})

    route = listed(respx_mock, "vultr").mock(side_effect=answer)
    with asked("vultr") as adapter:
        found = adapter.market.search(Query())
    assert (found.completeness, bool(found.offers)) == (Completeness.PARTIAL, True)
    assert [call.request.url.params.get("cursor") for call in route.calls] == [None, "b", "c"]


def test_far_too_few_rows_are_a_changed_format(respx_mock: respx.MockRouter) -> None:
    value = recorded("oracle")
    listed(respx_mock, "oracle").respond(json=value | {"items": value["items"][:1]})
    with asked("oracle") as adapter, pytest.raises(PayloadChanged, match="rows are about GPUs"):
        adapter.market.search(Query())


def test_an_owners_own_source_is_asked_at_its_own_address(respx_mock: respx.MockRouter, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\ntitle = "Mine"\nurl = "https://api.example.com/v1/prices"\nparams = {all = "1"}\nrows = "*"\n'
        '[fields]\nprice = "usd"\ngpu = "gpu"\ncount = "n"\n'
    )
    row = {"usd": "2.5", "gpu": "H100 SXM5", "n": 1}
    respx_mock.get("https://api.example.com/v1/prices", params={"all": "1"}).respond(json=[row])
    listed(respx_mock, "oracle").respond(404)
    with asked("oracle", files=(str(path),)) as adapter:
        [offer] = adapter.market.search(Query()).offers
    assert (offer.terms.seller, offer.gpu, offer.quoted_usd_hour) == ("mine", "H100 SXM", 2.5)


def test_a_source_lives_at_its_own_address_unless_another_base_is_set() -> None:
    url = "https://api.example.com/v1/{place}/p?x=1"
    assert rebase_url(url, "mine", None) == url
    assert rebase_url(url, "mine", "http://127.0.0.1:1/m/") == "http://127.0.0.1:1/m/mine/v1/{place}/p?x=1"


def test_a_silent_source_does_not_hold_up_the_end_of_gpuwatch() -> None:
    is_asked = threading.Event()

    def answer(request: ReceivedRequest, wire: ReplyWriter) -> None:
        is_asked.set()  # and never answers

    bench = Bench(name="pricelist", place=PriceListServer, gpu="L40S", options={"sources": ("oracle",)})
    with serving(answer) as server, bench.pointed_at(server.url, timeout_s=30.0) as adapter:
        market: Any = adapter.market
        failed: list[ProviderError] = []

        def search() -> None:
            with pytest.raises(ProviderDown) as caught:
                market.search(Query())
            failed.append(caught.value)

        searching = threading.Thread(target=search)
        searching.start()
        assert is_asked.wait(30)
        market._tools.stop.set()
        searching.join(30)
        assert "gpuwatch is stopping" in str(failed[0])


def test_price_lists_never_rent() -> None:
    with asked("oracle") as adapter:
        assert (INFO.launches, adapter.launcher) == (False, None)
