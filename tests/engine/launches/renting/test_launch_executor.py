"""The rent: what is requested, in which order, at which price, and what is recorded when events cross."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest

from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.computed_limits import quoted_bid_usd_hour
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.launches.renting.requoter import payable_match
from gpuwatch.errors import OfferGone, OrderRefused, OutcomeUnknown, RefusalKind
from gpuwatch.ports import AlertKind, Created, Order
from gpuwatch.storage.setup.database import Database
from tests.builders import a_match, an_offer, changed
from tests.engine.launch_world import RENTS, World, match_on
from tests.engine.uow_fakes import an_answer

S = LaunchState


@pytest.fixture
def world(sqlite_database: Database) -> Iterator[World]:
    return World(sqlite_database)


def reserved(world: World) -> Launch:
    launch = world.reserve()
    assert isinstance(launch, Launch)
    return launch


def test_a_launch_that_a_command_carries_out_is_never_ordered(world: World) -> None:
    world.watch = changed(RENTS, action=Action.COMMAND, command=("rent",))
    launch = reserved(world)
    assert world.execute(launch, a_match()) == launch
    assert (world.state(launch), world.provider.orders) == (S.REQUESTED, [])


class Meddler:
    """Wraps the provider and does something while an order is in flight."""

    def __init__(self, world: World, meanwhile: Callable[[], None]) -> None:
        self.create_there = world.provider.create
        self.meanwhile = meanwhile
        world.provider.create = self.create  # type: ignore[method-assign]

    def create(self, order: Order) -> Created:
        try:
            return self.create_there(order)
        finally:
            self.meanwhile()


# --- candidates -------------------------------------------------------------------------------------------------------


def test_a_gone_offer_is_followed_by_the_next_at_once_while_the_answer_is_fresh(world: World) -> None:
    world.provider.on_create = [OfferGone("no_such_ask")]
    launch = world.rent(match_on("1", "11"), match_on("2", "22"))
    assert [order.offer_id for order in world.provider.orders] == ["11", "22"]
    assert world.market.asked == []
    assert (launch.state, launch.machine_id) == (S.STARTING, "2")


def test_one_fresh_look_serves_all_candidates(world: World) -> None:
    offers = [an_offer(machine_id=str(n), offer_id=f"new-{n}", observed_at=world.now) for n in (1, 2, 3)]
    world.market.script = [an_answer(*offers, at=world.now)]
    world.provider.on_create = [OfferGone("gone"), OfferGone("gone")]
    old = tuple(match_on(str(n), f"old-{n}") for n in (1, 2, 3))
    launch = world.reserve(*old)
    assert isinstance(launch, Launch)
    world.execute(launch, *old, seen_s_ago=30)
    assert len(world.market.asked) == 1
    assert [order.offer_id for order in world.provider.orders] == ["new-1", "new-2", "new-3"]


def test_the_row_names_the_offer_before_it_is_asked_for(world: World) -> None:
    seen: list[str] = []
    Meddler(world, lambda: seen.extend(launch.offer_id for launch in world.repository.alive()))
    world.provider.on_create = [OfferGone("gone")]
    world.rent(match_on("1", "11"), match_on("2", "22"))
    assert seen == ["11", "22"]


def test_a_next_candidate_that_breaks_the_budget_is_not_asked_for(world: World) -> None:
    world.budget = Budget(max_usd_hour=Decimal("3.00"))
    world.start_process()
    world.provider.on_create = [OfferGone("gone")]
    launch = world.rent(match_on("1", "11", 2.4), match_on("2", "22", 2.9))
    assert [order.offer_id for order in world.provider.orders] == ["11"]
    assert launch.state is S.FAILED
    assert launch.ended_because(EndReason.BUDGET)


def test_a_higher_price_under_the_threshold_is_admitted_anew(world: World) -> None:
    world.budget = Budget(max_usd_hour=Decimal("3.00"))
    world.start_process()
    world.market.script = [an_answer(an_offer(quoted_usd_hour=2.9))]
    launch = world.reserve(a_match(an_offer(quoted_usd_hour=2.4)))
    assert isinstance(launch, Launch)
    launch = world.execute(launch, a_match(), seen_s_ago=30)
    assert world.provider.orders == []
    assert launch.state is S.FAILED


def test_a_machine_that_failed_lately_is_no_next_candidate(world: World) -> None:
    world.watch = changed(RENTS, launch=LaunchSpec(ready_within_s=60.0))
    world.rent(match_on("bad", "11"))
    world.look(20, every_s=10)
    assert world.provider.alive == {}
    world.provider.on_create = [OfferGone("gone")]
    launch = world.rent(match_on("2", "22"), match_on("bad", "12"), match_on("3", "33"))
    assert [order.offer_id for order in world.provider.orders] == ["11", "22", "33"]
    assert launch.machine_id == "3"


# --- alerts to the owner ----------------------------------------------------------------------------------------------


def test_an_offer_that_became_dearer_is_reported(world: World) -> None:
    world.market.script = [an_answer(an_offer(quoted_usd_hour=3.01))]
    world.execute(reserved(world), a_match(), seen_s_ago=30)
    (alert,) = world.alerts()
    assert "not rented" in alert.headline
    assert "threshold" in alert.why


def test_offers_that_flap_are_reported_once_an_hour(world: World) -> None:
    world.provider.on_create = [OfferGone("gone")] * 3
    world.market.script = [an_answer()]
    for _ in range(3):
        world.rent()
        world.pass_s(300)
    assert world.reported() == [AlertKind.END]


# --- two processes and one row ----------------------------------------------------------------------------------------


def test_an_instance_that_another_process_found_first_is_not_recorded_twice(world: World) -> None:
    launch = reserved(world)

    def found_by_label() -> None:
        (instance_id,) = world.provider.alive
        world.repository.transition(launch, S.STARTING, "found by its label", world.now, instance_id=instance_id)

    Meddler(world, found_by_label)
    acted = world.execute(launch, a_match())
    assert (acted.state, acted.instance_id) == (S.STARTING, "9000")


def test_a_stop_that_crosses_the_request_ends_what_was_made(world: World) -> None:
    launch = reserved(world)
    Meddler(
        world,
        lambda: (
            world.repository.transition(launch, S.STOPPING, "owner", world.now, end_reason=EndReason.STOPPED.text())
            and None
        ),
    )
    acted = world.execute(launch, a_match())
    assert (acted.state, acted.instance_id) == (S.STOPPING, "9000")
    world.look(5)
    assert world.provider.alive == {}
    assert world.state(launch) is S.ENDED


def test_a_refusal_settles_a_row_that_was_believed_lost(world: World) -> None:
    """Another process took the request for dead; this one knows that nothing was created."""
    launch = reserved(world)
    Meddler(world, lambda: world.repository.transition(launch, S.UNKNOWN, "another daemon", world.now) and None)
    world.provider.on_create = [OrderRefused("no", RefusalKind.OTHER)]
    assert world.execute(launch, a_match()).state is S.FAILED


def test_an_answer_that_is_lost_leaves_what_was_found_alone(world: World) -> None:
    launch = reserved(world)
    Meddler(
        world, lambda: world.repository.transition(launch, S.STARTING, "found", world.now, instance_id="9000") and None
    )
    world.provider.on_create = [OutcomeUnknown("timeout")]
    acted = world.execute(launch, a_match())
    assert (acted.state, acted.instance_id) == (S.STARTING, "9000")


# --- bids -------------------------------------------------------------------------------------------------------------


def test_a_bid_is_the_quote_without_its_disk() -> None:
    offer = an_offer(spot=True, quoted_usd_hour=0.58, disk_usd_gb_month=9.0, quoted_disk_gb=8.0)
    assert quoted_bid_usd_hour(offer) == pytest.approx(0.48, abs=1e-9)


def test_a_bid_is_never_under_the_least_bid() -> None:
    offer = an_offer(spot=True, quoted_usd_hour=0.48, disk_usd_gb_month=None, min_bid_usd_hour=0.48000049)
    assert quoted_bid_usd_hour(offer) >= 0.48000049


def test_a_least_bid_that_leads_over_the_threshold_is_not_paid() -> None:
    offer = an_offer(spot=True, quoted_usd_hour=2.0, min_bid_usd_hour=3.2, disk_usd_gb_month=None)
    assert payable_match(a_match(offer), RENTS, Commission("0.20")) is None


def test_a_least_bid_above_the_quote_is_admitted_at_its_own_price() -> None:
    offer = an_offer(spot=True, quoted_usd_hour=2.0, min_bid_usd_hour=2.5, disk_usd_gb_month=None)
    paid = payable_match(a_match(offer), RENTS, Commission("0.20"))
    assert paid is not None
    assert paid.price.price_microusd_hour == 3_000_000


def test_a_look_while_the_order_is_on_its_way_touches_nothing_of_it(world: World) -> None:
    """Only this process knows its request; the list may show the instance before the answer arrives."""
    create, seen = world.provider.create, []

    def slow(order: Order) -> Created:
        created = create(order)
        world.look(3, every_s=200)
        seen.extend(world.repository.all())
        return created

    world.provider.create = slow  # type: ignore[method-assign]
    launch = world.rent()
    assert [(one.state, one.instance_id) for one in seen] == [(S.REQUESTED, None)]
    assert (launch.state, launch.instance_id) == (S.STARTING, "9000")
