"""Where the owner keeps the disk at the end, the keeper stops the instance; one that does not stop is destroyed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuwatch.errors import OrderError, OrderRefused
from gpuwatch.ports import InstanceState
from tests.builders import changed
from tests.engine.launches.guarding.test_keeper import World
from tests.engine.lying_provider import LyingProvider
from tests.engine.uow_fakes import NOON


class Halting(LyingProvider):
    """Can stop an instance, if it does what it says."""

    def __init__(self, refusal: Exception | None = None, *, works: bool = True) -> None:
        super().__init__()
        self.refusal = refusal
        self.works = works
        self.stops = 0

    def stop_instance(self, instance_id: str) -> None:
        self.stops += 1
        if self.refusal is not None:
            raise self.refusal
        if self.works:
            self.alive[instance_id] = changed(self.alive[instance_id], state=InstanceState.STOPPED)

    def start_instance(self, instance_id: str) -> bool:
        raise AssertionError("the keeper starts nothing")


KEEPS = {"keep_s": 86_400.0, "runtime_s": 3600.0}


def test_a_disk_that_is_to_be_kept_is_kept_and_destroyed_at_its_own_end() -> None:
    provider = Halting()
    world = World(provider)
    world.rented(**KEEPS)
    world.late(119.0)
    assert (provider.destroys, provider.stops) == ([], 1)
    (one,) = world.file.values()
    assert (one.ends_at, one.keep_s) == (NOON + timedelta(hours=25), 0)
    assert [alert.headline for alert in world.reports] == [
        "cheap: its end passed; the keeper stopped it and keeps its disk"
    ]
    world.now += timedelta(days=1)
    world.pass_s(60)
    assert provider.alive == {}


@pytest.mark.parametrize(
    "provider", [Halting(works=False), Halting(OrderRefused("no")), Halting(OrderError("500")), LyingProvider()]
)
def test_what_does_not_stop_is_destroyed_within_two_minutes(provider: LyingProvider) -> None:
    world = World(provider)
    world.rented(**KEEPS)
    world.late(119.0)
    assert provider.alive == {}


def test_what_has_stopped_is_recorded_without_an_alert_and_an_end_that_was_asked_for_keeps_no_disk() -> None:
    provider = Halting()
    world = World(provider)
    world.rented(**KEEPS)
    provider.stop_instance("9000")
    world.late(119.0)
    assert (provider.destroys, world.reports) == ([], [])
    world = World(provider := Halting())
    world.rented(is_ending=True, **KEEPS)
    world.late(119.0)
    assert provider.alive == {}
