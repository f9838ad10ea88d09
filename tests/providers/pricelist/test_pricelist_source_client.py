"""How sources are queried: separately, each at its own pace; one that fails never hides the others."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from gpuwatch import providers
from gpuwatch.errors import PayloadChanged, ProviderDown, ProviderError
from gpuwatch.ports import Completeness, Query
from gpuwatch.providers.pricelist.source_client import rebase_url
from gpuwatch.testing.bench import Bench
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving
from tests.clouds.pricelist import PriceListServer


def bench(*sources: str, **options: Any) -> Bench:
    reported: Mapping[str, Any] = {"sources": sources or None, **options}
    return Bench(name="pricelist", place=PriceListServer, gpu="L40S", options=reported)


def test_every_source_is_asked_and_names_itself_as_the_seller() -> None:
    with PriceListServer() as place, bench().pointed_at(place.url) as adapter:
        answer = adapter.market.search(Query())
        assert answer.completeness is Completeness.COMPLETE
        assert {offer.terms.seller for offer in answer.offers} == {
            "oracle", "scaleway", "vultr", "ovh", "verda", "lium", "cloudrift", "akash",
        }  # fmt: skip
        assert place.count("cudo|daytona|linode") == 0


@pytest.mark.parametrize("status", [401, 404, 429, 500, None])
def test_one_source_that_fails_makes_a_part_and_is_named(status: int | None) -> None:
    with PriceListServer() as place, bench().pointed_at(place.url) as adapter:
        place.fail("/oracle/", status, times=5)
        answer = adapter.market.search(Query())
        assert answer.completeness is Completeness.PARTIAL
        assert [reason for reason in answer.skipped if reason.startswith("oracle: ")] != []
        assert "oracle" not in {offer.terms.seller for offer in answer.offers}
        assert len(answer.offers) > 20


def test_the_log_says_once_why_a_source_fails_and_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gpuwatch.providers.pricelist")
    with PriceListServer() as place, bench("oracle", "ovh").pointed_at(place.url) as adapter:
        place.fail("/oracle/", 200, {"items": "none"}, times=2)
        for _ in range(3):
            adapter.market.search(Query())
        reported = [record.getMessage() for record in caplog.records if "oracle" in record.getMessage()]
        assert len(reported) == 2
        assert "no rows at items" in reported[0]
        assert "answers again" in reported[1]


def test_if_all_fail_it_is_an_error_and_never_an_empty_market() -> None:
    with PriceListServer() as place, bench("oracle", "ovh").pointed_at(place.url) as adapter:
        place.fail(".", 503, times=50)
        with pytest.raises(ProviderDown, match="pricelist: oracle: 503"):
            adapter.market.search(Query())


def test_a_source_is_asked_no_more_often_than_it_declares() -> None:
    with PriceListServer() as place, bench("oracle", "lium").pointed_at(place.url) as adapter:
        market: Any = adapter.market
        for seconds in (0.0, 30.0, 300.0):
            market._tools.sleep(seconds)
            adapter.market.search(Query())
        assert place.count("/oracle/") == 1
        assert place.count("/lium/") == 2


def test_a_part_of_an_answer_is_not_kept() -> None:
    with PriceListServer() as place, bench("scaleway").pointed_at(place.url) as adapter:
        place.fail("pl-waw-2", 500, times=3)
        assert adapter.market.search(Query()).completeness is Completeness.PARTIAL
        answer = adapter.market.search(Query())
        assert answer.completeness is Completeness.COMPLETE
        assert {offer.region for offer in answer.offers} == {"fr-par-2", "pl-waw-2"}


def test_spot_is_asked_only_where_there_is_spot() -> None:
    with PriceListServer() as place, bench().pointed_at(place.url) as adapter:
        answer = adapter.market.search(Query(spot=True))
        assert {offer.terms.seller for offer in answer.offers} == {"verda", "lium"}
        assert place.count("oracle|ovh|scaleway") == 0


def test_no_key_is_ever_sent() -> None:
    with PriceListServer() as place, bench().pointed_at(place.url) as adapter:
        adapter.market.search(Query())
        assert {request.headers.get("authorization") for request in place.requests} == {None}


def test_euros_are_computed_with_the_rate_that_is_served() -> None:
    with PriceListServer() as place, bench("ovh").pointed_at(place.url) as adapter:
        offer = next(o for o in adapter.market.search(Query()).offers if o.gpu == "L40S")
        assert offer.quoted_usd_hour == pytest.approx(1.4 * 1.15)
        assert (offer.terms.usd_rate, str(offer.terms.usd_rate_on), offer.terms.note) == (1.15, "2026-11-20", None)


def test_without_a_rate_from_outside_the_offer_says_what_it_was_computed_with() -> None:
    with PriceListServer() as place, bench("ovh").pointed_at(place.url) as adapter:
        place.fixing = "<html>closed</html>"
        offer = next(o for o in adapter.market.search(Query()).offers if o.gpu == "L40S")
        assert "built-in rate of 2025-06-30" in (offer.terms.note or "")
        assert offer.terms.usd_rate is not None


def test_pages_are_read_until_one_is_not_full() -> None:
    def answer(request: ReceivedRequest, wire: ReplyWriter) -> None:
        page = int(request.params.get("page", "1"))
        full = {f"X{page}-{n}": {"hourly_price": 1.0, "gpu": None} for n in range(99)}
        gpus = {f"L40S-{page}-48G": {"hourly_price": 1.4 * page, "gpu": page}}
        wire.answer(200, {"servers": (full | gpus) if page < 3 else gpus})

    with serving(answer) as server, bench("scaleway").pointed_at(server.url) as adapter:
        found = adapter.market.search(Query(gpus=("L40S",)))
        assert sorted({offer.gpu_count for offer in found.offers}) == [1, 2, 3]
        assert found.completeness is Completeness.COMPLETE
        assert len([request for request in server.requests if "fr-par-1" in request.path]) == 3


def test_a_cursor_is_followed_and_a_circle_ends_as_a_part() -> None:
    plan = {"id": "vcg-l40s-1", "gpu_type": "NVIDIA_L40S", "gpu_vram_gb": 48, "hourly_cost": 1.6, "locations": "x"}
    plans = [plan | {"id": f"vcg-l40s-{n}", "locations": ["lax"]} for n in range(3)]
    following = {None: "b", "b": "c", "c": "c"}

    def answer(request: ReceivedRequest, wire: ReplyWriter) -> None:
        cursor = request.params.get("cursor")
        page = plans if cursor is None else []
        wire.answer(200, {"plans": page, "meta": {"links": {"next": following[cursor]}}})

    with serving(answer) as server, bench("vultr").pointed_at(server.url) as adapter:
        found = adapter.market.search(Query())
        assert found.completeness is Completeness.PARTIAL
        assert len(found.offers) == 3
        assert [request.params.get("cursor") for request in server.requests] == [None, "b", "c"]


def test_what_is_posted_is_what_was_declared() -> None:
    with PriceListServer() as place, bench("cloudrift").pointed_at(place.url) as adapter:
        assert len(adapter.market.search(Query()).offers) == 3
        [request] = place.requests
        assert json.loads(request.raw)["version"] == "2025-03-21"


def test_far_too_few_rows_are_a_changed_format() -> None:
    with PriceListServer() as place, bench("oracle").pointed_at(place.url) as adapter:
        place.answers["oracle"] = {"items": place.answers["oracle"]["items"][:1]}
        with pytest.raises(PayloadChanged, match="1 of 2 rows"):
            adapter.market.search(Query())


def test_an_owners_own_source_is_asked_below_the_base_url(tmp_path: Any) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\ntitle = "Mine"\nurl = "https://api.example.com/v1/prices"\nparams = {all = "1"}\nrows = "*"\n'
        '[fields]\nprice = "usd"\ngpu = "gpu"\ncount = "n"\n'
    )

    def answer(request: ReceivedRequest, wire: ReplyWriter) -> None:
        is_mine = request.target == "/mine/v1/prices?all=1"
        wire.answer(200 if is_mine else 404, [{"usd": "2.5", "gpu": "H100 SXM5", "n": 1}] if is_mine else {})

    with serving(answer) as server, bench("oracle", files=(str(path),)).pointed_at(server.url) as adapter:
        [offer] = adapter.market.search(Query()).offers
        assert (offer.terms.seller, offer.gpu, offer.quoted_usd_hour) == ("mine", "H100 SXM", 2.5)


def test_a_source_lives_at_its_own_address_unless_another_base_is_set() -> None:
    url = "https://api.example.com/v1/{place}/p?x=1"
    assert rebase_url(url, "mine", None) == url
    assert rebase_url(url, "mine", "http://127.0.0.1:1/m/") == "http://127.0.0.1:1/m/mine/v1/{place}/p?x=1"


def test_a_silent_source_does_not_hold_up_the_end_of_gpuwatch() -> None:
    asked = threading.Event()

    def answer(request: ReceivedRequest, wire: ReplyWriter) -> None:
        asked.set()  # and never answers

    with serving(answer) as server, bench("oracle").pointed_at(server.url, timeout_s=30.0) as adapter:
        market: Any = adapter.market
        failed: list[ProviderError] = []

        def search() -> None:
            with pytest.raises(ProviderDown) as caught:
                market.search(Query())
            failed.append(caught.value)

        searching = threading.Thread(target=search)
        searching.start()
        assert asked.wait(30)
        market._tools.stop.set()
        searching.join(30)
        assert "gpuwatch is stopping" in str(failed[0])


def test_price_lists_never_rent() -> None:
    assert not providers.info("pricelist").launches
    with PriceListServer() as place, bench("oracle").pointed_at(place.url) as adapter:
        assert adapter.launcher is None
