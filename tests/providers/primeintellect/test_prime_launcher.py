"""Prime Intellect's launcher, with its emulator: the price guard, and earlier refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuwatch.errors import OfferGone, OrderError, OrderRefused, OutcomeUnknown, RefusalKind
from gpuwatch.ports import InstanceState, Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.testing.bench import Bench
from tests.clouds.primeintellect import PrimeIntellectServer

BENCH = Bench(name="primeintellect", place=PrimeIntellectServer, gpu="H100 PCIe")
HYPERSTACK = "hyperstack/n3-H100x1/CANADA-1/secure_cloud/1/on-demand"
RUNPOD = "runpod/NVIDIA H100 PCIe/US-KS-2/secure_cloud/1/on-demand"


@pytest.fixture
def place() -> Iterator[PrimeIntellectServer]:
    with PrimeIntellectServer() as place:
        yield place


@pytest.fixture
def adapter(place: PrimeIntellectServer) -> Iterator[Adapter]:
    with BENCH.pointed_at(place.url) as adapter:
        yield adapter


def launcher(adapter: Adapter) -> Any:
    assert adapter.launcher is not None
    return adapter.launcher


def order(offer_id: str = HYPERSTACK, **values: Any) -> Order:
    plain: dict[str, Any] = {"offer_id": offer_id, "label": "gpuwatch-abcdefgh2345", "image": "x/y", "disk_gb": 0.0}
    return Order(**(plain | values))


def sent(place: PrimeIntellectServer) -> Any:
    [request] = [one for one in place.requests if (one.method, one.path) == ("POST", "/api/v1/pods")]
    return request.body()


def test_the_price_guard_is_the_price_that_was_shown(place: PrimeIntellectServer, adapter: Adapter) -> None:
    adapter.market.search(Query())
    launcher(adapter).create(order())
    body = sent(place)
    assert (body["pod"]["maxPrice"], body["provider"]) == (1.9, {"type": "hyperstack"})
    assert (body["pod"]["cloudId"], body["pod"]["dataCenterId"], body["pod"]["socket"]) == (
        "n3-H100x1", "CANADA-1", "PCIe",
    )  # fmt: skip


def test_what_became_dearer_since_is_not_rented(place: PrimeIntellectServer, adapter: Adapter) -> None:
    adapter.market.search(Query())
    place.rows[0]["prices"]["onDemand"] = 2.4
    with pytest.raises(OrderError, match="maxPrice"):
        launcher(adapter).create(order())
    assert place.pods == {}


def test_the_disk_is_in_the_price_guard(place: PrimeIntellectServer, adapter: Adapter) -> None:
    adapter.market.search(Query())
    made = launcher(adapter).create(order(RUNPOD, disk_gb=500.0))
    pod = sent(place)["pod"]
    assert pod["diskSize"] == 500
    assert pod["maxPrice"] == pytest.approx(2.69 + 0.00014 * 500, abs=2e-4)
    assert place.pods[made.instance_id]["priceHr"] <= pod["maxPrice"]


@pytest.mark.parametrize(
    ("offer_id", "why"),
    [
        ("latitude/g3-h100-month/DAL/secure_cloud/1/on-demand", "in advance"),
        ("datacrunch/1A100.22V/FIN-01/secure_cloud/1/on-demand", "currency"),
        ("datacrunch/1A100.22V/FIN-01/secure_cloud/1/spot", "spot"),
    ],
)
def test_what_the_guard_does_not_cover_is_refused(
    place: PrimeIntellectServer, adapter: Adapter, offer_id: str, why: str
) -> None:
    with pytest.raises(OrderRefused, match=why) as refused:
        launcher(adapter).create(order(offer_id))
    assert refused.value.kind is RefusalKind.BAD_ORDER
    assert place.pods == {}


def test_a_spot_order_and_start_commands_are_refused(place: PrimeIntellectServer, adapter: Adapter) -> None:
    for wrong in (order(bid_usd_hour=1.0), order(onstart="echo x")):
        with pytest.raises(OrderRefused):
            launcher(adapter).create(wrong)
    assert place.requests == []


def test_what_is_sold_out_is_gone(place: PrimeIntellectServer, adapter: Adapter) -> None:
    place.sell_out(HYPERSTACK)
    with pytest.raises(OfferGone):
        launcher(adapter).create(order())


def test_a_pod_runs_when_it_is_active_and_installed(place: PrimeIntellectServer, adapter: Adapter) -> None:
    made = launcher(adapter).create(order())
    pod = place.pods[made.instance_id]
    for status, installed, state in (
        ("PROVISIONING", "PENDING", InstanceState.STARTING),
        ("ACTIVE", "PENDING", InstanceState.STARTING),
        ("ACTIVE", "FINISHED", InstanceState.RUNNING),
        ("ACTIVE", "ERROR", InstanceState.FAILED),
        ("ACTIVE", "TERMINATED", InstanceState.FAILED),
        ("DELETING", None, InstanceState.ENDING),
        ("UNKNOWN", None, InstanceState.UNKNOWN),
    ):
        pod.update(status=status, installationStatus=installed)
        [found] = launcher(adapter).list_instances()
        assert found.state is state
    for connection in (None, [None], ["ssh root@1.2.3.4 -p 2222"], "root@1.2.3.4 -p 2222"):
        pod["sshConnection"] = connection
        [found] = launcher(adapter).list_instances()
        assert (found.ssh_host, found.ssh_port) in ((None, None), ("1.2.3.4", 2222))


@pytest.mark.parametrize("end", [{"terminatedAt": "2026-11-21T13:00:00Z"}, {"status": "TERMINATED"}])
def test_the_end_may_stand_on_any_page_of_the_history_as_a_time_or_as_a_status(
    place: PrimeIntellectServer, adapter: Adapter, end: dict[str, str]
) -> None:
    """A pod whose end is not recognised would be stopping forever."""
    others = [{"id": f"other{number}", "terminatedAt": "2026-11-20T13:00:00Z"} for number in range(2)]
    rows = [*others, {"id": "pod-that-ended", "status": "DELETING", "terminatedAt": None} | end]
    for start in range(len(rows)):
        page = {"total_count": len(rows), "offset": start, "limit": 1, "data": rows[start : start + 1]}
        place.fail("GET /api/v1/pods/history", 200, page)
    place.fail("GET /api/v1/pods/pod-that-ended", 404, {"detail": "Pod not found"})
    assert launcher(adapter).get("pod-that-ended") is None


def test_a_404_without_the_pod_in_the_history_proves_nothing(place: PrimeIntellectServer, adapter: Adapter) -> None:
    made = launcher(adapter).create(order())
    place.fail("DELETE ", 404, {"detail": "Not found"})
    with pytest.raises(OutcomeUnknown):
        launcher(adapter).destroy(made.instance_id)
