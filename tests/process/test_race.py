"""One watch over three markets, by the real daemon: the cheapest of all wins, and a refusal leads to the next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.benches import BENCHES
from tests.process.daemon_child import terminate, wait_for
from tests.process.test_crashes_elsewhere import Markets, ended, orders_at
from tests.providers.aws.aws_bench import refusal

THREE = ("aws", "lambda", "runpod")


@pytest.fixture
def markets(tmp_path: Path) -> Iterator[Markets]:
    with ExitStack() as stack:
        yield Markets(tmp_path, {name: stack.enter_context(BENCHES[name].place()) for name in THREE})


def rented(markets: Markets) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """The launch, its events, and what is skipped."""
    child = markets.daemon()
    try:
        wait_for(lambda: markets.home.launches() and markets.launch()["instance_id"], within_s=50.0)
        launch = markets.launch()
        terminate(child)
    finally:
        ended(child)
    events = json.loads(markets.home.run("launches", "show", launch["launch_id"], "--json").stdout)
    return launch, events, json.loads(markets.home.run("machines", "--scopes", "--json").stdout)


def test_the_cheapest_of_three_wins_while_one_hangs(markets: Markets) -> None:
    markets.places["lambda"].fail("", 200, b"{}", times=500, delay_s=60.0)
    launch, events, _ = rented(markets)
    assert launch["provider"] == "runpod"
    compared = events[0]["provider_words"]
    assert re.fullmatch(r"compared: runpod [0-9.]+, aws [0-9.]+ \$/GPU-h; no answer within 3 s: lambda", compared)
    assert markets.orders() == 1


def test_a_refusal_leads_to_the_next_zone_and_then_to_the_next_provider(markets: Markets) -> None:
    """One launch: a missing subnet skips its zone, a quota its region and family, and the next provider rents."""
    settings = markets.home.folder / "gpuwatch.toml"
    settings.write_text(settings.read_text().replace("max_price = 100.0", "max_price = 100.0\ndatacenter = true"))
    aws = markets.places["aws"]
    aws.fail("POST /RunInstances", 400, refusal("MissingInput", "No default subnet for availability zone"))
    aws.fail("POST /RunInstances", 400, refusal("VcpuLimitExceeded", "0 vCPUs"), times=50)
    launch, events, scopes = rented(markets)
    zones = [re.findall("AvailabilityZone=([a-z0-9-]+)", line)[0] for line in orders_at("aws", aws)]
    assert zones == ["us-east-1a", "us-east-1b"]
    assert (launch["provider"], len(orders_at("runpod", markets.places["runpod"]))) == ("runpod", 1)
    assert {one["scope"]: one["key"] for one in scopes} == {
        "zone": "us-east-1a",
        "region_family": "us-east-1 G on demand",
    }
    said = [one["provider_words"] or "" for one in events]
    assert [code for text in said for code in re.findall("MissingInput|VcpuLimitExceeded", text)] == [
        "MissingInput",
        "VcpuLimitExceeded",
    ]
