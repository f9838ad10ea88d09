"""The daemon rents the machine whose GPUs cost least, also where the marketplace's page does not show it."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.emulator import Marketplace
from tests.process.daemon_child import Home, wait_for

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
            (launch,) = wait_for(lambda: [one for one in home.launches() if one["state"] != "intended"])
            assert (launch["watch"], launch["offer_id"]) == ("range", str(big))
            assert launch["price_usd_hour"] == 11.52
            wait_for(lambda: "watch placeless: offers at vastai state no country" in home.log())
