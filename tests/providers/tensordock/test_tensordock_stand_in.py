"""The stand-in refuses what TensorDock refuses, and gpuwatch's settings leave the provider disabled by default."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuwatch.errors import OfferGone
from gpuwatch.ports import Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.settings import load
from gpuwatch.testing.market import MarketSuite
from gpuwatch.testing.suite import case
from tests.clouds.tensordock import TensorDock
from tests.providers.tensordock.stand_in import BENCH, HOSTS, order


class TestHostnodes(MarketSuite):
    """Single hosts obey the same rules as locations."""

    bench = HOSTS


def wanted(place: TensorDock) -> dict[str, Any]:
    return {
        "name": "a",
        "type": "virtualmachine",
        "image": "ubuntu2404",
        "location_id": place.locations[0]["id"],
        "resources": {"vcpu_count": 8, "ram_gb": 32, "storage_gb": 100, "gpus": {"h100-sxm5-80gb": {"count": 1}}},
        "port_forwards": [{"internal_port": 22, "external_port": 22}],
        "ssh_key": "ssh-ed25519 AAAA",
    }


def asked(place: TensorDock, attributes: Any) -> Any:
    body = {"data": {"type": "virtualmachine", "attributes": attributes}}
    headers = {"Authorization": f"Bearer {place.key}"}
    answer = httpx.post(f"{place.url}/api/v2/instances", json=body, headers=headers, timeout=10, trust_env=False)
    return answer.status_code, answer.json()


def test_a_create_that_is_wrong_is_refused_by_the_stand_in() -> None:
    cases: list[Any] = [
        ("name", "", "Name is required"),
        ("image", "x/y", "Invalid image"),
        ("location_id", "here", "Invalid location_id format"),
        ("hostnode_id", "8dd95ff0-0000-4000-8000-000000000001", "Either location_id or hostnode_id"),
        ("resources.vcpu_count", 7, "vcpu_count must be even"),
        ("resources.ram_gb", 31, "ram_gb must be even"),
        ("resources.storage_gb", 99, "storage_gb must be at least 100"),
        ("resources.gpus", {}, "At least one GPU is required"),
        ("ssh_key", None, "SSH key is required"),
        ("port_forwards", [], "SSH port (22) must be forwarded for Ubuntu VMs"),
    ]
    for key, value, says in cases:
        with case((key, value, says)):
            with TensorDock() as place:
                good = wanted(place)
                assert asked(place, deepcopy(good))[0] == 200
                inner = good["resources"] if key.startswith("resources.") else good
                inner[key.rpartition(".")[2]] = value
                status, reported = asked(place, good)
            assert (status, says in str(reported)) == (400, True)


def rented(adapter: Adapter) -> str:
    assert adapter.launcher is not None
    offer = adapter.market.search(Query(gpus=("RTX 4090",))).offers[0]
    return adapter.launcher.create(order(offer.offer_id)).instance_id


def test_stock_is_false_as_often_as_reported() -> None:
    good = 0
    with TensorDock() as place, BENCH.pointed_at(place.url) as adapter:
        place.false_rate = 0.7
        for _ in range(40):
            try:
                place.delete(None, rented(adapter))  # type: ignore[arg-type]  # it looks at no request
                good += 1
            except OfferGone:
                place.locations[1]["gpus"][0]["max_count"] = 4
    assert 4 <= good <= 20


@pytest.mark.parametrize(("text", "is_on"), [("", True), ("[providers.tensordock]\nenabled = false\n", False)])
def test_a_token_switches_it_on_as_everywhere(tmp_path: Path, text: str, is_on: bool) -> None:
    (tmp_path / "gpuwatch.toml").write_text(text)
    settings = load(env={"TENSORDOCK_API_TOKEN": "abc"}, cwd=tmp_path)
    assert ("tensordock" in settings.providers) is is_on
    assert not is_on or settings.providers["tensordock"].revealed().api_key == "abc"
