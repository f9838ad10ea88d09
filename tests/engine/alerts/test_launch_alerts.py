"""The texts about a launch."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, cast

import msgspec
import pytest

from gpuwatch import providers
from gpuwatch.domain.alerts.launch_texts import DAY_LIMIT, OVER, TAKEN_OVER
from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.launches.launch import (
    EndReason,
    InstanceCondition,
    Launch,
    LaunchState,
    Promise,
)
from gpuwatch.domain.launches.life.launch_record import terms_of
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.ports import Alert, Market
from gpuwatch.ports.declarations import Adapter
from tests.builders import NOON, a_watch
from tests.domain.launches.guard_values import a_running_launch

RUNNING = a_running_launch(machine_id="60006")


def alert_of(launch: Launch) -> Alert:
    return LaunchAlerts(lambda: "abc").of(OVER, launch, NOON, end="ended", reason="").alert


def test_a_reached_day_limit_is_stored_once_for_each_watch_and_utc_day() -> None:
    at = NOON.replace(hour=0, minute=0)

    def key(name: str, hours: float) -> str:
        return DAY_LIMIT.key(at + timedelta(hours=hours), watch=name)

    assert key("a", 1) == key("a", 23.9)
    assert len({key("a", 1), key("a", 24), key("b", 1)}) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "is running."),
        ({"condition": InstanceCondition.OUTBID}, "continues: state running, outbid."),
        ({"state": LaunchState.STOPPING}, "is stopping; gpuwatch sends an alert when its end is confirmed."),
        ({"state": LaunchState.ENDED, "end_reason": EndReason.STOPPED.text()}, "has ended."),
        ({"state": LaunchState.FAILED, "end_reason": EndReason.GONE.text()}, "failed."),
        (
            {"state": LaunchState.FAILED, "end_reason": EndReason.NOT_READY.text()},
            "failed. gpuwatch does not rent machine 60006 for 24 hours (gpuwatch providers machines).",
        ),
        (
            {
                "state": LaunchState.FAILED,
                "end_reason": EndReason.NO_SSH.text(),
                "promised": Promise(is_stock=True),
                "machine_id": "1H100/FIN-01",
            },
            "failed. For an hour, gpuwatch tries other places and offers before 1H100/FIN-01.",
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


def test_while_it_runs_its_alerts_say_how_to_log_in() -> None:
    launch = msgspec.structs.replace(RUNNING, ssh=SshAddress(host="ssh6.vast.ai", port=41822))
    assert dict(alert_of(launch).facts)["Log in"] == "ssh -p 41822 root@ssh6.vast.ai"
    for over in ({"state": LaunchState.ENDED}, {"condition": InstanceCondition.OUTBID}, {"ssh": None}):
        assert "Log in" not in dict(alert_of(msgspec.structs.replace(launch, **over)).facts), over


def _fact(provider: str, self_destruct: bool | Literal["auto"] = True, **changes: object) -> str | None:
    watch = a_watch(launch=LaunchSpec(self_destruct=self_destruct))
    launch = msgspec.structs.replace(RUNNING, provider=provider, terms=terms_of(watch), **changes)
    known = ("tensordock", "lambda", "shadeform")
    adapters = {name: Adapter(name=name, info=providers.info(name), market=cast("Market", None)) for name in known}
    alert = LaunchAlerts(lambda: "abc", adapters).of(TAKEN_OVER, launch, NOON).alert
    return dict(alert.facts).get("Self-destruct")


def test_an_instance_that_ends_itself_says_what_each_hour_costs_then() -> None:
    said = _fact("tensordock", disk_microusd_hour=7_000, price_microusd_hour=2_000_000)
    assert said is not None
    assert "afterwards its disk costs $0.007, or up to its full price of $2.00 (not documented), an hour" in said
    assert _fact("tensordock", state=LaunchState.ENDED) is None
    assert _fact("tensordock", "auto") is None, "nothing can move its timer, so it is not armed"
    assert _fact("shadeform", "auto") == "Shadeform deletes it at its own deadline; billing stops"
    assert _fact("tensordock", instance_id=None) is None
    assert _fact("lambda") is None
    assert "Self-destruct" not in dict(alert_of(RUNNING).facts)
