"""Higher prices that hosts propose: reported at once, answered by the owner's policy."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuwatch.domain.launches.launch import EndReason
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec, PriceIncreasePolicy
from gpuwatch.errors import OrderError, ProviderError
from gpuwatch.ports import AlertKind, PriceIncrease
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON
from tests.engine.guard_world import GuardWorld

LATER = NOON + timedelta(hours=4)


def a_world(database: Database, policy: PriceIncreasePolicy, overall: Budget | None = None, **watch: Any) -> GuardWorld:
    spec = LaunchSpec(max_runtime_s=36_000.0, on_price_increase=policy)
    return GuardWorld(database, overall, **{"launch": spec, "max_price_usd_gpu_hour": Decimal(6)} | watch)


def proposed(world: GuardWorld, instance_id: str | None, **changes: Any) -> None:
    plain: dict[str, Any] = {
        "increase_id": "999",
        "instance_id": instance_id,
        "new_usd_hour": 4.166666,
        "effective_at": LATER,
    }
    world.host.proposals = [PriceIncrease(**(plain | changes))]


def test_a_proposal_is_reported_at_once_with_what_it_costs_and_once(database: Database) -> None:
    world = a_world(database, PriceIncreasePolicy.ALERT)
    launch = world.running()
    proposed(world, launch.instance_id)
    for _ in range(3):
        world.refresh()
        world.pass_(minutes=1)
        world.start_process()
    (alert,) = world.alerts()
    assert alert.kind is AlertKind.HELD
    assert alert.headline == "h100: its host raises the price"
    facts = dict(alert.facts)
    assert facts["New price"] == "$4.00 → $5.00 an hour"
    assert facts["Takes effect"] == "2026-11-21 16:00 UTC"
    assert facts["Additional cost"] == "$6.00 until its longest runtime ends"  # six of its ten hours
    assert alert.did == "Nothing was sent: the decision is yours."
    assert world.host.answers == []
    assert world.guard.due(launch, LATER) is None


def test_stop_rejects_it_and_ends_the_launch_before_it_holds(database: Database) -> None:
    world = a_world(database, PriceIncreasePolicy.STOP)
    launch = world.running()
    proposed(world, launch.instance_id)
    world.refresh()
    assert world.host.answers == [("999", False)]
    assert world.guard.due(launch, LATER - timedelta(minutes=11)) is None
    world.pass_(minutes=5)
    world.refresh()  # it is no longer in any list
    found = world.guard.due(launch, LATER - timedelta(minutes=10))
    assert found == (EndReason.PRICE_RAISED, "$4.00 → $5.00 an hour")
    assert [alert.did for alert in world.alerts()] == ["Rejected; the instance ends before the new price applies."]


def test_a_rise_that_may_hold_any_moment_ends_it_at_once(database: Database) -> None:
    world = a_world(database, PriceIncreasePolicy.STOP)
    launch = world.running()
    proposed(world, launch.instance_id, effective_at=None)
    world.refresh()
    assert world.look(launch) == (EndReason.PRICE_RAISED, "$4.00 → $5.00 an hour")


def test_a_no_that_the_provider_does_not_take_still_ends_it_in_time(database: Database) -> None:
    world = a_world(database, PriceIncreasePolicy.STOP)
    launch = world.running()
    proposed(world, launch.instance_id)
    world.host.on_answer = OrderError("400")
    world.refresh()
    assert world.guard.due(launch, LATER) is not None
    assert "did not confirm the rejection" in world.alerts()[0].did


def test_a_price_under_the_threshold_is_accepted_once(database: Database) -> None:
    """Within a budget that has no room for the same launch twice; the list lags behind the answer."""
    world = a_world(database, PriceIncreasePolicy.ACCEPT_UNDER, Budget(max_usd_hour=Decimal(5), max_instances=1))
    world.host.lags = True
    launch = world.running()
    proposed(world, launch.instance_id)
    for _ in range(2):
        world.refresh()
        world.pass_(minutes=1)
    assert world.host.answers == [("999", True)]
    assert world.guard.due(launch, LATER) is None
    (alert,) = world.alerts()
    assert alert.did == "Accepted: the new price is at or under the limit, and the budget allows it."
    assert alert.kind is AlertKind.RENT


def test_a_yes_is_tried_again_until_it_is_taken_and_then_reported(database: Database) -> None:
    world = a_world(database, PriceIncreasePolicy.ACCEPT_UNDER)
    launch = world.running()
    proposed(world, launch.instance_id)
    world.host.on_answer = ProviderError("503")
    world.refresh()
    world.host.on_answer = None
    world.pass_(minutes=1)
    world.refresh()
    assert world.host.answers == [("999", True)]
    assert [alert.did.split()[0] for alert in world.alerts()] == ["Accepting", "Accepted:"]
    assert world.guard.due(launch, LATER) is None


@pytest.mark.parametrize(
    ("limits", "overall"),
    [
        ({"max_price_usd_gpu_hour": Decimal("4.99")}, Budget()),
        ({}, Budget(max_usd_hour=Decimal("4.99"))),
        ({"budget": Budget(max_usd_day=Decimal(49))}, Budget()),
    ],
)
def test_over_the_threshold_or_a_budget_it_is_as_with_stop(
    database: Database, limits: dict[str, Any], overall: Budget
) -> None:
    world = a_world(database, PriceIncreasePolicy.ACCEPT_UNDER, overall, **limits)
    launch = world.running()
    proposed(world, launch.instance_id)
    world.refresh()
    assert world.host.answers == [("999", False)]
    assert world.guard.due(launch, LATER) is not None


@pytest.mark.parametrize("unknown", [{"words": "disk 0.1 -> 0.2 $/GB"}, {"new_usd_hour": None}, {"new_usd_hour": 1e99}])
def test_what_has_no_known_price_is_left_to_the_owner(database: Database, unknown: dict[str, Any]) -> None:
    world = a_world(database, PriceIncreasePolicy.ACCEPT_UNDER)
    launch = world.running()
    proposed(world, launch.instance_id, **unknown)
    world.refresh()
    assert world.host.answers == []
    assert world.guard.due(launch, LATER) is None
    assert world.alerts()[0].did == "Nothing was sent: the decision is yours."


def test_it_is_asked_every_minute_and_only_while_anything_runs(database: Database) -> None:
    world = a_world(database, PriceIncreasePolicy.ALERT)
    world.refresh()
    assert world.host.asked == 0
    world.running()
    for _ in range(12):
        world.refresh()
        world.pass_(seconds=10)
    assert world.host.asked == 2


def test_a_provider_that_does_not_answer_is_asked_again(database: Database) -> None:
    world = a_world(database, PriceIncreasePolicy.STOP)
    launch = world.running()
    proposed(world, launch.instance_id)
    world.host.on_asked = ProviderError("429")
    world.refresh()
    world.host.on_asked = None
    world.pass_(minutes=1)
    world.refresh()
    assert world.host.answers == [("999", False)]


def test_what_is_not_ours_is_left_alone(database: Database) -> None:
    world = a_world(database, PriceIncreasePolicy.STOP)
    world.running()
    proposed(world, "somebody else's")
    world.refresh()
    assert (world.host.answers, world.alerts()) == ([], [])


# --- the list bills another price than proposed -----------------------------------------------------------------------

TIGHT = Budget(max_usd_hour=Decimal("4.50"))


@pytest.mark.parametrize("of_watch", [False, True])
def test_a_price_raised_within_the_threshold_passes_the_budget_again(database: Database, of_watch: bool) -> None:
    limits = {"budget": TIGHT} if of_watch else {"overall": TIGHT}
    world = a_world(database, PriceIncreasePolicy.ACCEPT_UNDER, **limits)
    launch = world.running()
    assert world.look(launch, listed_usd_hour=3.5) is None  # 4.20 with commission
    found = world.look(launch, listed_usd_hour=4.166666)  # 5.00: under the threshold of 6, over the budget
    assert found is not None
    assert found[0] is EndReason.PRICE_RAISED
    assert "the hourly budget has $4.50/h left" in found[1]


def test_a_raised_price_that_the_budget_allows_ends_nothing(database: Database) -> None:
    world = a_world(database, PriceIncreasePolicy.ACCEPT_UNDER, Budget(max_usd_hour=Decimal(5)))
    assert world.look(world.running(), listed_usd_hour=4.166666) is None


def test_what_is_dearer_once_rented_passes_the_budget_again(database: Database) -> None:
    world = a_world(database, PriceIncreasePolicy.ALERT, TIGHT)
    found = world.look(world.starting(), listed_usd_hour=4.166666)
    assert found is not None
    assert found[0] is EndReason.BUDGET


def test_where_the_owner_decides_about_prices_the_budget_ends_nothing_by_itself(database: Database) -> None:
    world = a_world(database, PriceIncreasePolicy.ALERT, TIGHT)
    assert world.look(world.running(), listed_usd_hour=4.166666) is None
