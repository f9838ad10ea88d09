"""The real daemon at a cloud with a missing prerequisite: nothing is ordered, one alert is sent, a fix clears it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clouds.aws import Ec2
from tests.clouds.aws_account import KEY_PAIR, SSH_GROUP, Ec2Account
from tests.process.daemon_child import Home, wait_for

QUOTA = ("us-east-1", "L-DB2E81BA")
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
options.regions = ["us-east-1"]
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


@pytest.fixture
def ec2() -> Iterator[Ec2]:
    with Ec2(account=Ec2Account()) as place:
        yield place


def news(home: Home, kind: str) -> list[str]:
    found = json.loads(home.run("alerts", "--kind", kind, "--json").stdout or "[]")  # no database yet
    return [one["headline"] for one in found if one["subject"] == "aws"]


def searches(place: Ec2) -> int:
    return sum(request.path == "/DescribeInstanceTypeOfferings" for request in tuple(place.requests))


def test_nothing_is_ordered_while_a_quota_is_missing_and_a_mend_clears_it(ec2: Ec2, tmp_path: Path) -> None:
    home = Home(tmp_path, ec2.url)
    text = SETTINGS.format(database_url=home.database_url, url=ec2.url, key=KEY_PAIR, group=SSH_GROUP)
    (tmp_path / "gpuwatch.toml").write_text(text)
    ec2.account.quotas[QUOTA] = 0.0
    for _ in range(2):  # a restart reports nothing twice
        with home.daemon():
            wait_for(lambda: news(home, "refused"), every_s=0.5)
            before = searches(ec2)
            wait_for(lambda before=before: searches(ec2) > before + 3)
    assert news(home, "refused") == ["gpuwatch does not rent at aws: 1 prerequisite missing"]
    assert ec2.instances == {}
    ec2.account.quotas[QUOTA] = 100.0
    with home.daemon():
        wait_for(lambda: ec2.instances)
    assert len(news(home, "recovered")) == 1
    assert len(ec2.instances) == 1
