"""Which unaccounted instances a lost order may have created."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.domain.launches.launch import Intent, new_launch
from gpuwatch.domain.launches.life.strays import may_be_its_instance
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.ports import Instance, InstanceState
from tests.builders import NOON, a_match, a_watch

RENTS = a_watch(action=Action.LAUNCH, launch=LaunchSpec())
LAUNCH = new_launch(Intent(watch=RENTS, match=a_match(), launch_id="a" * 12, dry_run=False), 0, NOON)  # machine 77
BEFORE, AFTER = NOON - timedelta(minutes=5), NOON + timedelta(minutes=5)


def fits(first_listed_at: Any = AFTER, **changes: Any) -> bool:
    plain: dict[str, Any] = {
        "instance_id": "5", "label": "training", "state": InstanceState.RUNNING, "status": "running",
        "machine_id": "77", "gpu": "H100 SXM", "gpu_count": 1, "listed_usd_hour": 3.0, "started_at": AFTER,
    }  # fmt: skip
    return may_be_its_instance(LAUNCH, Instance(**(plain | changes)), first_listed_at)


def test_what_stands_on_the_ordered_machine_since_the_order_may_be_it() -> None:
    assert fits()
    assert fits(gpu=None, gpu_count=None, listed_usd_hour=None)


def test_what_stood_there_before_the_order_is_not() -> None:
    assert not fits(started_at=BEFORE)
    assert not fits(started_at=None, first_listed_at=BEFORE)


def test_the_providers_clock_may_be_a_minute_behind() -> None:
    assert fits(started_at=NOON - timedelta(minutes=1))


@pytest.mark.parametrize("started_at", [AFTER, None])
def test_one_of_that_gpu_count_and_price_may_be_it_wherever_it_stands(started_at: Any) -> None:
    assert fits(machine_id="78", started_at=started_at)
    assert fits(machine_id=None, listed_usd_hour=3.02, started_at=started_at)
    assert fits(machine_id=None, listed_usd_hour=None, started_at=started_at)


@pytest.mark.parametrize("other", [{"gpu": "H200"}, {"gpu": None}, {"gpu_count": 2}, {"listed_usd_hour": 4.0}])
def test_another_gpu_count_or_price_elsewhere_is_not(other: dict[str, Any]) -> None:
    assert not fits(machine_id="78", **other)
