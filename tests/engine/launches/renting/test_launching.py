"""From the reserved intent to the end of the instance, with a provider that may lie."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest

from gpuwatch.domain.launches.instances.absence import ABSENCE_WAIT_S
from gpuwatch.domain.launches.launch import Launch, LaunchConflict, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import SpotPolicy
from gpuwatch.errors import OfferGone, OrderRateLimited, OrderRefused, OutcomeUnknown, ProviderDown, RefusalKind
from gpuwatch.ports import AlertKind, InstanceState
from gpuwatch.storage.setup.database import Database
from tests.builders import a_match, an_offer, changed
from tests.engine.launch_world import RENTS, World, end, match_on, running, stop
from tests.engine.uow_fakes import an_answer

S = LaunchState


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    return World(database)


# --- the rent ---------------------------------------------------------------------------------------------------------


def test_a_fresh_answer_is_its_own_quote_and_the_order_carries_label_disk_and_ids(world: World) -> None:
    launch = world.rent()
    (order,) = world.provider.orders
    assert launch.state is S.STARTING
    assert world.market.asked == []
    assert order.label == f"gpuwatch-{launch.launch_id}-{launch.install_id}-{launch.watch_id}"
    assert order.bid_usd_hour is None
    assert order.disk_gb == 8.0
    assert order.env["GPUWATCH_LAUNCH_ID"] == launch.launch_id


def test_an_old_answer_is_quoted_again_and_the_new_id_is_rented(world: World) -> None:
    world.market.script = [an_answer(an_offer(offer_id="2002"))]
    launch = world.reserve()
    assert isinstance(launch, Launch)
    world.pass_s(30)
    launch = world.execute(launch, a_match(), seen_s_ago=30)
    assert world.provider.orders[0].offer_id == "2002"
    assert launch.offer_id == "2002"


def test_an_offer_that_became_dearer_is_not_rented(world: World) -> None:
    world.market.script = [an_answer(an_offer(quoted_usd_hour=3.01))]
    launch = world.reserve()
    assert isinstance(launch, Launch)
    launch = world.execute(launch, a_match(), seen_s_ago=30)
    assert world.provider.orders == []
    assert launch.state is S.FAILED
    assert "threshold" in (launch.end_reason or "")


def test_a_price_that_cannot_be_checked_is_not_paid(world: World) -> None:
    world.market.script = [ProviderDown("vastai: 502")]
    launch = world.reserve()
    assert isinstance(launch, Launch)
    launch = world.execute(launch, a_match(), seen_s_ago=30)
    assert (world.provider.orders, launch.state) == ([], S.FAILED)


def test_a_gone_offer_is_followed_by_the_next_after_a_fresh_look(world: World) -> None:
    second = an_offer(machine_id="2", offer_id="22")
    world.market.script = [an_answer(second)]
    world.provider.on_create = [OfferGone("no_such_ask")]
    launch = world.rent(match_on("1", "11"), a_match(second))
    assert [order.offer_id for order in world.provider.orders] == ["11", "22"]
    assert (launch.state, launch.offer_id, launch.machine_id) == (S.STARTING, "22", "2")


def test_no_more_than_max_tries_offers_are_asked_for(world: World) -> None:
    world.watch = changed(RENTS, launch=LaunchSpec(max_tries=2, quote_ttl_s=1e9))
    offers = [an_offer(machine_id=str(n), offer_id=str(n + 100)) for n in range(5)]
    world.market.script = [an_answer(*offers)]
    world.provider.on_create = [OfferGone("gone")] * 5
    launch = world.rent(*(a_match(offer) for offer in offers))
    assert len(world.provider.orders) == 2
    assert launch.state is S.FAILED


@pytest.mark.parametrize("kind", [RefusalKind.NO_CREDIT, RefusalKind.KEY, RefusalKind.BAD_ORDER])
def test_a_refusal_that_only_a_person_can_mend_is_reported_and_not_repeated(world: World, kind: RefusalKind) -> None:
    world.provider.on_create = [OrderRefused("vastai: 400 no", kind)]
    launch = world.rent()
    assert launch.state is S.FAILED
    assert world.reported() == [AlertKind.BUDGET if kind is RefusalKind.NO_CREDIT else AlertKind.REFUSED]
    again = world.reserve()
    assert isinstance(again, LaunchRefusal)
    assert again.reason is RefusalReason.COOLING


def test_a_provider_that_rests_keeps_nobody_from_the_next_cheapest_elsewhere(world: World) -> None:
    world.provider.on_create = [OrderRefused("vastai: 400 no", RefusalKind.NO_CREDIT)]
    world.rent()
    elsewhere = a_match(an_offer(provider="lambda", offer_id="gpu_1x_h100/us-east-1", machine_id="l"))
    launch = world.reserve(match_on("1", "11"), elsewhere)
    assert isinstance(launch, Launch)
    assert (launch.provider, launch.offer_id) == ("lambda", "gpu_1x_h100/us-east-1")


def test_a_launch_that_is_pointed_at_another_offer_says_what_that_one_is(world: World) -> None:
    other = an_offer(machine_id="2", offer_id="22", gpu="H100 PCIe", gpu_count=2, quoted_usd_hour=4.0)
    world.watch = changed(world.watch, gpu_names=("H100 SXM", "H100 PCIe"), gpu_count_max=2)
    world.market.script = [an_answer(other)]
    world.provider.on_create = [OfferGone("no_such_ask")]
    launch = world.rent(match_on("1", "11"), a_match(other))
    assert (launch.offer_id, launch.gpu, launch.gpu_count) == ("22", "H100 PCIe", 2)


def test_too_many_orders_fail_this_launch_and_nothing_was_made(world: World) -> None:
    world.provider.on_create = [OrderRateLimited("429", 4.5)]
    assert world.rent().state is S.FAILED


def test_a_lost_answer_is_never_sent_again_and_found_by_its_label(world: World) -> None:
    world.provider.on_create = ["lost"]
    launch = world.rent()
    assert launch.state is S.UNKNOWN
    world.look()
    assert world.state(launch) is S.STARTING
    assert len(world.provider.orders) == 1


def test_a_contract_that_does_not_start_is_destroyed_and_reported(world: World) -> None:
    world.provider.on_create = ["stopped"]
    launch = world.rent()
    assert launch.state is S.STOPPING
    world.look(5)
    assert world.provider.alive == {}
    assert world.state(launch) is S.FAILED


def test_a_spot_rent_always_bids_and_never_ends_on_demand(world: World) -> None:
    world.watch = changed(RENTS, spot=SpotPolicy.ONLY)
    world.provider.spot_is = lambda order: False  # the marketplace still makes it on demand
    offer = an_offer(spot=True, quoted_usd_hour=2.0, min_bid_usd_hour=1.9, disk_usd_gb_month=9.0)
    launch = world.rent(a_match(offer))
    assert world.provider.orders[0].bid_usd_hour == pytest.approx(1.9)
    world.look(5)
    assert world.provider.alive == {}
    assert "on demand" in (world.repository.get(launch.launch_id) or launch).end_reason  # type: ignore[operator]


def test_a_dry_run_sends_nothing_and_takes_no_slot(world: World) -> None:
    launch = world.reserve(dry_run=True)
    assert isinstance(launch, Launch)
    world.execute(launch, a_match())
    assert world.provider.orders == []
    assert (launch.state, launch.dry_run) == (S.ENDED, True)
    assert isinstance(world.reserve(), Launch)


# --- limits and budget ------------------------------------------------------------------------------------------------


def test_one_slot_is_one_launch_while_it_lives(world: World) -> None:
    world.rent()
    refused = world.reserve(match_on("2", "22"))
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.MAX_ACTIVE


def test_max_total_counts_what_was_rented_and_not_what_failed(world: World) -> None:
    world.provider.on_create = [OrderRateLimited("429")]
    world.rent()
    world.provider.on_create = []
    launch = world.rent()
    world.provider.turns(InstanceState.RUNNING)
    world.look()
    end(world, launch)
    refused = world.reserve()
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.MAX_TOTAL


def test_two_watches_never_take_the_same_offer(world: World) -> None:
    world.rent()
    world.watch = changed(RENTS, name="other")
    refused = world.reserve()
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.OFFER_TAKEN


@pytest.mark.parametrize("state", ["unknown", "held"])
def test_the_budget_counts_what_may_have_been_made(world: World, state: str) -> None:
    world.watch = changed(RENTS, launch=LaunchSpec(max_active=5, max_total=0))
    world.provider.on_create = [OutcomeUnknown("timeout")]
    world.rent()
    if state == "held":
        world.look(200, every_s=30)
    refused = world.reserve(match_on("2", "22"), budget=Budget(max_usd_hour=Decimal("7.19")))
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.MAX_USD_HOUR


def test_the_budget_admits_exactly_its_limit(world: World) -> None:
    assert isinstance(world.reserve(budget=Budget(max_usd_hour=Decimal("3.60"))), Launch)


def test_a_day_budget_counts_the_whole_max_runtime(world: World) -> None:
    world.watch = changed(RENTS, launch=LaunchSpec(max_runtime_s=10 * 3600.0))
    """And its start, and the minutes until its end is proven."""
    assert isinstance(world.reserve(budget=Budget(max_usd_day=Decimal("36.12"))), LaunchRefusal)
    assert isinstance(world.reserve(budget=Budget(max_usd_day=Decimal("36.13"))), Launch)


def test_whoever_holds_an_old_version_cannot_move_a_launch(world: World) -> None:
    launch = world.rent()
    world.repository.transition(launch, S.RUNNING, "running", world.now, running_at=world.now)
    with pytest.raises(LaunchConflict):
        world.repository.transition(launch, S.STOPPING, "late", world.now)


# --- during its life --------------------------------------------------------------------------------------------------


def test_it_runs_when_the_provider_says_so_and_is_reported(world: World) -> None:
    launch = world.rent()
    world.provider.turns(InstanceState.RUNNING)
    world.look()
    found = world.repository.get(launch.launch_id)
    assert found is not None
    assert (found.state, found.running_at) == (S.RUNNING, world.now)
    assert world.reported() == [AlertKind.RENT]


def test_not_running_in_time_is_destroyed_and_its_machine_is_avoided(world: World) -> None:
    launch = world.rent()
    world.look(5, every_s=200)
    world.look(4)
    assert world.state(launch) is S.FAILED
    assert world.provider.alive == {}
    refused = world.reserve()
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.MACHINE_FAILED
    assert isinstance(world.reserve(match_on("77", "x"), match_on("other", "y")), Launch)


def test_max_runtime_ends_it_also_while_the_list_is_down(world: World) -> None:
    launch = running(world)
    world.provider.on_list = [ProviderDown("502")]
    world.look(1, every_s=3600)
    assert world.provider.destroys == ["9000"]
    world.look(5)
    assert world.state(launch) is S.ENDED


def test_idle_ends_it_and_a_missing_measure_is_not_zero(world: World) -> None:
    world.watch = changed(RENTS, launch=LaunchSpec(idle_below=10.0, idle_for_s=600.0))
    world.start_process()
    launch = running(world)
    world.look(10, every_s=300)
    assert world.state(launch) is S.RUNNING
    world.provider.turns(InstanceState.RUNNING, gpu_utilisation=3.0)
    world.look(3, every_s=301)
    world.look(4)
    found = world.repository.get(launch.launch_id)
    assert found is not None
    assert found.state is S.ENDED
    assert "idle" in (found.end_reason or "")


def test_a_word_that_we_do_not_know_ends_nothing(world: World) -> None:
    launch = running(world)
    world.provider.turns(InstanceState.UNKNOWN, "quantum")
    world.look(20, every_s=60)
    assert world.state(launch) is S.RUNNING
    assert world.provider.destroys == []


def test_dearer_than_admitted_once_rented_is_ended(world: World) -> None:
    world.provider.price_usd_hour = 3.30
    launch = world.rent()
    world.look(6)
    assert world.provider.alive == {}
    assert world.state(launch) is S.FAILED


# --- absence must be proven -------------------------------------------------------------------------------------------


def test_an_empty_list_never_proves_that_nothing_was_made(world: World) -> None:
    world.provider.on_create = [OutcomeUnknown("timeout")]
    launch = world.rent()
    world.look(300, every_s=30)
    assert world.state(launch) is S.HELD
    assert AlertKind.HELD in world.reported()
    assert len(world.provider.orders) == 1


def test_absence_is_proven_by_lists_with_a_canary_and_the_offer_after_the_wait(world: World) -> None:
    world.provider.foreign()
    world.for_rent.script = [an_answer(an_offer())]
    world.look()
    world.provider.on_create = [OutcomeUnknown("timeout")]
    launch = world.rent()
    world.look()  # the wait counts from the first poll
    world.look(2, every_s=ABSENCE_WAIT_S / 2 - 5)
    assert world.state(launch) is S.UNKNOWN
    world.look(4, every_s=60)
    assert world.state(launch) is S.FAILED


def test_a_broken_list_starts_the_count_anew(world: World) -> None:
    world.provider.foreign()
    world.for_rent.script = [an_answer(an_offer())]
    world.look()
    world.provider.on_create = [OutcomeUnknown("timeout")]
    launch = world.rent()
    world.look()
    world.look(1, every_s=ABSENCE_WAIT_S)
    world.look(1, every_s=60)
    world.provider.on_list = [ProviderDown("502")]
    world.look(2, every_s=60)
    assert world.state(launch) is S.UNKNOWN
    world.look(3, every_s=60)
    assert world.state(launch) is S.FAILED


def test_an_instance_that_arrives_late_is_adopted(world: World) -> None:
    world.provider.on_create = ["lost"]
    world.provider.on_list = ["empty"] * 10
    launch = world.rent()
    world.look(10, every_s=30)
    assert world.state(launch) is S.UNKNOWN
    world.look()
    assert world.state(launch) is S.STARTING


def test_a_running_instance_is_not_gone_because_one_list_misses_it(world: World) -> None:
    launch = running(world)
    world.provider.on_list = ["empty"] * 3
    world.look(4)
    assert world.state(launch) is S.RUNNING


def test_an_end_is_a_state_until_the_list_no_longer_shows_it(world: World) -> None:
    launch = running(world)
    world.provider.destroy_works = False
    stop(world, launch)
    world.look(10, every_s=60)
    assert world.state(launch) is S.STOPPING
    assert AlertKind.HELD in world.reported()
    world.provider.destroy_works = True
    world.look(5)
    assert world.state(launch) is S.ENDED
    assert world.provider.alive == {}


# --- restarts, orphans ------------------------------------------------------------------------------------------------


def test_a_process_that_died_after_the_intent_is_taken_up_by_label(world: World) -> None:
    launch = world.reserve()
    assert isinstance(launch, Launch)
    world.start_process()
    world.look()
    assert world.state(launch) is S.UNKNOWN
    assert isinstance(world.reserve(match_on("2", "22")), LaunchRefusal)


def test_a_process_that_died_after_the_send_adopts_its_instance(world: World) -> None:
    launch = world.reserve()
    assert isinstance(launch, Launch)
    world.provider.foreign("9100", label=launch.label)
    world.start_process()
    world.look()
    found = world.repository.get(launch.launch_id)
    assert found is not None
    assert (found.state, found.instance_id) == (S.RUNNING, "9100")


def test_a_labelled_instance_that_nobody_knows_is_reported_once_and_never_destroyed(world: World) -> None:
    world.provider.foreign("5", label="gpuwatch-zzzzzzzzzzzz")
    world.look(5)
    assert world.reported() == [AlertKind.ORPHAN]
    assert world.provider.destroys == []


def test_a_label_that_only_looks_like_ours_is_reported_and_left_alone(world: World) -> None:
    world.provider.foreign("5", label="gpuwatch-mine")
    world.provider.foreign("6", label="somebody-else")
    world.look(5)
    assert world.reported() == [AlertKind.ORPHAN]
    assert world.provider.destroys == []
