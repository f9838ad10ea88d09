"""The daemon rents the machine with the cheapest GPUs, even if the marketplace's page does not show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuwatch.emulator import Marketplace
from tests.process.daemon_child import Home, bargain, terminate, wait_for

RANGE = """
[[watch]]
name = "range"
gpu = ["A100"]
gpu_count = { min = 1, max = 8 }
max_price = 3
action = "launch"

[watch.launch]
max_runtime = "1h"
"""
ELSEWHERE = '[[watch]]\nname = "placeless"\ngpu = ["A100"]\ngpu_count = 8\nmax_price = 3\nregions = ["EU"]\n'


def test_a_page_of_single_gpus_does_not_hide_the_machine_of_eight(tmp_path: Path) -> None:
    with Marketplace(seed=1, key="demo-key", size=8, odd_rows=False) as market:
        for row in market.offers():
            market.withdraw(row["id"])
        for number in range(64):
            market.publish(gpu="A100 SXM4", count=1, usd_hour=1.50 + number / 10_000)
        big = market.publish(gpu="A100 SXM4", count=8, usd_hour=9.60)
        market.publish(gpu="A100 SXM4", count=8, usd_hour=16.0, geolocation="")
        home = Home(tmp_path, market.url, extra=RANGE + ELSEWHERE)
        with home.daemon():
            wait_for(lambda: set(home.states()) - {"intended"})
            (launch,) = home.launches()
            assert (launch["watch"], launch["offer_id"]) == ("range", str(big))
            assert launch["price_usd_hour"] == 11.52
            wait_for(lambda: "watch placeless: offers at vastai state no country" in home.log())


def test_that_moving_would_pay_is_one_alert_and_nothing_moves(tmp_path: Path) -> None:
    with Marketplace(seed=1, key="demo-key", size=1, odd_rows=False) as market:
        home = Home(tmp_path, market.url)
        path = tmp_path / "gpuwatch.toml"
        relocate = 'relocate = { min_saving = "15%", after = "0s" }\n\n[watch.launch]'
        path.write_text(path.read_text().replace("[watch.launch]", relocate))
        bargain(market, 1.8)

        def findings() -> list[dict[str, Any]]:
            shown = json.loads(home.run("alerts", "--json").stdout or "[]")
            return [one for one in shown if "moving it to vastai would save" in one["headline"]]

        with home.daemon() as child:
            wait_for(lambda: "running" in home.states())
            cheap = bargain(market, 0.9)
            (found,) = wait_for(findings)
            assert "moving it to vastai would save" in home.run("launches").stderr
            (launch,) = home.launches()
            assert launch["relocation"]["facts"] == found["facts"]
            assert "would save" in launch["relocation"]["headline"]
            assert terminate(child)[0] == 0
        assert found["facts"]["Offer"].startswith(f"{cheap} at vastai, machine ")
        assert len(market.ledger.creates) == 1
        assert len(market.instances()) == 1
        assert len(findings()) == 1
