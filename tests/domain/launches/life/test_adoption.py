"""An instance that existed before its launch."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.launches.life.launch_events import ClockReading, InstanceListed
from gpuwatch.domain.launches.life.state_machine import transition
from gpuwatch.domain.launches.life.strays import adopted_launch
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from tests.builders import NOON, a_watch


@pytest.mark.parametrize("state", [InstanceState.STOPPED, InstanceState.OFFLINE, InstanceState.UNKNOWN])
@pytest.mark.parametrize("spot", [True, False])
def test_what_stands_still_when_it_is_adopted_is_not_ended_for_that(state: InstanceState, spot: bool) -> None:
    """A new launch that does not start is ended; this one has run, and its disk is needed."""
    instance = Instance(
        instance_id="7", label="gpuwatch-aaaaaaaaaaab", state=state, status="", spot=spot, listed_usd_hour=2.0,
        stopped_usd_hour=0.02,
    )  # fmt: skip
    launch = adopted_launch(
        instance, launch_id="aaaaaaaaaaab", watch=a_watch(launch=LaunchSpec(max_runtime_s=3600.0)), alive=[],
        provider="vastai", commission=Commission("0.20"), now=NOON,
    )  # fmt: skip
    assert launch.state is LaunchState.RUNNING
    outcome = transition(
        launch, InstanceListed(instance), ClockReading(NOON + timedelta(hours=0.9), NOON + timedelta(hours=0.9))
    )
    assert outcome.effects == ()
    assert cost_microusd(launch, NOON + timedelta(hours=1)) == 24_000


def test_an_adopted_launch_keeps_the_label_of_its_instance() -> None:
    instance = Instance(
        instance_id="7",
        label="gpuwatch-bbbbbbbbbbbb mine",
        state=InstanceState.RUNNING,
        status="running",
        listed_usd_hour=3.0,
    )
    launch = adopted_launch(
        instance,
        launch_id="aaaaaaaaaaab",
        watch=a_watch(),
        alive=[],
        provider="vastai",
        commission=Commission("0.20"),
        now=NOON,
    )
    assert launch.label == instance.label
