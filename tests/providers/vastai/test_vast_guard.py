"""The guard's rules with the real output of vast.ai's adapter, on the emulated marketplace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from gpuwatch.domain.launches.instances.instance_checks import listing_mismatch
from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, new_launch
from gpuwatch.domain.market.money import Commission, price_of
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import LaunchSpec, PriceIncreasePolicy
from gpuwatch.emulator import Marketplace
from gpuwatch.errors import OfferGone
from gpuwatch.ports import Instance, Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON, a_watch
from tests.engine.guard_world import GuardWorld
from tests.providers.vastai.bench import marketplace, pointed_at

DISK_GB = 20.0
WATCH = a_watch(disk_gb=DISK_GB)


@pytest.fixture
def place() -> Iterator[Marketplace]:
    with marketplace() as running:
        yield running


@pytest.fixture
def adapter(place: Marketplace) -> Iterator[Adapter]:
    with pointed_at(place.url) as built:
        yield built


def rented(adapter: Adapter, offer: Offer) -> tuple[Launch, Instance]:
    """Return the offer's promises, and the list's values after the rent."""
    assert adapter.launcher is not None
    match = Match(offer, price_of(offer, DISK_GB, Commission("0.20")))
    launch = new_launch(Intent(watch=WATCH, match=match, launch_id="a" * 12, dry_run=False), 0, NOON)
    order = Order(offer_id=offer.offer_id, label=launch.label, image="x", disk_gb=DISK_GB)
    made = adapter.launcher.create(order).instance_id
    (found,) = [instance for instance in adapter.launcher.list_instances() if instance.instance_id == made]
    adapter.launcher.destroy(made)
    return launch, found


def test_what_an_offer_promises_is_what_its_instance_shows(adapter: Adapter) -> None:
    """Both pass through the adapter: another unit or spelling in one of them would end every launch."""
    held = 0
    for offer in [offer for offer in adapter.market.search(Query()).offers if not offer.spot][:50]:
        with suppress(OfferGone):
            launch, instance = rented(adapter, offer)
            assert listing_mismatch(launch, instance) is None, (launch, instance)
            held += 1
    assert held >= 20


def test_what_an_instance_shows_is_looked_at(adapter: Adapter) -> None:
    """None of the fields is missing, so each of them can differ."""
    offer = next(offer for offer in adapter.market.search(Query()).offers if offer.gpu_known and offer.gpu_count > 1)
    launch, instance = rented(adapter, offer)
    more: dict[str, Any] = {"gpu_memory_gib": 1e5, "disk_gb": 1e5, "cuda": 99.0}
    for field, value in more.items():
        asks_more = msgspec.structs.replace(launch, promised=msgspec.structs.replace(launch.promised, **{field: value}))
        fault = listing_mismatch(asks_more, instance)
        assert fault is not None, field
        assert fault[0] is EndReason.NOT_AS_PROMISED
    assert listing_mismatch(msgspec.structs.replace(launch, gpu="another"), instance) is not None
    assert listing_mismatch(msgspec.structs.replace(launch, gpu_count=99), instance) is not None


@pytest.mark.parametrize(("most", "answer"), [(Decimal(100), "accepted"), (Decimal("0.01"), "rejected")])
def test_a_proposed_price_is_answered_at_the_marketplace(
    database: Database, adapter: Adapter, place: Marketplace, most: Decimal, answer: str
) -> None:
    assert adapter.launcher is not None
    offer = adapter.market.search(Query()).offers[0]
    made = adapter.launcher.create(Order(offer_id=offer.offer_id, label="x", image="x", disk_gb=DISK_GB))
    spec = LaunchSpec(on_price_increase=PriceIncreasePolicy.ACCEPT_UNDER)
    world = GuardWorld(database, launch=spec, max_price_usd_gpu_hour=most)
    world.host = adapter.launcher  # type: ignore[assignment]  # the real one
    world.start_process()
    launch = world.running(instance_id=made.instance_id)
    number = place.propose_increase(int(made.instance_id), gpu_usd_hour=9.0)
    world.refresh()
    assert place.increase_answers() == {number: answer}
    assert len(world.alerts()) == 1
    far_off = world.guard.due(launch, world.now)
    assert far_off is None
