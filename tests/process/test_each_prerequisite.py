"""One real daemon, at clouds with one missing prerequisite after the other: nothing is ordered in any case.

The accounts are changed while it runs: each next fault is created before the previous one is fixed, so that something
is missing in every check, and each is then seen alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.engine.launches.renting.prerequisite_gate import RENTING
from gpuwatch.ports.prerequisites import PrerequisiteName
from gpuwatch.storage.market.provider_holds import CommandHolds
from tests.clouds.aws import Ec2
from tests.clouds.aws_account import KEY_PAIR, SSH_GROUP, Ec2Account
from tests.clouds.runpod import RunPod
from tests.process.audit import launches
from tests.process.daemon_child import Home, wait_for
from tests.process.test_crashes_elsewhere import orders_at
from tests.providers.runpod.bench import PLENTY

N = PrerequisiteName
SETTINGS = """
dry_run = false
database_url = "{database_url}"
[budget]
max_usd_hour = 100
[providers.vastai]
base_url = "{vastai}"
api_key = "demo-key"
poll_every = "1s"
search_interval = "0.05s"
[providers.aws]
base_url = "{aws}"
api_key = "demo-key:demo-secret"
poll_every = "1s"
search_interval = "0.1s"
options.regions = ["us-east-1"]
options.key_name = "{key}"
options.security_groups = ["us-east-1={group}"]
[providers.runpod]
base_url = "{runpod}"
api_key = "demo-key"
poll_every = "1s"
search_interval = "0.1s"
options.registry_id = "cred1"
[[watch]]
name = "spot"
gpu = ["A10G", "H100"]
spot = "only"
max_price = 50.0
action = "launch"
providers = ["aws", "vastai"]
launch = {{ max_runtime = "20h", ready_within = "10h", max_active = 2, max_total = 2 }}
[[watch]]
name = "pods"
gpu = ["RTX 4090", "H200"]
max_price = 50.0
action = "launch"
providers = ["runpod", "vastai"]
launch = {{ max_runtime = "20h", ready_within = "10h", max_active = 2, max_total = 2 }}
"""
ZONES = {"us-east-1a", "us-east-1b"}
SPOT_QUOTA = ("us-east-1", "L-3819A6DF")


class Lack(NamedTuple):
    """A prerequisite that an account can lack, and the daemon's text about it."""

    name: PrerequisiteName
    mend: str
    take: Callable[[Any], Any]
    give: Callable[[Any], Any]


class Clouds(NamedTuple):
    aws: Ec2
    runpod: RunPod
    vastai: Marketplace


def rights(action: str) -> tuple[Callable[[Ec2], Any], Callable[[Ec2], Any]]:
    return lambda one: one.account.rights.add(action), lambda one: one.account.rights.discard(action)


def value(place: Callable[[Any], Any], name: str, missing: Any, there: Any) -> tuple[Callable[[Any], Any], ...]:
    return lambda one: setattr(place(one), name, missing), lambda one: setattr(place(one), name, there)


def of_account(one: Ec2) -> Ec2Account:
    return one.account


def itself(one: Any) -> Any:
    return one


AWS = [
    Lack(N.CREDENTIALS, "renew the key", *value(itself, "key", "another", "demo-key")),
    Lack(N.KEY_PAIR, "import-key-pair --region us-east-1", *value(of_account, "key_pairs", set(), {KEY_PAIR})),
    Lack(N.NETWORK, "create-default-subnet", *value(of_account, "zones_without_subnet", ZONES, set())),
    Lack(N.IMAGE, "fix options.image", *value(of_account, "parameters_missing", True, False)),
    Lack(N.NETWORK, 'options.public_ip = "yes"', *value(of_account, "private_zones", ZONES, set())),
    Lack(N.QUOTA, "quota L-3819A6DF in us-east-1", *value(of_account, "quotas", {SPOT_QUOTA: 0.0}, {})),
    Lack(N.REGION, "enable us-east-1", *value(of_account, "disabled_regions", {"us-east-1"}, set())),
    Lack(N.TERMS, "create-service-linked-role", *value(of_account, "has_spot_role", False, True)),
    Lack(N.ORDER, "policy", *rights("RunInstances")),
]  # fmt: skip
RUNPOD = [
    Lack(N.CREDENTIALS, "renew the key", *value(itself, "key", "another", "demo-key")),
    Lack(N.BALANCE, "add credit", *value(itself, "credit", 0.0, 100.0)),
    Lack(N.KEY_PAIR, "add one in RunPod's settings", *value(itself, "ssh_key", "", "ssh-ed25519 AAAA me")),
    Lack(N.IMAGE, "options.registry_id", *value(itself, "registries", {}, {"cred1": "mine"})),
]
LACKS = {"aws": AWS, "runpod": RUNPOD}


@pytest.fixture
def clouds() -> Iterator[Clouds]:
    with ExitStack() as stack:
        vast = stack.enter_context(Marketplace(size=1, odd_rows=False, delays=Delays(0.0, 0.0, 0.0, 0.0)))
        for row in vast.offers():
            vast.withdraw(row["id"])
        vast.publish(gpu="H100 SXM", count=1, usd_hour=9.0, min_bid=8.0)
        vast.publish(gpu="H200", count=1, usd_hour=9.0)
        aws, runpod = Ec2(account=Ec2Account()), RunPod(quotas=PLENTY)
        runpod.registries = {"cred1": "mine"}
        yield Clouds(stack.enter_context(aws), stack.enter_context(runpod), vast)


@pytest.fixture
def home(clouds: Clouds, tmp_path: Path) -> Home:
    made = Home(tmp_path, "")
    urls = {name: getattr(clouds, name).url for name in Clouds._fields}
    text = SETTINGS.format(database_url=made.database_url, key=KEY_PAIR, group=SSH_GROUP, **urls)
    (tmp_path / "gpuwatch.toml").write_text(text)
    return made


def reason(home: Home, provider: str) -> str:
    """Return why the daemon rents nothing there, as of its last check."""
    return next((one.reason for one in CommandHolds(home.database_url).load(provider) if one.kind == RENTING), "")


def is_alone(home: Home, provider: str, lack: Lack) -> bool:
    """Whether it is all that is missing, in one line, with its fix. EC2's `DryRun` reports some again."""
    text = reason(home, provider)
    others = [one.mend for one in LACKS[provider] if one is not lack and one.name is not N.ORDER]
    is_it = text.startswith(lack.name.value) and lack.mend in text and "\n" not in text
    return is_it and not any(mend in text for mend in others)


@pytest.mark.slow
def test_whatever_is_missing_nothing_is_rented_there_and_the_mend_is_said(clouds: Clouds, home: Home) -> None:
    places = {"aws": clouds.aws, "runpod": clouds.runpod}
    for name, place in places.items():
        LACKS[name][0].take(place)
    with home.daemon(GPUWATCH_TEST_PACE="120"):
        for number in range(max(map(len, LACKS.values()))):
            steps = {name: LACKS[name][number : number + 2] for name in places if number < len(LACKS[name])}
            for name, (lack, *_) in steps.items():
                wait_for(partial(is_alone, home, name, lack))
            both = [(name, *pair) for name, pair in steps.items() if len(pair) == 2]
            for name, _, following in both:
                following.take(places[name])
            for name, lack, following in both:
                if lack.name is not N.CREDENTIALS:  # without them nothing else is queried
                    wait_for(lambda name=name, following=following: following.mend in reason(home, name))
                lack.give(places[name])
        wait_for(lambda: len(clouds.vastai.instances()) == 2)  # if nothing is missing, both watches rent
        assert [orders_at(name, place) for name, place in places.items()] == [[], []]
        for name, place in places.items():
            LACKS[name][-1].give(place)
        wait_for(lambda: clouds.aws.instances and clouds.runpod.pods)
    assert len(launches(home.database_url)) == 4
