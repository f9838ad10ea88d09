"""Whether an instance matches its offer, before its owner gets it."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

from gpuwatch.domain.launches.instances.instance_checks import MeasuredInstance
from gpuwatch.domain.launches.launch import EndReason, LaunchState, Promise
from gpuwatch.domain.watches.launch_spec import LaunchSpec, VerificationMode
from gpuwatch.engine.launches.followed_launch import FollowedLaunches
from gpuwatch.engine.launches.guarding.instance_verifier import InstanceVerifier
from gpuwatch.ports.remote import InstanceUnreachable, LoginRefused
from gpuwatch.storage.setup.database import Database
from tests.builders import changed
from tests.engine.guard_world import GuardWorld, Looker, an_instance

SSH = LaunchSpec(max_active=5, max_total=0, verify=VerificationMode.SSH)
KEYED = LaunchSpec(max_active=5, max_total=0, verify=VerificationMode.SSH, ssh_key="/keys/id")
FAST = MeasuredInstance(download_mbps=900.0)
SLOW = MeasuredInstance(download_mbps=210.0)


def test_none_looks_at_nothing(database: Database) -> None:
    world = GuardWorld(database, launch=LaunchSpec(verify=VerificationMode.NONE))
    assert world.verify(world.starting(), gpu="RTX 3090", gpu_count=0) is True


def test_listed_holds_the_list_against_the_promise(database: Database) -> None:
    world = GuardWorld(database)
    launch = world.starting(gpu_count=4, promised=Promise(disk_gb=100.0))
    assert world.verify(launch, gpu_count=4, disk_gb=100.0) is True
    assert world.verify(launch, gpu_count=2) == (EndReason.NOT_AS_PROMISED, "2 of 4 GPUs")


def test_ssh_waits_for_a_banner_and_never_within_a_look(database: Database) -> None:
    world = GuardWorld(database, launch=SSH)
    world.held = []
    launch = world.starting()
    assert [world.verify(launch), world.verify(launch)] == [False, False]
    (look,) = world.held
    look()
    assert world.verify(launch) is True


def test_ssh_is_tried_again_until_ready_within_is_over(database: Database) -> None:
    world = GuardWorld(database, launch=SSH)
    launch = world.starting()
    world.probe.on_banner = [InstanceUnreachable("ssh5.example:22: Connection refused")] * 2
    assert [world.verify(launch) for _ in range(4)] == [False, False, False, True]
    late = world.starting()
    world.probe.on_banner = [InstanceUnreachable("ssh5.example:22: Connection refused")] * 9
    assert world.verify(late) is False
    world.pass_(seconds=901)
    assert world.verify(late) == (EndReason.NO_SSH, "ssh5.example:22: Connection refused")


@pytest.mark.parametrize("address", [{"ssh_host": None}, {"ssh_port": None}])
def test_without_an_address_it_is_waited_for(database: Database, address: dict[str, None]) -> None:
    world = GuardWorld(database, launch=SSH)
    launch = world.starting()
    assert world.verify(launch, **address) is False
    world.pass_(seconds=901)
    assert world.verify(launch, **address) == (EndReason.NO_SSH, "it has no SSH port")


def test_with_ssh_the_list_is_looked_at_first(database: Database) -> None:
    world = GuardWorld(database, launch=SSH)
    world.held = []
    assert world.verify(world.starting(gpu_count=4), gpu_count=1) == (EndReason.NOT_AS_PROMISED, "1 of 4 GPUs")
    assert world.held == []


def test_a_quick_line_is_measured_once(database: Database) -> None:
    world = GuardWorld(database, launch=KEYED, min_download_mbps=500.0)
    launch = world.starting()
    world.probe.on_inside = [FAST]
    assert [world.verify(launch) for _ in range(3)] == [False, True, True]
    assert world.probe.downloads == [True]


def test_a_slow_line_is_measured_twice_before_it_ends(database: Database) -> None:
    world = GuardWorld(database, launch=KEYED, min_download_mbps=500.0)
    launch = world.starting()
    world.probe.on_inside = [SLOW, MeasuredInstance(download_mbps=200.0)]
    assert [world.verify(launch) for _ in range(3)] == [
        False,
        False,
        (EndReason.TOO_SLOW, "210 of 500 Mbit/s download"),
    ]
    other = world.starting()
    world.probe.on_inside = [SLOW, FAST]
    assert [world.verify(other) for _ in range(3)] == [False, False, True]


def test_a_speed_that_could_not_be_reported_is_not_slow(database: Database) -> None:
    world = GuardWorld(database, launch=KEYED, min_download_mbps=500.0)
    launch = world.starting()
    world.probe.on_inside = [MeasuredInstance()]
    assert [world.verify(launch) for _ in range(2)] == [False, True]


def test_nothing_is_downloaded_where_no_speed_is_wanted(database: Database) -> None:
    world = GuardWorld(database, launch=KEYED)
    launch = world.starting(gpu_count=2)
    world.probe.on_inside = [MeasuredInstance(gpus=(("NVIDIA H100 80GB HBM3", 81_559.0),))]
    assert world.verify(launch) is False
    assert world.verify(launch) == (EndReason.NOT_AS_PROMISED, "nvidia-smi shows 1 of 2 GPUs")
    assert world.probe.downloads == [False]


def test_a_login_that_stays_refused_is_reported_and_the_instance_believed(database: Database) -> None:
    world = GuardWorld(database, launch=KEYED, min_download_mbps=500.0)
    launch = world.starting()
    world.probe.on_inside = [LoginRefused("Permission denied (publickey)")]
    assert [world.verify(launch) for _ in range(3)] == [False] * 3
    world.pass_(seconds=121)
    assert world.verify(launch) is True
    (alert,) = world.alerts()
    assert alert.headline == "h100: its GPUs and its network could not be measured"
    assert "Permission denied (publickey)" in alert.why


def test_a_key_that_comes_late_is_no_matter(database: Database) -> None:
    world = GuardWorld(database, launch=KEYED, min_download_mbps=500.0)
    launch = world.starting()
    world.probe.on_inside = [LoginRefused("Permission denied"), FAST]
    assert [world.verify(launch) for _ in range(3)] == [False, False, True]
    assert world.alerts() == []


def test_a_look_that_breaks_is_no_answer(database: Database) -> None:
    world = GuardWorld(database, launch=KEYED)
    launch = world.starting()
    world.probe.on_inside = [ValueError("odd"), FAST]
    assert [world.verify(launch) for _ in range(3)] == [False, False, True]


def test_a_launch_whose_watch_is_gone_is_verified_as_it_was_rented(database: Database) -> None:
    world = GuardWorld(database, launch=SSH)
    launch = world.starting()
    world.watch = GuardWorld(database, name="other").watch
    world.start_process()
    assert [world.verify(launch), world.verify(launch)] == [False, True]


def test_a_launch_without_watch_and_terms_is_believed(database: Database) -> None:
    world = GuardWorld(database, launch=SSH)
    launch = changed(world.starting(), terms=None)
    world.watch = GuardWorld(database, name="other").watch
    world.start_process()
    assert world.guard.verified(launch, an_instance(launch), world.now) is True


def test_what_is_over_is_forgotten(database: Database) -> None:
    """A new launch never gets the result of an old one."""
    world = GuardWorld(database, launch=SSH)
    launch = world.starting()
    assert [world.verify(launch), world.verify(launch)] == [False, True]
    world.guard.refresh(world.now + timedelta(seconds=1))
    assert world.verify(launch) is True
    stopping = world.repository.transition(launch, LaunchState.STOPPING, "x", world.now)
    world.repository.transition(stopping, LaunchState.FAILED, "x", world.now, ended_at=world.now)
    world.guard.refresh(world.now + timedelta(seconds=2))
    assert world.verify(launch) is False


class Slow(Looker):
    """A slow host."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answer = threading.Event(), threading.Event()

    def banner(self, host: str, port: int) -> str:
        self.asked.set()
        assert self.answer.wait(30)
        return super().banner(host, port)


def test_a_slow_host_holds_no_look(database: Database) -> None:
    """With the real thread: the poll returns before the host has answered, and later takes the result."""
    probe = Slow()
    world = GuardWorld(database, launch=SSH)
    launch = world.starting()
    verifier = InstanceVerifier(probe, lambda *_: None, FollowedLaunches())
    instance = an_instance(launch)
    assert verifier.verified(launch, instance, world.watch, world.now) is False
    assert probe.asked.wait(30)
    assert verifier.verified(launch, instance, world.watch, world.now) is False
    probe.answer.set()
    for _ in range(3000):
        if verifier.verified(launch, instance, world.watch, world.now) is True:
            return
        time.sleep(0.01)
    pytest.fail("the answer never came")


@pytest.mark.parametrize("user", [None, "ubuntu"])
def test_it_is_looked_at_as_the_user_that_the_list_names(database: Database, user: str | None) -> None:
    world = GuardWorld(database, launch=KEYED)
    world.probe.on_inside = [MeasuredInstance()]
    world.verify(world.starting(), ssh_user=user)
    assert world.probe.users == [user]
