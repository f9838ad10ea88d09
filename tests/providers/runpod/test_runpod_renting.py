"""RunPod with its server on loopback: what takes several requests, the quota, the login."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from gpuwatch import providers
from gpuwatch.errors import OfferGone, OrderRefused, RefusalKind
from gpuwatch.ports import DiskKeeper, InstanceState, Launcher, Order, Volume
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName, PrerequisiteProbe
from gpuwatch.providers.runpod.client import RESERVED, Quota, RunpodClient, parse_windows
from gpuwatch.testing.suite import case
from tests.clocks import Clock
from tests.clouds.runpod import RunPod
from tests.clouds.runpod_pods import Lags
from tests.clouds.runpod_quota import Quotas
from tests.providers.runpod.bench import BENCH, PLENTY

OFFER = "NVIDIA H100 80GB HBM3/SECURE/1/US-KS-2"
K = RefusalKind


@pytest.fixture
def clock() -> Clock:
    return Clock(1_796_256_000.0)


@pytest.fixture
def place(clock: Clock) -> Iterator[RunPod]:
    with RunPod(quotas=PLENTY, clock=clock) as place:
        yield place


@pytest.fixture
def launcher(place: RunPod) -> Iterator[Launcher]:
    with BENCH.pointed_at(place.url) as adapter:
        assert adapter.launcher is not None
        yield adapter.launcher


def an_order(**values: Any) -> Order:
    plain: dict[str, Any] = {"offer_id": OFFER, "label": "gpuwatch-a", "image": "x/y", "disk_gb": 20.0}
    return Order(**(plain | values))


def test_an_empty_balance_is_no_credit(place: RunPod, launcher: Launcher) -> None:
    place.credit = 1.0
    with pytest.raises(OrderRefused) as refused:
        launcher.create(an_order())
    assert refused.value.kind is K.NO_CREDIT
    assert launcher.credit_usd() == 1.0


def test_a_place_that_is_sold_out_is_an_offer_that_is_gone(place: RunPod, launcher: Launcher) -> None:
    place.sell_out("NVIDIA H100 80GB HBM3", place="US-KS-2")
    with pytest.raises(OfferGone):
        launcher.create(an_order())  # one is available in Montreal, which is another offer
    assert place.pods == {}


def test_what_a_pod_really_costs_is_listed_right_after_the_create(place: RunPod, launcher: Launcher) -> None:
    place.dearer_by = 1.0
    launcher.create(an_order())
    [found] = launcher.list_instances()
    assert found.listed_usd_hour == pytest.approx(2.69 + 1.0 + 20 * 0.10 / 730)


def test_a_pod_comes_to_life_step_by_step(place: RunPod, launcher: Launcher, clock: Clock) -> None:
    place.lags = Lags(starting_s=10, running_s=20, container_s=30, ports_s=60)
    launcher.create(an_order())
    seen = []
    for age_s in (0, 15, 25, 40, 70):
        clock.seconds = 1_796_256_000.0 + age_s
        [found] = launcher.list_instances()
        seen.append((found.status.split(":")[0], found.state))
    starting, running = InstanceState.STARTING, InstanceState.RUNNING
    assert seen == [
        ("PROVISIONING", starting), ("STARTING", starting), ("RUNNING", starting), ("RUNNING", starting),
        ("RUNNING", running),
    ]  # fmt: skip


def test_a_pod_that_exits_stands_still_and_its_disk_is_free(place: RunPod, launcher: Launcher) -> None:
    made = launcher.create(an_order())
    place.stop(made.instance_id)
    [found] = launcher.list_instances()
    assert (found.state, found.listed_usd_hour, found.stopped_usd_hour) == (InstanceState.STOPPED, None, 0.0)


def test_a_pod_keeps_its_volume_starts_on_its_own_host_and_waits_for_its_gpus(
    place: RunPod, launcher: Launcher
) -> None:
    """What is kept is the volume, at its price while stopped; without a volume gpuwatch stops no pod."""
    assert isinstance(launcher, DiskKeeper)
    volume = Volume(mount="/workspace", size_gb=100.0)
    pod_id = launcher.create(an_order(volume=volume)).instance_id
    launcher.stop_instance(pod_id)
    (found,) = launcher.list_instances()
    assert found.state is InstanceState.STOPPED
    assert found.stopped_usd_hour == pytest.approx(100 * 0.2 / 730)
    place.taken.add(pod_id)
    assert not launcher.start_instance(pod_id)
    place.taken.clear()
    assert launcher.start_instance(pod_id)
    launcher.list_instances()
    info = providers.info("runpod")
    assert "volume" in info.cannot_keep_disk(is_spot=False, has_volume=False)
    assert not info.cannot_keep_disk(is_spot=False, has_volume=True)


def test_what_was_charged_is_reported(place: RunPod, launcher: Launcher, clock: Clock) -> None:
    made = launcher.create(an_order(disk_gb=73.0))
    clock.seconds += 3600
    launcher.destroy(made.instance_id)
    day = date(2026, 12, 3)
    found = launcher.charges(day, day)
    assert found is not None
    assert {(one.instance_id, one.kind): one.usd for one in found} == {
        (made.instance_id, "gpu"): 2.69, (made.instance_id, "disk"): 0.01,
    }  # fmt: skip


# --- the quota ---


def test_the_last_requests_of_a_window_are_for_orders_and_lists() -> None:
    now = Clock(0.0)
    quota = Quota(now)
    assert quota.take(urgent=False) == 0.0  # nothing is known yet
    quota.on_reply(200, {"ratelimit": f'"minute";r={RESERVED + 1};t=30, "hour";r=900;t=1800'})
    assert quota.take(urgent=False) == 0.0
    assert quota.take(urgent=False) == 30.0
    assert [quota.take(urgent=True) for _ in range(RESERVED + 1)] == [0.0] * RESERVED + [30.0]
    now.seconds = 31.0
    assert quota.take(urgent=False) == 0.0  # the minute is whole again


def test_a_429_that_names_no_window_closes_all() -> None:
    quota = Quota(Clock(0.0))
    quota.on_reply(429, {"retry-after": "12"})
    assert (quota.take(urgent=True), quota.take(urgent=False)) == (12.0, 12.0)


def test_a_header_that_is_none_is_no_quota() -> None:
    cases: list[Any] = [
        None,
        "",
        "x",
        '"minute"',
        '"minute";r=x;t=1',
        '"minute";r=1',
        "\u202e" * 50,
        '"a";r=1;t=1' * 5000,
    ]
    for header in cases:
        with case(header):
            assert len(parse_windows(header)) <= 1


def test_requests_wait_for_a_window_and_never_go_beyond_it() -> None:
    clock = Clock(1_796_256_000.0)
    with RunPod(quotas=Quotas(minute=10), clock=clock) as place:
        with BENCH.pointed_at(place.url) as adapter:
            account: RunpodClient = adapter.market._account  # type: ignore[attr-defined] # its clock is what the test moves
            slept: list[float] = []

            def sleep(seconds: float) -> None:
                slept.append(seconds)
                clock.seconds += seconds
                own(seconds)

            own = account.tools.sleep
            tools = account.tools
            account.tools = type(tools)(
                http=tools.http, now=tools.now, monotonic=tools.monotonic, sleep=sleep, stop=tools.stop
            )
            for _ in range(20):
                account.get("/v2/pods", kind="charges")
        assert place.count("GET") == 20, "no 429 was ever earned"
        assert slept == [60.0, 60.0, 60.0]


# --- login ------------------------------------------------------------------------------------------------------------
KEYED, STARTED, JUPYTER = {"env": {"PUBLIC_KEY": "ssh-ed25519 A"}}, {"onstart": "true"}, {"runtype": "jupyter"}
JOB = {"onstart": "let the key of the launch in", "env": {"PUBLIC_KEY": "ssh-ed25519 B"}, "needs_ssh": True}


def the_key(launcher: Launcher, *orders: Order) -> list[Prerequisite]:
    assert isinstance(launcher, PrerequisiteProbe)
    return [
        prerequisite
        for prerequisite in launcher.prerequisites(orders)
        if prerequisite.name is PrerequisiteName.KEY_PAIR
    ]


def test_without_a_key_in_the_account_nothing_is_rented_that_only_ssh_opens(place: RunPod, launcher: Launcher) -> None:
    place.ssh_key = ""
    assert [prerequisite.is_blocking for prerequisite in the_key(launcher)] == [False], (
        "without an order nothing is known to need it"
    )
    (lack,) = the_key(launcher, an_order())
    assert (lack.met, lack.is_blocking) == (False, True)
    with pytest.raises(OrderRefused, match="nothing was sent") as refused:
        launcher.create(an_order())
    assert "add one in RunPod's settings" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert place.pods == {}
    place.ssh_key = "ssh-ed25519 AAAA me"
    the_key(launcher, an_order())
    launcher.create(an_order())
    assert len(place.pods) == 1


@pytest.mark.parametrize("values", [KEYED, STARTED, JUPYTER, JOB])
def test_a_pod_that_is_of_use_without_the_account_s_key_is_rented(
    place: RunPod, launcher: Launcher, values: dict[str, Any]
) -> None:
    place.ssh_key = ""
    found = the_key(launcher, an_order(), an_order(**values))
    assert [(prerequisite.met, prerequisite.is_blocking) for prerequisite in found] == [(False, False)], (
        "one of the two may be rented"
    )
    launcher.create(an_order(**values))
    with pytest.raises(OrderRefused):
        launcher.create(an_order(label="gpuwatch-b"))
    assert len(place.pods) == 1


def test_a_job_asks_for_no_key_of_the_account_and_brings_its_own(place: RunPod, launcher: Launcher) -> None:
    place.ssh_key = ""
    assert the_key(launcher, an_order(**JOB)) == []
    launcher.create(an_order(**JOB))
    (pod,) = place.pods.values()
    assert pod.body["startSsh"] is True
    assert "22/tcp" in pod.body["ports"]
    assert JOB["onstart"] in pod.body["cmd"][-1]
