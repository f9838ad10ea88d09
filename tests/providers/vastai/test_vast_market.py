"""The queries to vast.ai, and how complete its answers are."""

from __future__ import annotations

import json
from datetime import timedelta

import httpx
import msgspec
import pytest
import respx
from vast_double import NOW, Searches, a_row, an_adapter

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import NO_GPU
from gpuwatch.domain.market.search_query import query_of
from gpuwatch.errors import PayloadChanged, ProviderDown
from gpuwatch.ports import Completeness, Market, Query
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.providers.vastai.market import _known_names, wire_names
from gpuwatch.testing.suite import case
from tests.builders import shared_gpu_names
from tests.clocks import Clock

pytestmark = pytest.mark.respx


def test_a_query_asks_for_what_is_wanted_cheapest_first(bundles: respx.Route, market: Market) -> None:
    searches = Searches([])
    bundles.mock(side_effect=searches)
    query = Query(
        gpus=("H100 SXM", "A100 SXM 80GB"), count_min=2, count_max=4, disk_gb=100.0, max_listed_usd_hour=8.0,
        verified=True, min_reliability=0.95, limit=10,
    )  # fmt: skip
    market.search(query)
    asked = searches.asked[0]
    assert asked.pop("dph_total")["lte"] == pytest.approx(8.0)
    assert asked == {
        "rentable": {"eq": True},
        "gpu_name": {"in": ["H100 SXM", "A100 SXM4", "A100 SXM"]},
        "num_gpus": {"gte": 2, "lte": 4},
        "verified": {"eq": True},
        "reliability2": {"gte": 0.95},
        "allocated_storage": 100.0,
        "order": [["dph_total", "asc"]],
        "type": "on-demand",
        "limit": 10,
    }


def test_without_a_disk_the_marketplaces_default_is_quoted(bundles: respx.Route, market: Market) -> None:
    searches = Searches([a_row(storage_cost=0.9, storage_total_cost=0.01)])
    bundles.mock(side_effect=searches)
    answer = market.search(Query())
    assert "allocated_storage" not in searches.asked[0]
    assert answer.offers[0].quoted_disk_gb == 8.0


def test_a_search_for_bids_says_so_and_its_offers_are_spot(bundles: respx.Route, market: Market) -> None:
    searches = Searches([a_row(dph_total=0.3)])
    bundles.mock(side_effect=searches)
    answer = market.search(Query(spot=True))
    assert searches.asked[0]["type"] == "bid"
    assert (answer.offers[0].spot, answer.offers[0].min_bid_usd_hour) == (True, 0.3)


def test_a_gpu_that_nobody_catalogued_is_asked_for_as_it_is_written(bundles: respx.Route, market: Market) -> None:
    searches = Searches([a_row(gpu_name="XPU 9000")])
    bundles.mock(side_effect=searches)
    answer = market.search(Query(gpus=("XPU 9000",)))
    assert searches.asked[0]["gpu_name"] == {"in": ["XPU 9000"]}
    assert [offer.gpu for offer in answer.offers] == ["XPU 9000"]


def test_a_card_whose_socket_nobody_tells_is_asked_for_by_the_spelling_that_leaves_it_open(
    bundles: respx.Route, market: Market
) -> None:
    searches = Searches([a_row(gpu_name="Tesla V100", gpu_ram=32768)])
    bundles.mock(side_effect=searches)
    answer = market.search(Query(gpus=("V100 32GB",)))
    assert searches.asked[0]["gpu_name"] == {"in": ["Tesla V100"]}
    assert [(offer.gpu, offer.gpu_family) for offer in answer.offers] == [("V100 32GB", "V100")]


def test_every_name_on_its_list_is_asked_for_by_a_card() -> None:
    for name in sorted(_known_names()):
        with case(name):
            cards = [gpu.name for gpu in (*catalog().gpus(), *shared_gpu_names())]
            assert name in wire_names((*cards, "RTX 4090 Ti", "RTX 5090 Ti"))


def test_a_name_that_leaves_open_what_vast_always_tells_is_not_asked_for(market: Market) -> None:
    """It states the socket of every H100, and of no V100; it states the memory of every card."""
    answer = market.search(Query(gpus=("H100", "A100", "A100 SXM", "V100", "V100 SXM2 16GB")))
    assert (list(answer.offers), answer.completeness, answer.searches) == ([], Completeness.COMPLETE, 0)


def test_nothing_found_is_a_complete_answer(bundles: respx.Route, market: Market) -> None:
    bundles.mock(side_effect=Searches([]))
    answer = market.search(Query(gpus=("H100 SXM",)))
    assert (list(answer.offers), answer.completeness, answer.rows) == ([], Completeness.COMPLETE, 0)


def test_offers_come_cheapest_first_and_no_machine_twice(bundles: respx.Route, market: Market) -> None:
    rows = [
        a_row(id=1, dph_total=0.5),
        a_row(id=2, dph_total=0.4),
        a_row(id=2, dph_total=0.4),
        a_row(id=3, dph_total=0.6, machine_id=2),
        a_row(id=4, dph_total=0.7, machine_id=2, num_gpus=2),
    ]
    bundles.respond(json={"offers": rows})
    answer = market.search(Query())
    assert [offer.offer_id for offer in answer.offers] == ["2", "1", "4"]
    assert answer.rows == 5


def test_a_server_that_ignores_every_filter_is_filtered_here(bundles: respx.Route, market: Market) -> None:
    rows = [
        a_row(id=1, gpu_name="RTX 3090"),
        a_row(id=2, num_gpus=8),
        a_row(id=3, dph_total=9.0),
        a_row(id=4, rentable=False),
        a_row(id=5, verification="deverified"),
        a_row(id=6, reliability2=0.5),
        a_row(id=7),
    ]
    query = Query(gpus=("RTX 4090",), count_max=1, max_listed_usd_hour=1.0, verified=True, min_reliability=0.9, limit=5)
    bundles.respond(json={"offers": rows})
    answer = market.search(query)
    assert [offer.offer_id for offer in answer.offers] == ["7"]
    assert answer.completeness is Completeness.COMPLETE


# --- completeness ------------------------------------------------------------------------------------------------


def test_the_cap_is_walked_past_by_price(bundles: respx.Route, market: Market) -> None:
    searches = Searches([a_row(id=n, dph_total=0.1 + n / 1000) for n in range(1, 201)])
    bundles.mock(side_effect=searches)
    answer = market.search(Query(gpus=("RTX 4090",)))
    assert [offer.offer_id for offer in answer.offers] == [str(n) for n in range(1, 201)]
    assert answer.completeness is Completeness.COMPLETE
    assert answer.searches == len(searches.asked) == 4


def test_exactly_a_page_is_looked_behind(bundles: respx.Route, market: Market) -> None:
    searches = Searches([a_row(id=n, dph_total=n / 100) for n in range(1, 65)])
    bundles.mock(side_effect=searches)
    answer = market.search(Query())
    assert (len(answer.offers), answer.completeness, answer.searches) == (64, Completeness.COMPLETE, 2)


def test_a_handful_is_enough_for_a_hunt_and_says_how_far_it_saw(bundles: respx.Route, market: Market) -> None:
    searches = Searches([a_row(id=n, dph_total=n / 100) for n in range(1, 31)])
    bundles.mock(side_effect=searches)
    answer = market.search(Query(limit=10))
    assert (len(answer.offers), answer.completeness, answer.searches) == (10, Completeness.TRUNCATED, 1)
    assert answer.complete_to_usd_hour == pytest.approx(0.10)


def test_more_rows_than_asked_for_are_all_there_are(bundles: respx.Route, market: Market) -> None:
    rows = [a_row(id=n, dph_total=(n * 7 % 100 + 1) / 100) for n in range(1, 101)]
    bundles.respond(json={"offers": rows})
    answer = market.search(Query(limit=10))
    assert (len(answer.offers), answer.completeness) == (100, Completeness.COMPLETE)


def test_a_page_full_of_one_price_is_reported_as_cut(bundles: respx.Route, market: Market) -> None:
    searches = Searches([a_row(id=n, dph_total=0.5) for n in range(1, 101)] + [a_row(id=200, dph_total=0.6)])
    bundles.mock(side_effect=searches)
    answer = market.search(Query())
    assert answer.completeness is Completeness.TRUNCATED
    assert answer.complete_to_usd_hour == pytest.approx(0.5)
    assert answer.offers[-1].offer_id == "200"
    assert answer.searches <= 4


@pytest.mark.parametrize("in_order", [True, False])
def test_a_server_that_sends_the_same_full_page_again_is_not_taken_for_everything(
    bundles: respx.Route, market: Market, in_order: bool
) -> None:
    """It ignores the minimum price of the next page, so it is unknown whether there are more than 64 offers."""
    prices = [n / 100 if in_order else (n * 37 % 64 + 1) / 100 for n in range(1, 65)]
    rows = [a_row(id=n, dph_total=price) for n, price in enumerate(prices, 1)]
    bundles.respond(json={"offers": rows})
    answer = market.search(Query())
    assert (len(answer.offers), answer.completeness, answer.searches) == (64, Completeness.PARTIAL, 2)
    assert "ignored the lowest price" in answer.incomplete_because


@pytest.mark.parametrize(
    ("rows", "ignored"),
    [
        ([a_row(id=n, gpu_name="RTX 3090") for n in range(1, 65)], "GPU names"),
        ([a_row(id=n, gpu_name="RTX 3090" if n % 2 else "RTX 4090") for n in range(1, 65)], "GPU names"),
        ([a_row(id=n, dph_total=5 + n / 100) for n in range(1, 65)], "highest price"),
        ([a_row(id=n, dph_total=n / 10) for n in range(1, 65)], "highest price"),
    ],
)
def test_a_full_page_that_was_not_filtered_is_never_a_complete_answer(
    bundles: respx.Route, market: Market, rows: list[dict[str, object]], ignored: str
) -> None:
    bundles.respond(json={"offers": rows})
    query = Query(gpus=("RTX 4090",), max_listed_usd_hour=1.0)
    answer = market.search(query)
    assert (answer.completeness, answer.searches) == (Completeness.PARTIAL, 1)
    assert f"ignored the {ignored}" in answer.incomplete_because


def test_a_handful_that_was_not_filtered_proves_nothing_about_the_rest(bundles: respx.Route, market: Market) -> None:
    bundles.respond(json={"offers": [a_row(id=n, gpu_name="RTX 3090") for n in range(1, 11)]})
    answer = market.search(Query(gpus=("RTX 4090",), limit=10))
    assert (answer.completeness, answer.complete_to_usd_hour) == (Completeness.TRUNCATED, None)


@pytest.mark.parametrize("name", ["RTX 4090", "rtx_4090", "GeForce RTX 4090"])
def test_a_full_page_in_another_spelling_of_the_gpu_was_filtered(
    bundles: respx.Route, market: Market, name: str
) -> None:
    bundles.respond(json={"offers": [a_row(id=n, gpu_name=name) for n in range(1, 65)]})
    answer = market.search(Query(gpus=("RTX 4090",), max_listed_usd_hour=1.0, limit=64))
    assert answer.complete_to_usd_hour == pytest.approx(a_row()["dph_total"])


def test_a_bid_that_costs_more_than_the_price_it_is_filtered_by_was_filtered(
    bundles: respx.Route, market: Market
) -> None:
    rows = [a_row(id=n, dph_total=n / 100, min_bid=1.2 if n == 64 else 0.01) for n in range(1, 65)]
    bundles.respond(json={"offers": rows})
    answer = market.search(Query(spot=True, max_listed_usd_hour=1.0, limit=64))
    assert answer.complete_to_usd_hour is not None


def test_more_than_the_handful_asked_for_that_is_just_the_cap_is_cut(bundles: respx.Route, market: Market) -> None:
    rows = [a_row(id=n, dph_total=n / 100) for n in range(1, 65)]
    bundles.respond(json={"offers": rows})
    answer = market.search(Query(limit=10))
    assert (answer.completeness, answer.complete_to_usd_hour) == (Completeness.TRUNCATED, pytest.approx(0.64))


def test_a_cut_page_out_of_order_is_not_taken_for_everything(bundles: respx.Route, market: Market) -> None:
    """Truncated and not sorted by price: missing offers may be cheaper."""

    def by_score(request: httpx.Request) -> httpx.Response:
        low = json.loads(request.url.params["q"]).get("dph_total", {}).get("gte", 0)
        rows = [a_row(id=n, dph_total=(n * 37 % 101 + 1) / 100) for n in range(1, 101)]
        return httpx.Response(200, json={"offers": [row for row in rows if row["dph_total"] >= low][:64]})

    bundles.mock(side_effect=by_score)
    answer = market.search(Query())
    assert answer.completeness is Completeness.TRUNCATED
    assert answer.complete_to_usd_hour is None


def test_a_later_page_that_fails_leaves_a_partial_answer(bundles: respx.Route, market: Market) -> None:
    rows = [a_row(id=n, dph_total=n / 100) for n in range(1, 65)]
    bundles.mock(
        side_effect=[httpx.Response(200, json={"offers": rows}), httpx.Response(401, json={"error": "auth_error"})]
    )
    answer = market.search(Query())
    assert (len(answer.offers), answer.completeness) == (64, Completeness.PARTIAL)
    assert answer.complete_to_usd_hour == pytest.approx(0.64)


# --- further contents of an answer -------------------------------------------------------------------------------


def test_offers_are_reported_while_they_arrive(bundles: respx.Route, market: Market) -> None:
    reported: list[str] = []
    bundles.mock(side_effect=Searches([a_row(id=1), a_row(id=2, gpu_name="RTX 3090")]))
    market.search(Query(gpus=("RTX 4090",)), on_offers=lambda offers: reported.extend(o.offer_id for o in offers))  # type: ignore[call-arg]
    assert reported == ["1"]


def test_new_and_vanished_fields_are_reported(bundles: respx.Route, market: Market) -> None:
    row = a_row(surprise=1)
    bundles.respond(json={"offers": [row]})
    answer = market.search(Query())
    assert "new field: surprise" in answer.drift
    assert "field gone: dlperf" in answer.drift
    assert "field gone: dph_total" not in answer.drift


def test_the_time_of_an_answer_is_when_it_was_asked_for(bundles: respx.Route, market: Market) -> None:
    bundles.mock(side_effect=Searches([a_row()]))
    answer = market.search(Query())
    assert answer.observed_at == answer.offers[0].observed_at == NOW


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"null", b'"x"', b"<html>", b'{"offers": null}', b'{"offers": {}}', b"\xff\xfe"]
)
def test_what_is_no_list_of_offers_is_never_an_empty_market(bundles: respx.Route, market: Market, body: bytes) -> None:
    bundles.respond(content=body)
    with pytest.raises(PayloadChanged):
        market.search(Query())


def test_an_answer_that_says_it_failed_is_never_an_empty_market(bundles: respx.Route, market: Market) -> None:
    bundles.respond(json={"success": False, "offers": []})
    with pytest.raises(PayloadChanged):
        market.search(Query())


@pytest.mark.parametrize("cut", [20, 200, -3, -1])
def test_an_answer_that_ends_in_the_middle_is_no_answer(bundles: respx.Route, market: Market, cut: int) -> None:
    body = json.dumps({"offers": [a_row(id=n) for n in range(1, 4)]}).encode()[:cut]
    bundles.respond(content=body)
    with pytest.raises((ProviderDown, PayloadChanged)):
        market.search(Query())


def test_without_a_key_none_is_sent(bundles: respx.Route, http: PooledHttpClient, clock: Clock) -> None:
    bundles.respond(json={"offers": []})
    an_adapter(http, clock, api_key=None).market.search(Query())
    assert "authorization" not in bundles.calls.last.request.headers


def test_with_a_key_it_travels_in_a_header_only(bundles: respx.Route, market: Market) -> None:
    bundles.respond(json={"offers": []})
    market.search(Query())
    request = bundles.calls.last.request
    assert request.headers["authorization"].startswith("Bearer k")
    assert "kkkk" not in str(request.url)
    assert request.url.path == "/api/v0/bundles/"


def test_an_unchanged_row_gives_an_equal_offer_with_a_new_time(
    bundles: respx.Route, http: PooledHttpClient, clock: Clock
) -> None:
    times = [NOW, NOW + timedelta(minutes=1)]
    bundles.respond(json={"offers": [a_row()]})
    market = an_adapter(http, clock, now=iter(times).__next__).market
    first, second = (market.search(Query()).offers[0] for _ in range(2))
    assert [first.observed_at, second.observed_at] == times
    assert msgspec.structs.replace(second, observed_at=NOW) == first


def test_a_changed_row_gives_a_new_offer(bundles: respx.Route, market: Market) -> None:
    prices = [0.5, 0.4, 0.4]
    bundles.mock(side_effect=[httpx.Response(200, json={"offers": [a_row(dph_total=p)]}) for p in prices])
    assert [market.search(Query()).offers[0].quoted_usd_hour for _ in prices] == prices


def test_machines_without_gpus_are_asked_for_by_their_number_and_never_mixed_with_others(
    bundles: respx.Route, market: Market
) -> None:
    cpu = a_row(id=7, num_gpus=0, gpu_name=None, gpu_ram=0, cpu_cores_effective=16.0, cpu_ram=65536, dph_total=0.05)
    searches = Searches([cpu, a_row(id=8)])
    bundles.mock(side_effect=searches)
    answer = market.search(query_of(NO_GPU, spot=False))
    assert "gpu_name" not in searches.asked[0]
    assert searches.asked[0]["num_gpus"] == {"eq": 0}
    (offer,) = answer.offers
    assert (offer.offer_id, offer.gpu, offer.gpu_count, offer.vcpu, offer.ram_gib) == ("7", NO_GPU, 0, 16.0, 64.0)
    assert answer.completeness is Completeness.COMPLETE
    assert [one.offer_id for one in market.search(Query(gpus=("RTX 4090",))).offers] == ["8"]
    assert "num_gpus" not in searches.asked[1]
    assert [one.offer_id for one in market.search(Query()).offers] == ["8"]
    assert searches.asked[2]["num_gpus"] == {"gte": 1}, "the cheapest machine of all may have none"
