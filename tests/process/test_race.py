"""One watch over three markets, in the real daemon: the cheapest offer wins, and a refusal leads to the next one."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.errors import RefusalScope
from tests.clouds.aws import Ec2
from tests.contracts.benches import BENCHES
from tests.process.daemon_child import terminate, wait_for
from tests.process.test_crashes_elsewhere import Markets, ended, orders_at

THREE = ("aws", "lambda", "runpod")


@pytest.fixture
def markets(tmp_path: Path) -> Iterator[Markets]:
    with ExitStack() as stack:
        yield Markets(tmp_path, {name: stack.enter_context(BENCHES[name].place()) for name in THREE})


def orders(markets: Markets, name: str) -> list[str]:
    """Return the requests that may rent at a provider, without dry runs."""
    return [line for line in orders_at(name, markets.places[name]) if "DryRun=true" not in line]


def rented(markets: Markets) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the launch, its events, and the skipped scopes."""
    child = markets.daemon()
    try:
        wait_for(markets.known_instances)
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
    price = r"\$[0-9.]+/GPU-h"
    assert re.fullmatch(f"compared: runpod {price}, aws {price}; no answer within 3 s: lambda", compared)
    assert {name: len(orders(markets, name)) for name in THREE} == {"aws": 0, "lambda": 0, "runpod": 1}


def test_a_refusal_leads_to_the_next_provider_within_one_launch(markets: Markets) -> None:
    markets.places["runpod"].fail("POST /v2/pods", 402, b"{}", times=50)
    launch, events, scopes = rented(markets)
    assert launch["provider"] in {"aws", "lambda"}
    assert len(orders(markets, "runpod")) == len(orders(markets, launch["provider"])) == 1
    assert [(scope["provider"], scope["scope"]) for scope in scopes] == [("runpod", "account")]
    assert [event["cause"].partition(" at ")[2] for event in events if event["cause"].startswith("offer ")] == [
        launch["provider"]
    ]


def everywhere(folder: Path, places: dict[str, Any]) -> Markets:
    """AWS in two regions, RunPod and vast.ai; the decision waits for all of them, however slow the machine is."""
    markets = Markets(folder, places)
    path = folder / "gpuwatch.toml"
    text = path.read_text().replace('regions = ["us-east-1"]', 'regions = ["us-east-1", "us-west-2"]')
    path.write_text(text + '\n[launch]\ngather = "50s"\n')
    return markets


def looked_after(place: Any, order: str, look: str) -> bool:
    """Whether the instances were listed after the last order."""
    lines = [f"{request.method} {request.path}" for request in list(place.requests)]
    ordered = max((n for n, line in enumerate(lines) if re.match(order, line)), default=-1)
    return ordered >= 0 and any(re.match(look, line) for line in lines[ordered + 1 :])


@pytest.mark.slow
def test_from_quota_to_quota_to_the_next_zone_to_the_next_provider(tmp_path: Path) -> None:
    """RunPod has no credit for it, one region of AWS no vCPUs, the next zone no capacity: vast.ai rents, once."""
    runpod, ec2 = BENCHES["runpod"].place(), Ec2(page=7)
    with runpod, ec2, Marketplace(size=1, odd_rows=False, delays=Delays(0.0, 0.0, 0.0, 0.0)) as vast:
        for row in vast.offers():
            vast.withdraw(row["id"])
        vast.publish(gpu="RTX 4090", count=1, usd_hour=5.0)
        runpod.fail("POST /v2/pods", 402, b"{}", times=50)
        ec2.account.quotas["us-east-1", "L-DB2E81BA"] = 0.0
        ec2.sell_out("us-west-2a", "g4dn.xlarge")
        places = {"aws": ec2, "runpod": runpod, "vastai": vast}
        markets = everywhere(tmp_path, places)
        asked = {"aws": ("POST /RunInstances", "POST /DescribeInstances"), "runpod": ("POST /v2/pods", "GET /v2/pods")}
        assert markets.home.run("pause").returncode == 0
        child = markets.daemon()
        try:  # a slow machine has not checked the prerequisites of AWS when the first offers come: nothing rents before
            wait_for(lambda: looked_after(ec2, "POST /RunInstances", "POST /DescribeInstances"))
            time.sleep(3.0)
            assert markets.home.run("resume").returncode == 0
            wait_for(markets.known_instances)
            wait_for(lambda: all(looked_after(places[name], *lines) for name, lines in asked.items()))
            launch = markets.launch()
            terminate(child)
        finally:
            ended(child)
        assert launch["provider"] == "vastai"
        assert (len(orders(markets, "runpod")), len(orders(markets, "aws"))) == (1, 2)
        made = {"aws": ec2.instances, "runpod": runpod.pods, "vastai": vast.instances()}
        assert {name: len(found) for name, found in made.items()} == {"aws": 0, "runpod": 0, "vastai": 1}
        scopes = json.loads(markets.home.run("machines", "--scopes", "--json").stdout)
        assert sorted((scope["provider"], scope["scope"]) for scope in scopes) == [
            ("aws", RefusalScope.OFFER.value),
            ("aws", RefusalScope.REGION_FAMILY.value),
            ("runpod", RefusalScope.ACCOUNT.value),
        ], scopes
        shown = markets.home.run("machines", "--scopes").stdout
        assert "us-east-1 G" in shown
        events = json.loads(markets.home.run("launches", "show", launch["launch_id"], "--json").stdout)
        tried = [event["cause"] for event in events if event["cause"].startswith("offer ")]
        assert [one.partition(" at ")[2] for one in tried] == ["aws", "", "vastai"], "the second at the same provider"
        assert "us-west-2a" in tried[1]
