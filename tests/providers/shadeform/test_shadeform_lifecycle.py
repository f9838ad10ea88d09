"""Shadeform with its emulator: what its instances do over time, and its stock beside that of a seller."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest

from gpuwatch import providers
from gpuwatch.domain.market.money import Commission, OfferPrice, price_of
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.resold import fold_resold
from gpuwatch.engine.launches.following.instance_details import ContractEnds
from gpuwatch.ports import InstanceState, Launcher, Order, ProviderSettings, Query
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.clocks import Clock
from tests.clouds.lambda_cloud import LambdaCloud
from tests.clouds.shadeform import Shadeform
from tests.domain.launches.guard_values import a_running_launch
from tests.providers.shadeform.bench import BENCH

LAMBDA = import_module("tests.providers.lambda.bench").BENCH
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DEFAULTS = {spec.name: spec.default for spec in providers.info("shadeform").options}


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW.timestamp())


@pytest.fixture
def place(clock: Clock) -> Iterator[Shadeform]:
    with Shadeform(clock=clock, boots_s=180.0, ends_s=60.0) as place:
        yield place


@pytest.fixture
def launcher(place: Shadeform, clock: Clock, http: PooledHttpClient) -> Launcher:
    settings = ProviderSettings(
        name="shadeform", base_url=place.url, api_key="demo-key", search_interval_s=0.0, options=DEFAULTS
    )
    adapter = providers.build(settings, http, lambda: datetime.fromtimestamp(clock(), UTC), clock, clock.sleep)
    assert adapter.launcher is not None
    return adapter.launcher


def an_order(**values: Any) -> Order:
    offer_id = "hyperstack/H100/canada-1/240"
    return Order(**({"offer_id": offer_id, "label": "gpuwatch-abc", "image": "x/y", "disk_gb": 20.0} | values))


def test_an_orphan_is_deleted_by_its_date(place: Shadeform, launcher: Launcher, clock: Clock) -> None:
    launcher.create(an_order(deadline=NOW + timedelta(hours=1)))
    clock.sleep(1.5 * 3600 - 1)
    assert [instance.state for instance in launcher.list_instances()] == [InstanceState.RUNNING]
    clock.sleep(1 + 60)
    assert list(launcher.list_instances()) == []


def test_its_date_is_the_end_of_its_contract(place: Shadeform, launcher: Launcher) -> None:
    """Only the answer about the single instance states it; no later end of gpuwatch's changes it."""
    created = launcher.create(an_order(deadline=NOW + timedelta(hours=4)))
    assert [instance.ends_at for instance in launcher.list_instances()] == [None]
    ends = ContractEnds({"shadeform": launcher})
    rented = a_running_launch(provider="shadeform", instance_id=created.instance_id)
    assert ends(rented) == NOW + timedelta(hours=4, minutes=30)
    assert ends(a_running_launch(provider="shadeform", instance_id="none-such")) is None


def test_what_costs_more_than_its_offer_said_is_deleted_by_its_spending(
    place: Shadeform, launcher: Launcher, clock: Clock
) -> None:
    next(kind for kind in place.kinds if kind["shade_instance_type"] == "H100")["hourly_price"] = 480
    launcher.create(an_order(deadline=NOW + timedelta(hours=9.5)))  # 10 h for 26.40 $: at 4.80 $/h that is 5.5 h
    [found] = launcher.list_instances()
    assert found.listed_usd_hour == 4.8  # which the engine compares with the threshold at once
    clock.sleep(5.5 * 3600 + 60)
    assert list(launcher.list_instances()) == []


def test_it_waits_for_its_cloud_runs_ends_and_is_gone(place: Shadeform, launcher: Launcher, clock: Clock) -> None:
    made = launcher.create(an_order())
    seen = []
    for _ in range(4):
        [one] = launcher.list_instances()
        seen.append((one.status, one.state))
        clock.sleep(60)
    starting, running = InstanceState.STARTING, InstanceState.RUNNING
    assert seen == [
        ("creating", starting), ("pending_provider", starting), ("pending", starting), ("active", running),
    ]  # fmt: skip
    [active] = launcher.list_instances()
    assert (active.ssh_host, active.ssh_port, active.ssh_user) == ("203.0.113.1", 22, "shadeform")
    assert active.label == "gpuwatch-abc"
    assert (active.gpu, active.gpu_count, active.listed_usd_hour) == ("H100 PCIe", 1, 2.4)
    assert (active.machine_id, active.started_at) == ("hyperstack/H100/canada-1", NOW + timedelta(seconds=180))
    launcher.destroy(made.instance_id)
    assert [instance.status for instance in launcher.list_instances()] == ["deleting"]
    launcher.destroy(made.instance_id)  # the list shows that the end is in progress
    assert place.count("POST .*delete") == 1
    clock.sleep(60)
    assert list(launcher.list_instances()) == []
    launcher.destroy(made.instance_id)


class Priced:
    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.price: OfferPrice = price_of(offer, None, Commission())


def test_stock_that_is_offered_by_lambda_too_is_recognised() -> None:
    found: list[Offer] = []
    for bench, place in ((LAMBDA, LambdaCloud()), (BENCH, Shadeform())):
        with place, bench.pointed_at(place.url) as adapter:
            found += adapter.market.search(Query()).offers
    twice = {
        one.primary.offer.offer_id
        for one in fold_resold([Priced(offer) for offer in found])
        if one.also == ("shadeform",)
    }
    assert twice == {"gpu_1x_a10/us-west-1", "gpu_1x_h100_sxm5/us-east-1", "gpu_1x_h100_sxm5/us-south-1"}
