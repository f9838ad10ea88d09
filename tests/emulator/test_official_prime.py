"""Prime Intellect's own command line with the emulator: a real client understands its answers.

It lives in an environment of its own (`make test` makes `.venv-official`); GPUWATCH_OFFICIAL_PRIME names another.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.ports import Query
from gpuwatch.testing.bench import Bench
from tests.checkout import ROOT
from tests.clouds.primeintellect import PrimeIntellectServer, market

CLIENT = os.environ.get("GPUWATCH_OFFICIAL_PRIME") or shutil.which("prime", path=ROOT / ".venv-official" / "bin")

pytestmark = pytest.mark.skipif(
    CLIENT is None, reason="no official client: run `make test`, or set GPUWATCH_OFFICIAL_PRIME"
)
Run = Callable[..., Any]


@pytest.fixture
def place() -> Iterator[PrimeIntellectServer]:
    with PrimeIntellectServer() as place:
        yield place


@pytest.fixture
def prime(place: PrimeIntellectServer, tmp_path: Path) -> Run:
    """Run the command line with a home folder of its own."""

    def run(*words: str, key: str = "demo-key") -> subprocess.CompletedProcess[str]:
        home = {"HOME": str(tmp_path), "PRIME_DISABLE_VERSION_CHECK": "1", "COLUMNS": "200", "NO_COLOR": "1"}
        environment = {"PATH": os.environ["PATH"], "PRIME_API_KEY": key, "PRIME_API_BASE_URL": place.url} | home
        command = [str(CLIENT), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)

    return run


def test_the_vendors_client_reads_the_same_list_as_gpuwatch(place: PrimeIntellectServer, prime: Run) -> None:
    place.page_rows = 5  # the client follows pages, too
    done = prime("availability", "list", "--no-group-similar", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = {
        (one["cloud_id"], one["gpu_count"], bool(one["is_spot"]), one["price_value"])
        for one in json.loads(done.stdout)["gpu_resources"]
    }
    assert shown <= {(one["cloudId"], one["gpuCount"], bool(one["isSpot"]), _price(one)) for one in market()}
    with Bench(name="primeintellect", place=PrimeIntellectServer, gpu="H100 PCIe").pointed_at(place.url) as adapter:
        offers = [*adapter.market.search(Query()).offers, *adapter.market.search(Query(spot=True)).offers]
    ours = {(offer.terms.instance_type, offer.gpu_count) for offer in offers}
    assert len(ours) >= 7
    assert ours <= {one[:2] for one in shown}


def test_the_vendors_client_is_refused_with_a_wrong_key(prime: Run) -> None:
    done = prime("availability", "list", "--output", "json", key="wrong")
    assert "unauthorized" in (done.stdout + done.stderr).lower()


def test_the_vendors_client_rents_a_pod_and_ends_it(prime: Run) -> None:
    words = ("--cloud-id", "n3-H100x1", "--gpu-type", "H100_80GB", "--gpu-count", "1", "--name", "mine")
    size = ("--disk-size", "100", "--vcpus", "180", "--memory", "180", "--image", "ubuntu_22_cuda_12")
    done = prime("pods", "create", *words, *size, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    listed = json.loads(prime("pods", "list", "--output", "json").stdout)
    assert [(one["id"], one["name"]) for one in listed["pods"]] == [("pod1", "mine")]
    assert json.loads(prime("pods", "status", "pod1", "--output", "json").stdout)["id"] == "pod1"
    assert prime("pods", "terminate", "pod1", "--yes").returncode == 0
    assert json.loads(prime("pods", "list", "--output", "json").stdout)["pods"] == []
    assert "mine" in prime("pods", "history", "--output", "json").stdout


def test_the_vendors_client_shows_whose_key_it_is(prime: Run) -> None:
    done = prime("whoami")
    assert "renter@example.org" in done.stdout
    assert prime("teams", "list").returncode == 0


def _price(row: dict[str, Any]) -> float:
    prices = row["prices"]
    return float(prices["onDemand"] if prices["communityPrice"] is None else prices["communityPrice"])
