"""A spot machine of AWS that is marked to be taken back: the real daemon says so once, and rents elsewhere after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.clouds.aws import Ec2
from tests.contracts.benches import BENCHES
from tests.process.daemon_child import Home, terminate, wait_for
from tests.process.test_crashes_elsewhere import section

SETTINGS = """
dry_run = false
database_url = "{database_url}"

[budget]
max_usd_hour = 100.0

[providers.vastai]
enabled = false

{section}
[[watch]]
name = "spot"
gpu = ["T4"]
max_price = 10.0
action = "launch"
spot = "only"

[watch.launch]
onstart = "true"
max_runtime = "1h"
max_total = 1
relaunch = true
"""
HEADLINE = "spot: its provider takes the machine back in 2 min"


def test_a_notice_is_said_once_everywhere_and_the_watch_rents_elsewhere_after_it(tmp_path: Path) -> None:
    place = BENCHES["aws"].place()
    assert isinstance(place, Ec2)
    with place:
        home = Home(tmp_path, "")
        text = SETTINGS.format(database_url=home.database_url, section=section("aws", place.url))
        (tmp_path / "gpuwatch.toml").write_text(text)

        def notice() -> dict[str, Any] | None:
            return home.launches()[0]["interruption"]  # type: ignore[no-any-return]

        def alerts() -> list[dict[str, Any]]:
            found = json.loads(home.run("alerts", "--json").stdout)
            return [one for one in found if "takes the machine back" in one["headline"]]

        with home.daemon() as child:
            wait_for(lambda: "running" in home.states())
            (instance_id,) = place.instances
            place.mark(instance_id)
            wait_for(notice)
            found = notice()
            assert terminate(child)[0] == 0
        assert found is not None
        assert (found["kind"], found["at"] > found["noticed_at"]) == ("terminate", True)
        shown = home.run("launches", "list")
        assert "its provider takes the machine back at" in shown.stderr
        assert "taken back soon" in shown.stdout
        place.mark(instance_id, at_s=0.0)  # a time in the past, after the restart
        with home.daemon() as child:
            wait_for(lambda: place.count("DescribeSpotInstanceRequests") > 3)
            place.interrupt(instance_id)
            wait_for(lambda: len(place.instances) == 2)
            wait_for(lambda: sorted(home.states()) == ["ended", "running"])
            assert terminate(child)[0] == 0
        ended = next(one for one in home.launches() if one["state"] == "ended")
        assert ended["end_reason"].startswith("taken back by its provider")
        (alert,) = alerts()
        assert alert["severity"] == "critical"
        assert alert["headline"] in (HEADLINE, HEADLINE.replace("2 min", "1 min"))
        assert alert["did"] == "When it is gone, its watch rents elsewhere (launch.relaunch = true)."
