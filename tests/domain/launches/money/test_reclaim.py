"""What bad machines cost until they were ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.launches.money.reclaim import BAD_MACHINE, reclaim_of, reclaim_sums, reclaims
from tests.builders import NOON
from tests.domain.launches.guard_values import a_running_launch

HOUR = timedelta(hours=1)


def an_ended_launch(why: str, minutes: int = 6, **changes: Any) -> Launch:
    """A launch that ended some minutes after it was ordered and ran."""
    end = {"state": LaunchState.FAILED, "ended_at": NOON + timedelta(minutes=minutes), "end_reason": why}
    return a_running_launch(**end | changes)


def test_a_machine_that_fails_its_check_is_reclaimed_as_it_was_billed() -> None:
    launch = an_ended_launch(EndReason.NO_SSH.text("port 22 is closed"))
    found = reclaim_of(launch)
    assert found is not None
    assert (found.lasted, found.microusd) == (timedelta(minutes=6), 333_333)  # a tenth of the listed 3.33 an hour
    assert found.why == "its SSH port does not answer: port 22 is closed"


@pytest.mark.parametrize("end", [end for end in EndReason if end not in BAD_MACHINE])
def test_any_other_end_is_nothing_to_reclaim(end: EndReason) -> None:
    assert reclaim_of(an_ended_launch(end.value)) is None


@pytest.mark.parametrize(
    "changes",
    [{"state": LaunchState.STOPPING, "ended_at": None}, {"dry_run": True}, {"instance_id": None}],
    ids=["its end is not proven", "dry run", "no machine"],
)
def test_what_is_not_proven_or_was_not_billed_is_not_reclaimed(changes: dict[str, Any]) -> None:
    assert reclaim_of(an_ended_launch(EndReason.TOO_SLOW.value, **changes)) is None


def test_the_sums_are_of_the_span_in_which_the_machines_were_ended() -> None:
    launches = [
        an_ended_launch(EndReason.NOT_AS_PROMISED.value, 6, launch_id="aaaaaaaaaaac"),
        an_ended_launch(EndReason.NOT_AS_PROMISED.value, 12, launch_id="aaaaaaaaaaad"),
        an_ended_launch(EndReason.NO_SSH.value, 60, provider="runpod"),
        an_ended_launch(EndReason.NO_SSH.value, 90),
    ]
    found = reclaims(launches, NOON, NOON + timedelta(minutes=90))
    assert [one.lasted for one in found] == [timedelta(minutes=6), timedelta(minutes=12), HOUR]
    sums = [(one.provider, one.machines, one.microusd) for one in reclaim_sums(found)]
    assert sums == [("runpod", 1, 3_333_333), ("vastai", 2, 1_000_000)]
