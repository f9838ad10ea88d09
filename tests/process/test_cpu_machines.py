"""The real daemon finds, rents and ends a machine without GPUs, and no GPU's figures know of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.audit import rows
from tests.process.daemon_child import Home, terminate, wait_for

PREPARE = """
[[watch]]
name = "prepare"
gpu = "none"
min_vcpu = 8
min_ram_gib = 32
max_price = 0.10
action = "launch"

[watch.launch]
max_runtime = "1h"
max_total = 1
"""


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=0, delays=Delays(running_s=0.1)) as opened:
        yield opened


def publish(market: Marketplace, usd_hour: float, vcpu: float, ram_gib: float) -> int:
    return market.publish(gpu="none", usd_hour=usd_hour, cpu_cores_effective=vcpu, cpu_ram=int(ram_gib * 1024))


def wanted_counts(market: Marketplace) -> list[object]:
    """Return the numbers of GPUs that the searches asked for."""
    searches = [one.sent["q"] for one in market.requests if "q" in (one.sent or {})]
    return [query.get("num_gpus") for query in searches]


def test_it_is_rented_under_its_limit_per_hour_and_is_in_no_figure_of_gpus(market: Marketplace, tmp_path: Path) -> None:
    publish(market, 0.02, 4, 64)
    publish(market, 0.03, 16, 16)
    wanted = publish(market, 0.06, 16, 64)
    publish(market, 0.09, 16, 64)
    market.publish(gpu="RTX 4090", usd_hour=0.05)
    home = Home(tmp_path, market.url, extra=PREPARE)
    with home.daemon() as child:
        wait_for(lambda: "running" in home.states())
        (launch,) = home.launches()
        assert (launch["offer_id"], launch["gpu"], launch["gpu_count"]) == (str(wanted), "none", 0)
        assert launch["price_usd_hour"] == pytest.approx(0.072)
        assert "no GPU" in home.run("launches").stdout
        assert "prepare: a machine without GPUs at $0.07/h" in home.run("alerts").stdout
        offers = home.run("offers", "--gpu", "none").stdout
        assert "no GPU, 16 vCPU, 64 GiB" in offers
        assert "$0.108/h" in offers
        assert "GPU-h" not in offers
        prepare = json.loads(home.run("watches", "prepare", "--json").stdout)
        assert prepare[0]["unchecked"] == []  # their sizes are recorded: those that are too small do not match
        assert "Nothing is recorded of this time." in home.run("watches", "prepare").stdout  # not "0 of 1 hours"
        wait_for(lambda: rows(home.database_url, "SELECT * FROM utilisation_sample"))
        assert not rows(home.database_url, "SELECT * FROM utilisation_sample WHERE percent IS NOT NULL")
        assert "none" not in [one["gpu"] for one in json.loads(home.run("market", "--json").stdout)["gpus"]]
        assert home.run("launches", "stop", launch["launch_id"], "--yes").returncode == 0
        wait_for(lambda: home.states() == ["ended"])
        assert terminate(child)[0] == 0
    assert "GPU-h" not in json.dumps(prepare)
    assert {"eq": 0} in wanted_counts(market)
    assert len(market.ledger.creates) == 1


def test_without_such_a_watch_nothing_is_asked_about_them(market: Marketplace, tmp_path: Path) -> None:
    publish(market, 0.02, 64, 256)
    home = Home(tmp_path, market.url, action="alert")
    with home.daemon() as child:
        wait_for(lambda: len(wanted_counts(market)) > 3)
        assert terminate(child)[0] == 0
    assert {"eq": 0} not in wanted_counts(market)
    assert not market.ledger.creates
