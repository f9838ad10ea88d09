"""An order names a data centre only where that helps: the community cloud refuses orders that name one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gpuwatch.domain.launches.launch import Intent, new_launch
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.match import matches
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.launches.renting.launch_orders import build_order
from gpuwatch.errors import OfferGone
from gpuwatch.ports import Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.providers.runpod.catalogue import CatalogueRequest, parse_catalogue
from gpuwatch.providers.runpod.create import create_body
from tests.builders import NOON, a_watch
from tests.clouds.runpod import RunPod
from tests.providers.runpod.bench import BENCH, PLENTY

# A community type, as the catalogue lists it.
RTX_5090 = {
    "id": "NVIDIA GeForce RTX 5090", "name": "RTX 5090", "pool": "BLACKWELL_32", "manufacturer": "NVIDIA",
    "memory": 32, "secure": False, "community": True, "price": {"secure": 0, "community": 0.69},
    "maxCount": {"secure": 0, "community": 1}, "availability": "LOW",
    "dataCenters": [
        {"id": "EU-CZ-1", "name": "EU-CZ-1", "availability": "LOW"},
        {"id": "EU-RO-1", "name": "EU-RO-1", "availability": "LOW"},
    ],
    "cudaVersions": [{"version": "12.8", "available": True}],
}  # fmt: skip
REQUEST = CatalogueRequest("COMMUNITY", 1, 10.0, datetime(2026, 11, 28, tzinfo=UTC))


def ordered(offer: Offer, *regions: str) -> dict[str, Any] | None:
    """The create request of a watch; None: the watch does not accept the offer."""
    watch = a_watch(
        gpu_names=("RTX 5090",),
        max_price_usd_gpu_hour=Decimal(9),
        regions=regions,
        action=Action.LAUNCH,
        launch=LaunchSpec(image="x/y"),
    )
    found = matches(watch, [offer], {"runpod": Commission("0")}, NOON)
    if not found:
        return None
    launch = new_launch(Intent(watch=watch, match=found[0], launch_id="a" * 12, dry_run=False), 0, NOON)
    return create_body(build_order(launch, found[0], watch), NOON, None)


def test_the_community_cloud_is_one_offer_that_may_be_anywhere() -> None:
    [offer] = parse_catalogue({"gpus": [RTX_5090]}, REQUEST).offers
    assert offer.offer_id == "NVIDIA GeForce RTX 5090/COMMUNITY/1/*"
    assert (offer.region, offer.country) == (None, None)
    assert [(place.region, place.country) for place in offer.terms.places] == [("EU-CZ-1", "CZ"), ("EU-RO-1", "RO")]
    assert "EU-CZ-1, EU-RO-1, but refuses most orders that name a place" in (offer.terms.note or "")


def test_stock_of_data_centres_does_not_decide_about_the_community_cloud() -> None:
    """Its pods land elsewhere than where stock is listed."""
    nowhere = [one | {"availability": "NONE"} for one in RTX_5090["dataCenters"]]  # type: ignore[operator]
    [offer] = parse_catalogue({"gpus": [RTX_5090 | {"dataCenters": nowhere}]}, REQUEST).offers
    assert offer.terms.places == ()


def test_without_regions_a_community_order_names_no_data_centre_and_with_them_those_that_fit() -> None:
    [offer] = parse_catalogue({"gpus": [RTX_5090]}, REQUEST).offers
    bodies = [ordered(offer), ordered(offer, "CZ"), ordered(offer, "EU"), ordered(offer, "US")]
    named = [None if body is None else body.get("dataCenterIds") for body in bodies]
    assert named == [None, ["EU-CZ-1"], ["EU-CZ-1", "EU-RO-1"], None]
    assert bodies[-1] is None  # no match: nothing is ordered where the watch does not want it


def test_an_older_offer_of_a_place_in_the_community_cloud_is_ordered_without_it() -> None:
    order = Order(offer_id="NVIDIA GeForce RTX 5090/COMMUNITY/1/EU-CZ-1", label="x", image="x/y", disk_gb=10.0)
    assert "dataCenterIds" not in create_body(order, NOON, None)


def test_the_secure_cloud_is_ordered_where_its_stock_is() -> None:
    order = Order(offer_id="NVIDIA H100 80GB HBM3/SECURE/1/US-KS-2", label="x", image="x/y", disk_gb=10.0)
    assert create_body(order, NOON, None)["dataCenterIds"] == ["US-KS-2"]


@pytest.fixture
def place() -> Iterator[RunPod]:
    with RunPod(quotas=PLENTY) as place:
        place.types["NVIDIA GeForce RTX 5090"].community_places = ("EU-CZ-1", "EU-RO-1")
        yield place


@pytest.fixture
def adapter(place: RunPod) -> Iterator[Adapter]:
    with BENCH.pointed_at(place.url) as adapter:
        yield adapter


def test_what_the_catalogue_offers_can_be_ordered_and_a_refusal_says_why(place: RunPod, adapter: Adapter) -> None:
    assert adapter.launcher is not None
    found = adapter.market.search(Query(gpus=("RTX 5090",), count_max=1)).offers
    [offer] = [offer for offer in found if "COMMUNITY" in offer.offer_id]
    order = Order(offer_id=offer.offer_id, label="gpuwatch-a", image="x/y", disk_gb=10.0)
    assert adapter.launcher.create(order).starting
    pinned = Order(
        offer_id=offer.offer_id, label="gpuwatch-b", image="x/y", disk_gb=10.0, places=("EU-CZ-1", "EU-RO-1")
    )
    with pytest.raises(OfferGone, match="named EU-CZ-1, EU-RO-1, because `regions` is set"):
        adapter.launcher.create(pinned)
    sent = [json.loads(one.raw) for one in place.requests if (one.method, one.path) == ("POST", "/v2/pods")]
    assert [body.get("dataCenterIds") for body in sent] == [None, ["EU-CZ-1", "EU-RO-1"]]
