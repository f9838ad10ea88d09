"""A watch with `spot = "first"`: its wait is said everywhere, outlives the daemon, and ends in one machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuwatch.emulator import Marketplace
from tests.process.daemon_child import Home, terminate, wait_for

WATCH = """
[[watch]]
name = "{name}"
gpu = ["{gpu}"]
max_price = 2
action = "launch"
spot = "first"
spot_for = "{spot_for}"

[watch.launch]
max_runtime = "1h"
max_total = 1
"""
JOB = """
command = "true"
hours = 0.1
deadline = "1100s"
resources = { gpu = "A100", spot = "first" }
limit = { max_price = 2 }
"""  # 12 minutes to start and 6 of work: the wait ends 20 seconds after it was submitted


def test_the_wait_is_said_outlives_the_daemon_and_ends_with_the_spot_offer_or_with_its_time(tmp_path: Path) -> None:
    with Marketplace(seed=1, key="demo-key", size=1, odd_rows=False) as market:
        for row in market.offers():
            market.withdraw(row["id"])
        patient, hasty = (
            market.publish(gpu=gpu, count=1, usd_hour=1.20, min_bid=5.0) for gpu in ("A100 SXM4", "RTX 4090")
        )
        watches = WATCH.format(name="patient", gpu="A100", spot_for="3h")
        watches += WATCH.format(name="hasty", gpu="RTX 4090", spot_for="2s")
        home = Home(tmp_path, market.url, extra=watches)

        def shown() -> dict[str, Any]:
            found = json.loads(home.run("watches", "--json").stdout)
            (watch,) = [one for one in found if one["name"] == "patient"]
            return watch if watch["blocked_by"] == "waits_for_spot" else {}

        with home.daemon() as child:
            waits = wait_for(shown)
            wait_for(lambda: "running" in home.states())
            assert terminate(child)[0] == 0
        assert waits["blocked_reason"].startswith("Waits for a spot offer until 20")
        (launch,) = home.launches()
        assert (launch["watch"], launch["offer_id"]) == ("hasty", str(hasty))
        with home.daemon() as child:
            wait_for(lambda: shown()["last_poll_at"] > waits["last_poll_at"])
            assert shown()["blocked_reason"] == waits["blocked_reason"], "the clock did not begin anew"
            market.reprice(patient, min_bid=1.0)
            wait_for(lambda: home.states().count("running") == 2)
            (rented,) = [row["id"] for row in market.instances() if row["is_bid"]]
            market.befall(rented, "differs", min_bid=3.0)
            wait_for(lambda: "somebody bids more for its machine" in home.run("alerts", "--json").stdout)
            assert terminate(child)[0] == 0
        spot = {row["is_bid"] for row in market.instances() if row["machine_id"]}
        assert spot == {True, False}
        assert len(market.ledger.creates) == 2


def test_a_job_waits_for_spot_until_its_deadline_needs_a_machine_on_demand(tmp_path: Path) -> None:
    with Marketplace(seed=1, key="demo-key", size=1, odd_rows=False) as market:
        for row in market.offers():
            market.withdraw(row["id"])
        market.publish(gpu="A100 SXM4", count=1, usd_hour=1.20, min_bid=5.0)
        home = Home(tmp_path, market.url)
        (tmp_path / "train.toml").write_text(JOB)
        with home.daemon() as child:
            assert home.run("jobs", "submit", "train.toml").returncode == 0
            planned = wait_for(lambda: json.loads(home.run("jobs", "plan", "--json").stdout)["jobs"])[0]
            assert planned["spot_first"]["until"] < planned["latest_start"]
            (launch,) = wait_for(home.launches)
            wait_for(lambda: "running" in home.states())
            assert terminate(child)[0] == 0
        assert launch["watch"] == "job:train"
        assert launch["requested_at"] >= planned["spot_first"]["until"]
        (instance,) = market.instances()
        assert not instance["is_bid"]
