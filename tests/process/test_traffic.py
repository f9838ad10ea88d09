"""Traffic decides which machine the real daemon rents, and stands in its alert and JSON, never in what it is billed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, terminate, wait_for

WATCH = """
[[watch]]
name = "download"
gpu = ["RTX 4090"]
max_price = 2
download_gb = 100
upload_gb = 10
action = "launch"

[watch.launch]
max_runtime = "4h"
max_total = 5
"""


def test_the_offer_that_is_cheaper_with_its_traffic_is_rented(tmp_path: Path) -> None:
    with Marketplace(seed=5, key="demo-key", size=0, odd_rows=False, delays=Delays(running_s=0.1)) as market:
        market.publish(gpu="RTX 4090", usd_hour=0.40, inet_down_cost=0.03, inet_up_cost=0.0)
        wanted = market.publish(gpu="RTX 4090", usd_hour=0.60, inet_down_cost=0.001, inet_up_cost=0.002)
        home = Home(tmp_path, market.url, extra=WATCH)
        with home.daemon() as child:
            wait_for(lambda: "running" in home.states())
            (launch,) = home.launches()
            (alert,) = [one for one in json.loads(home.run("alerts", "--json").stdout) if one["kind"] == "match"]
            checked = json.loads(home.run("check", "download", "--json").stdout)
            assert terminate(child)[0] == 0
    assert (launch["offer_id"], len(market.ledger.creates)) == (str(wanted), 1)
    assert launch["price_usd_hour"] == pytest.approx(0.72)  # billed by time: without it
    assert alert["headline"].endswith("$0.75/GPU-h, traffic $0.03 of it"), alert  # (0.1 + 0.02) / 4 h
    assert alert["facts"]["Traffic"].startswith("$0.12 listed for one launch (100 GB down, 10 GB up), $0.03/h of")
    assert [one["price_usd_hour"] for one in alert["offers"]] == ["0.75", "1.23"]
    (left,) = checked["watches"][0]["offers"]
    assert (left["price_usd_hour"], left["traffic_usd_hour"]) == (1.23, 0.75)
