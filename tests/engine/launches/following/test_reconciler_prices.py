"""The provider's own price of an instance, compared with the admitted one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuwatch.domain.launches.instances.end_rules import billed_rates, end_cause
from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchState, new_launch
from gpuwatch.ports import Instance, InstanceState
from tests.builders import NOON, a_match, a_watch, changed

ADMITTED: Launch = changed(
    new_launch(Intent(watch=a_watch(), match=a_match(), launch_id="a" * 12, dry_run=False), 0, NOON),
    state=LaunchState.STARTING,
    instance_id="1",
)
CEILING = 3_900_000  # a threshold of 3.90 $; 3.60 $ were admitted


def an_instance(listed_usd_hour: float | None) -> Instance:
    return Instance(
        instance_id="1", label=ADMITTED.label, state=InstanceState.STARTING, status="loading",
        listed_usd_hour=listed_usd_hour,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "dearer"), [(3.0, False), (3.01, False), (3.25, False), (3.26, True), (None, False)]
)
def test_only_a_price_over_the_threshold_ends_it(listed: float | None, dearer: bool) -> None:
    fault = end_cause(ADMITTED, an_instance(listed), NOON + timedelta(seconds=1), CEILING)
    assert (fault is not None and fault[0] is EndReason.DEARER) == dearer


def test_a_max_price_that_was_lowered_since_ends_nothing_that_was_admitted_before() -> None:
    assert end_cause(ADMITTED, an_instance(3.0), NOON, 3_000_000) is None
    assert end_cause(ADMITTED, an_instance(3.10), NOON, 3_000_000) is not None


def test_without_its_watch_the_admitted_price_is_the_bound() -> None:
    assert end_cause(ADMITTED, an_instance(3.10), NOON, None) is not None


def test_the_ledger_takes_the_price_that_is_billed_with_the_same_commission() -> None:
    assert billed_rates(ADMITTED, an_instance(3.20)) == (3_200_000, 3_840_000)
    assert billed_rates(ADMITTED, an_instance(3.001)) == (3_000_000, 3_600_000)
