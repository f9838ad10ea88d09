"""Verda with its server on loopback: what takes several requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuwatch.domain.market.offer import NO_GPU
from gpuwatch.domain.market.search_query import query_of
from gpuwatch.errors import OutcomeUnknown
from gpuwatch.ports import Order, Query
from gpuwatch.ports.declarations import Adapter
from tests.clouds.verda import NVME_USD_GB_MONTH, Verda
from tests.providers.verda.bench import BENCH

LABEL = "gpuwatch-abcdefgh2345"


@pytest.fixture
def place() -> Iterator[Verda]:
    with Verda() as place:
        yield place


@pytest.fixture
def adapter(place: Verda) -> Iterator[Adapter]:
    with BENCH.pointed_at(place.url) as adapter:
        yield adapter


def order(offer_id: str = "1H100.80S.30V/FIN-03", **values: Any) -> Order:
    plain: dict[str, Any] = {"offer_id": offer_id, "label": LABEL, "image": "x/y", "disk_gb": 50.0}
    return Order(**(plain | values))


def launcher(adapter: Adapter) -> Any:
    assert adapter.launcher is not None
    return adapter.launcher


# --- offers -----------------------------------------------------------------------------------------------------------


def test_only_what_is_free_somewhere_is_an_offer(adapter: Adapter) -> None:
    demand = {offer.offer_id for offer in adapter.market.search(Query()).offers}
    spot = {offer.offer_id for offer in adapter.market.search(Query(spot=True)).offers}
    assert "8H100.80S.176V/FIN-03" in demand
    assert "8H100.80S.176V/FIN-03/spot" not in spot
    assert "1A100.22V/ICE-01/spot" in spot
    assert "1A100.22V/ICE-01" not in demand
    assert not any(one.startswith(("1B300", "CPU")) for one in demand | spot)


def test_machines_without_gpus_are_offers_of_their_own_query(adapter: Adapter) -> None:
    [found] = adapter.market.search(query_of(NO_GPU, spot=False)).offers
    assert (found.offer_id, found.gpu, found.gpu_count, found.gpu_memory_gib) == ("CPU.4V.16G/FIN-03", NO_GPU, 0, None)
    assert (found.vcpu, found.ram_gib, found.gpu_known) == (4, 16, True)
    assert found.quoted_usd_hour == pytest.approx(0.028 + NVME_USD_GB_MONTH * 50 / 720)
    [spot] = adapter.market.search(query_of(NO_GPU, spot=True)).offers
    assert spot.offer_id == "CPU.4V.16G/FIN-03/spot"


def test_a_machine_without_gpus_is_rented_with_an_image_without_a_driver(place: Verda, adapter: Adapter) -> None:
    made = launcher(adapter).create(order("CPU.4V.16G/FIN-03"))
    assert place.machines[made.instance_id]["image"] == "ubuntu-24.04"
    (listed,) = launcher(adapter).list_instances()
    assert (listed.gpu, listed.gpu_count, listed.gpu_memory_gib) == (NO_GPU, 0, None)
    launcher(adapter).destroy(made.instance_id)
    assert place.volumes == {}


def test_a_price_includes_the_smallest_system_disk(adapter: Adapter) -> None:
    [found] = [offer for offer in adapter.market.search(Query()).offers if offer.offer_id == "1H100.80S.30V/FIN-03"]
    assert found.quoted_usd_hour == pytest.approx(2.29 + NVME_USD_GB_MONTH * 50 / 720)
    assert (found.quoted_disk_gb, found.disk_usd_gb_month, found.terms.least_disk_gb) == (50.0, 0.2, 50.0)
    assert (found.country, found.region) == ("FI", "FIN-03")


# --- renting ----------------------------------------------------------------------------------------------------------


def test_the_disk_and_the_start_script_end_with_the_instance(place: Verda, adapter: Adapter) -> None:
    made = launcher(adapter).create(order(onstart="echo hello", env={"TOKEN": "s3cr3t-value"}))
    assert len(place.volumes) == len(place.scripts) == 1
    launcher(adapter).destroy(made.instance_id)
    assert place.volumes == {}
    assert place.scripts == {}


def test_the_start_script_ends_with_the_next_request_if_the_answer_to_the_first_is_lost(
    place: Verda, adapter: Adapter
) -> None:
    made = launcher(adapter).create(order(onstart="echo hello"))
    launcher(adapter).list_instances()
    place.fail("PUT /instances", None, carried_out=True)
    with pytest.raises(OutcomeUnknown):
        launcher(adapter).destroy(made.instance_id)
    launcher(adapter).destroy(made.instance_id)
    assert place.scripts == {}
