"""The real daemon stops a machine at an EC2 with its disk kept, and starts it again when there is capacity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.clouds.aws import Ec2
from tests.clouds.aws_account import KEY_PAIR, SSH_GROUP, Ec2Account
from tests.process.audit import launches
from tests.process.daemon_child import Home, terminate, wait_for

pytestmark = pytest.mark.slow

SETTINGS = """
dry_run = false
database_url = "{database_url}"
[budget]
max_usd_hour = 20
[providers.vastai]
enabled = false
[providers.aws]
base_url = "{url}"
api_key = "demo-key:demo-secret"
poll_every = "1s"
sweep_every = "1s"
options.regions = ["us-east-1"]
options.list_regions = ["us-east-1"]
options.key_name = "{key}"
options.security_groups = ["us-east-1={group}"]
[[watch]]
name = "a10g"
gpu = ["A10G"]
max_price = 2.0
action = "launch"
providers = ["aws"]
[watch.launch]
max_runtime = "2h"
"""


def test_it_stops_waits_for_capacity_and_runs_again(tmp_path: Path) -> None:
    with Ec2(account=Ec2Account()) as place:
        home = Home(tmp_path, place.url)
        text = SETTINGS.format(database_url=home.database_url, url=place.url, key=KEY_PAIR, group=SSH_GROUP)
        (tmp_path / "gpuwatch.toml").write_text(text)

        def row() -> dict[str, Any]:
            return dict(launches(home.database_url)[0])

        def ec2_states() -> list[str]:
            return [one["state"] for one in place.instances.values()]

        with home.daemon() as child:
            wait_for(lambda: home.states() == ["running"])
            launch_id = row()["launch_id"]
            done = home.run("launches", "stop", launch_id, "--keep-disk", "--for", "2d")
            assert done.returncode == 0, done.stderr
            assert ec2_states() == ["stopped"]
            (shown,) = home.launches()
            assert (shown["state"], shown["disk_kept"]) == ("running", "stopped")
            assert shown["disk_usd_day"] == pytest.approx(24 * 100 * 0.08 / 720, rel=0.01)
            sold = next(iter(place.instances.values()))["sold"]
            place.sell_out(sold.zone, sold.type)
            done = home.run("launches", "start", launch_id, GPUWATCH_TEST_PACE="20")
            assert done.returncode == 3, done.stderr
            wait_for(lambda: "its GPUs are rented to another" in home.run("alerts").stdout, every_s=0.5)
            assert ec2_states() == ["stopped"]
            with place.lock:
                place.sold_out.clear()
            wait_for(lambda: home.launches()[0]["disk_kept"] is None, every_s=0.5)
            assert ec2_states() == ["running"]
            assert home.run("launches", "stop", launch_id).returncode == 0
            assert ec2_states() == ["shutting-down"]
            assert terminate(child)[0] == 0
