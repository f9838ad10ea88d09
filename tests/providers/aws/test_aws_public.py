"""AWS's prices without an account, from a stand-in for the files of its price pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuwatch import providers
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.errors import PayloadChanged, ProviderDown
from gpuwatch.ports import Completeness, Query
from gpuwatch.providers.aws.catalog import PriceList
from gpuwatch.providers.aws.public_market import parse_on_demand_page, parse_spot_page
from gpuwatch.testing.hostile import corrupt_body
from gpuwatch.testing.invariants import answer_problems
from gpuwatch.testing.relay import relaying
from tests.clocks import Clock
from tests.clouds.aws_market import CPU_TYPES, MARKET
from tests.clouds.aws_pages import PricePages
from tests.providers.aws.aws_bench import asking


@pytest.fixture
def place() -> Iterator[PricePages]:
    with PricePages() as place:
        yield place


@pytest.fixture
def adapter(place: PricePages) -> Iterator[providers.Adapter]:
    with asking(place.url, None, source="public") as adapter:
        yield adapter


@pytest.mark.parametrize("spot", [False, True])
def test_every_type_of_every_region_is_a_list_price(adapter: providers.Adapter, spot: bool) -> None:
    answer = adapter.market.search(Query(spot=spot))
    word = "spot" if spot else "on-demand"
    sold = {f"{s.region}/{s.type}/{word}" for s in MARKET if s.type not in CPU_TYPES and (s.spot or not spot)}
    assert {offer.offer_id for offer in answer.offers} == sold
    assert {offer.kind for offer in answer.offers} == {OfferKind.LISTED}
    assert answer_problems(answer, adapter.info) == []


def test_prices_are_those_of_the_page(adapter: providers.Adapter) -> None:
    [east, west] = adapter.market.search(Query(gpus=("A10G",), spot=True)).offers
    assert (east.quoted_usd_hour, west.quoted_usd_hour) == (0.4012, 0.44132)
    assert (east.machine_id, east.quoted_disk_gb, east.disk_usd_gb_month) == ("us-east-1/g5.xlarge", 0.0, None)
    assert "not told" in (east.terms.note or "")  # word-check: allow - a text of the program
    [offer, _] = adapter.market.search(Query(gpus=("A10G",))).offers
    assert (offer.quoted_usd_hour, offer.vcpu, offer.ram_gib) == (1.006, 4.0, 16.0)


def test_no_account_is_asked_and_nothing_is_rented(adapter: providers.Adapter) -> None:
    assert adapter.launcher is None


def test_a_key_that_is_set_is_not_sent(place: PricePages) -> None:
    with asking(place.url, source="public") as adapter:
        adapter.market.search(Query(spot=True))
    assert place.requests
    assert all("demo" not in str(dict(request.headers)) for request in place.requests)


def test_pages_are_read_once_for_all_watches(place: PricePages) -> None:
    clock = Clock()
    with asking(place.url, None, clock=clock, source="public") as adapter:
        for gpu in ("A10G", "L4"):
            for spot in (False, True):
                adapter.market.search(Query(gpus=(gpu,), spot=spot))
        assert place.count("GET") == 3
        clock.seconds += 3600
        adapter.market.search(Query(spot=True))
        assert place.count("spot.json") == 2


@pytest.mark.parametrize("region", ["eu-west-1", "mars-north-1"])
def test_a_region_without_a_page_makes_the_answer_partial(place: PricePages, region: str) -> None:
    with asking(place.url, None, source="public", regions=("us-east-1", region)) as adapter:
        for spot in (False, True):
            answer = adapter.market.search(Query(gpus=("A10G",), spot=spot))
            assert (answer.completeness, len(answer.offers)) == (Completeness.PARTIAL, 1)
            assert list(answer.skipped) == [f"region {region}: not understood"]


def test_no_page_is_an_error(place: PricePages, adapter: providers.Adapter) -> None:
    place.fail("GET", 500, times=20)
    for spot in (False, True):
        with pytest.raises(ProviderDown):
            adapter.market.search(Query(spot=spot))


@pytest.mark.parametrize(
    "value", [None, [], {}, {"config": {}}, {"config": {"regions": []}}, {"config": {"regions": 1}}]
)
def test_a_spot_page_of_another_form_is_an_error(value: Any) -> None:
    with pytest.raises(PayloadChanged):
        parse_spot_page(value)


@pytest.mark.parametrize("value", [None, {}, {"regions": {}}, {"regions": {"Here": []}}, {"regions": []}])
def test_an_on_demand_page_of_another_form_is_an_error(value: Any) -> None:
    with pytest.raises(PayloadChanged):
        parse_on_demand_page(value, "Here")


def test_windows_and_what_is_not_sold_are_no_prices() -> None:
    columns = [{"name": "linux", "prices": {"USD": "N/A*"}}, {"name": "mswin", "prices": {"USD": "1.0"}}]
    sizes = [{"size": "g5.xlarge", "valueColumns": columns}, {"size": "m5.large", "valueColumns": columns}, None, {}]
    page = {"config": {"regions": [{"region": "us-west-2", "instanceTypes": [{"sizes": sizes}, 17]}]}}
    assert parse_spot_page(page) == {"us-west-2": PriceList(types={}, skipped={})}


def test_a_price_that_cannot_be_read_is_counted_and_of_two_prices_none_counts() -> None:
    row = {"Instance Type": "p5.48xlarge", "price": "98.32"}
    rows = [row, row | {"price": "9.00"}, row | {"Instance Type": "g5.xlarge", "price": "NaN"}]
    prices = parse_on_demand_page({"regions": {"Here": dict(enumerate(rows))}}, "Here")
    assert prices.types == {}
    assert prices.skipped == {"a list price without a price": 1, "several list prices for one instance type": 1}
    sizes = [{"size": "g5.xlarge", "valueColumns": [{"name": "linux", "prices": {"EUR": "0.4"}}]}]
    [spot] = parse_spot_page(
        {"config": {"regions": [{"region": "us-west-2", "instanceTypes": [{"sizes": sizes}]}]}}
    ).values()
    assert spot.skipped == {"a list price without a price": 1}


@pytest.mark.parametrize("rate", [0.01, 0.2])
def test_hostile_pages_are_skipped_or_refused(place: PricePages, rate: float) -> None:
    with relaying(place.url) as relay:
        for seed in range(6):
            relay.corrupt = lambda body, seed=seed: corrupt_body(body, seed, rate)
            with asking(relay.url, None, source="public") as adapter:
                for spot in (False, True):
                    try:
                        answer = adapter.market.search(Query(spot=spot))
                    except PayloadChanged:
                        continue
                    assert answer_problems(answer, adapter.info) == [], f"seed {seed}"
