"""The texts about a launch."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from gpuwatch.domain.launches.launch import EndReason, InstanceCondition, Launch, LaunchState
from gpuwatch.engine.launch_alerts import LaunchAlerts
from gpuwatch.ports import Alert
from tests.builders import NOON
from tests.domain.launches.guard_values import a_running_launch

RUNNING = a_running_launch(machine_id="60006")


def alert_of(launch: Launch) -> Alert:
    return LaunchAlerts(lambda: "abc").moved(launch, "ended", "", NOON).alert


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "is running."),
        ({"condition": InstanceCondition.OUTBID}, "continues: state running, outbid."),
        ({"state": LaunchState.STOPPING}, "is stopping: you get an alert when its end is confirmed."),
        ({"state": LaunchState.ENDED, "end_reason": EndReason.STOPPED.text()}, "has ended."),
        ({"state": LaunchState.FAILED, "end_reason": EndReason.GONE.text()}, "failed."),
        (
            {"state": LaunchState.FAILED, "end_reason": EndReason.NOT_READY.text()},
            "failed. Machine 60006 is avoided for 24 hours (gpuwatch machines).",
        ),
    ],
)
def test_what_became_of_it_is_said_in_plain_words(changes: dict[str, object], said: str) -> None:
    launch = msgspec.structs.replace(RUNNING, **changes)
    assert alert_of(launch).did == f"Launch {launch.launch_id} {said}"


def test_what_is_over_costs_no_more() -> None:
    over = msgspec.structs.replace(RUNNING, state=LaunchState.ENDED, ended_at=NOON + timedelta(hours=1))
    assert "Cost" in dict(alert_of(over).facts)
    assert "Cost so far" not in dict(alert_of(over).facts)
