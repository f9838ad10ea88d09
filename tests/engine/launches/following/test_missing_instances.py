"""A launch that no list shows: further queries, and the proof that nothing exists."""

from __future__ import annotations

import pytest

from gpuwatch.domain.launches.instances.absence import ABSENCE_WAIT_S
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.errors import OutcomeUnknown, ProviderDown
from gpuwatch.ports import Alert, AlertKind, Instance, InstanceState
from gpuwatch.storage.setup.database import Database
from tests.builders import a_match, an_offer, changed
from tests.engine.launch_world import RENTS, World, match_on, running
from tests.engine.lying_provider import AskableProvider
from tests.engine.uow_fakes import ScriptedMarket, an_answer

S = LaunchState
MINUTE = 60.0
BEYOND_THE_WAIT = int(ABSENCE_WAIT_S / MINUTE) + 5  # polls, one a minute


@pytest.fixture
def provider() -> AskableProvider:
    return AskableProvider()


@pytest.fixture
def world(sqlite_database: Database, provider: AskableProvider) -> World:
    return World(sqlite_database, changed(RENTS, launch=LaunchSpec(max_active=2, max_total=0)), provider)


def lost(world: World) -> Launch:
    """An order whose answer never came, and that was not carried out."""
    world.provider.on_create = [OutcomeUnknown("502")]
    launch = world.rent()
    world.market.asked.clear()
    return launch


def offer_is_back(world: World, **changes: object) -> None:
    world.for_rent.script = [an_answer(an_offer(**changes))]


def held(world: World) -> list[Alert]:
    return [alert for alert in world.alerts() if alert.kind is AlertKind.HELD]


# --- a formerly listed instance, in an account without others ---------------------------------------------------------


def test_what_lists_and_its_id_do_not_know_is_gone_within_two_minutes(world: World, provider: AskableProvider) -> None:
    """S9: an instance that its host ended stayed `running` forever, and kept its slot."""
    launch = running(world)
    provider.alive.clear()
    world.look(11, every_s=10.0)
    found = world.repository.get(launch.launch_id)
    assert found is not None
    assert (found.state, found.ended_because(EndReason.GONE)) == (S.ENDED, True)


def test_one_bad_moment_of_lists_and_ids_ends_nothing(world: World, provider: AskableProvider) -> None:
    launch = running(world)
    [one] = provider.alive.values()
    provider.alive.clear()
    world.look(5, every_s=10.0)
    provider.alive[one.instance_id] = one
    world.look(2, every_s=10.0)
    provider.alive.clear()
    world.look(5, every_s=10.0)
    assert world.state(launch) is S.RUNNING


def test_two_that_end_at_one_moment_are_both_gone(world: World, provider: AskableProvider) -> None:
    """Each is missing from the list that should prove the other gone."""
    launches = world.rent(match_on("1", "11")), world.rent(match_on("2", "22"))
    provider.turns(InstanceState.RUNNING)
    world.look()
    provider.alive.clear()
    world.look(12, every_s=10.0)
    assert [world.state(launch) for launch in launches] == [S.ENDED, S.ENDED]


def test_a_list_that_omits_what_answers_to_its_id_proves_nothing_about_another(
    world: World, provider: AskableProvider
) -> None:
    alive, gone = world.rent(match_on("1", "11")), world.rent(match_on("2", "22"))
    provider.turns(InstanceState.RUNNING)
    world.look()
    provider.omitted = {"9000"}
    del provider.alive["9001"]
    world.look(60, every_s=10.0)
    assert [world.state(alive), world.state(gone)] == [S.RUNNING, S.RUNNING]
    provider.omitted = set()
    world.look(11, every_s=10.0)
    assert [world.state(alive), world.state(gone)] == [S.RUNNING, S.ENDED]


def test_a_list_that_contradicts_its_id_is_reported_once_a_day(world: World, provider: AskableProvider) -> None:
    running(world)
    provider.omitted = {"9000"}
    world.alerts()
    world.look(2, every_s=10.0)
    assert world.reported() == []
    world.look(40, every_s=30.0)
    [alert] = world.alerts()
    assert (alert.kind, "gives contradictory answers" in alert.headline) == (AlertKind.BLIND, True)


# --- a provider without lookups ---------------------------------------------------------------------------------------


def test_without_an_answer_to_its_id_a_list_alone_does_not_end_it(sqlite_database: Database) -> None:
    """S2: consistent lists omitted one of two, and a third was rented."""
    world = World(sqlite_database, changed(RENTS, launch=LaunchSpec(max_active=2, max_total=0)))
    gone = world.rent(match_on("1", "11")), world.rent(match_on("2", "22"))
    world.provider.turns(InstanceState.RUNNING)
    world.look()
    del world.provider.alive["9000"]
    world.look(BEYOND_THE_WAIT, every_s=MINUTE)
    assert world.state(gone[0]) is S.RUNNING
    assert [alert.subject for alert in held(world)] == [gone[0].launch_id]
    offer_is_back(world, machine_id="1", offer_id="11")
    world.look(4, every_s=MINUTE)
    assert world.state(gone[0]) is S.ENDED


# --- an order whose answer was lost -----------------------------------------------------------------------------------


def test_an_account_without_others_proves_it_by_offer_and_balance(world: World, provider: AskableProvider) -> None:
    """S9: it was held until the owner intervened."""
    provider.balance_usd = 100.0
    offer_is_back(world)
    launch = lost(world)
    world.look(29, every_s=MINUTE)
    assert world.state(launch) is S.UNKNOWN
    assert world.for_rent.asked == []  # searches cost rows: none before they count
    world.look(5, every_s=MINUTE)
    found = world.repository.get(launch.launch_id)
    assert found is not None
    assert (found.state, found.ended_because(EndReason.ABSENT)) == (S.FAILED, True)
    [event] = [event for event in world.repository.events(launch.launch_id) if event.to_state is S.FAILED]
    assert event.provider_words == "its offer can be rented again; the balance does not pay for it"


@pytest.mark.parametrize("other", [{"offer_id": "1002"}, {"spot": True, "min_bid_usd_hour": 1.0}])
def test_other_gpus_of_that_machine_for_rent_prove_nothing(
    world: World, provider: AskableProvider, other: dict[str, object]
) -> None:
    provider.balance_usd = 100.0
    offer_is_back(world, **other)
    launch = lost(world)
    world.look(BEYOND_THE_WAIT + 10, every_s=MINUTE)
    assert world.state(launch) is S.HELD


def test_one_kind_of_evidence_alone_is_held(world: World) -> None:
    offer_is_back(world)
    launch = lost(world)
    world.look(12, every_s=MINUTE)
    assert world.state(launch) is S.HELD
    assert len(held(world)) == 1


def test_a_balance_that_falls_though_nothing_is_listed_is_held_and_said(
    world: World, provider: AskableProvider
) -> None:
    provider.balance_usd = 100.0
    offer_is_back(world)
    world.provider.foreign("1")
    world.look()
    provider.alive["1"] = changed(provider.alive["1"], listed_usd_hour=1.0)
    launch = lost(world)
    for _ in range(BEYOND_THE_WAIT + 15):
        provider.balance_usd -= 4.0 / 60
        world.look(1, every_s=MINUTE)
    assert world.state(launch) is S.HELD
    [alert] = held(world)
    assert "the balance falls as if the instance was paid for" in alert.why


def test_sources_that_fail_prove_nothing(world: World, provider: AskableProvider) -> None:
    provider.balance_usd = 100.0
    world.for_rent = ScriptedMarket(ProviderDown("503"))
    world.start_process()
    launch = lost(world)
    world.look(BEYOND_THE_WAIT + 10, every_s=MINUTE)
    assert world.state(launch) is S.HELD


def test_a_new_process_starts_the_proof_again(world: World, provider: AskableProvider) -> None:
    provider.balance_usd = 100.0
    offer_is_back(world)
    launch = lost(world)
    world.look(29, every_s=MINUTE)
    world.start_process()
    world.look(29, every_s=MINUTE)
    assert world.state(launch) is S.UNKNOWN
    world.look(5, every_s=MINUTE)
    assert world.state(launch) is S.FAILED


# --- an unaccounted instance ------------------------------------------------------------------------------------------


def unaccounted(world: World, label: str | None = "my training", **changes: object) -> None:
    """The instance of the lost order, with its label removed in the console."""
    world.provider.alive["9500"] = changed(
        Instance(instance_id="9500", label=label, state=InstanceState.RUNNING, status="running", machine_id="77"),
        **changes,
    )


def test_nothing_is_proven_while_an_instance_of_nobody_stands_on_its_machine(
    world: World, provider: AskableProvider
) -> None:
    """S7: a second instance was rented for one intent."""
    provider.balance_usd = 100.0
    offer_is_back(world)
    world.provider.foreign("1")
    world.look()
    launch = lost(world)
    unaccounted(world)
    world.look(12, every_s=MINUTE)
    assert world.state(launch) is S.HELD
    [alert] = held(world)
    assert f"If it exists: gpuwatch launches resolve {launch.launch_id} --adopt 9500" in alert.can_do
    assert "instance 9500 belongs to no launch and may be it" in alert.why
    world.look(BEYOND_THE_WAIT, every_s=MINUTE)
    assert world.state(launch) is S.HELD


def test_what_the_owner_disowned_or_another_launch_has_is_accounted_for(
    world: World, provider: AskableProvider
) -> None:
    offer_is_back(world)
    first = world.rent(match_on("77", "11"))
    provider.turns(InstanceState.RUNNING, machine_id="77", gpu="H100 SXM", gpu_count=1)
    world.look()
    launch = lost(world)
    unaccounted(world)
    world.repository.mark_foreign("vastai", "9500", world.now)
    world.look(BEYOND_THE_WAIT, every_s=MINUTE)
    assert (world.state(first), world.state(launch)) == (S.RUNNING, S.FAILED)


def test_what_was_there_before_the_order_is_not_its_instance(world: World) -> None:
    offer_is_back(world)
    unaccounted(world)
    world.look()
    world.pass_s(1)
    launch = lost(world)
    world.look(BEYOND_THE_WAIT, every_s=MINUTE)
    assert world.state(launch) is S.FAILED


def test_what_carries_the_label_of_another_launch_is_that_ones(world: World) -> None:
    offer_is_back(world)
    world.provider.foreign("1")
    world.look()
    launch = lost(world)
    unaccounted(world, label="gpuwatch-" + "z" * 12)
    world.look(BEYOND_THE_WAIT, every_s=MINUTE)
    assert world.state(launch) is S.FAILED


def test_an_order_for_several_gpus_is_asked_for_as_it_was(world: World, provider: AskableProvider) -> None:
    offer_is_back(world)
    provider.foreign("1")
    world.look()
    provider.on_create = [OutcomeUnknown("502")]
    world.rent(a_match(an_offer(gpu_count=4)))
    world.look(BEYOND_THE_WAIT, every_s=MINUTE)
    [query, *_] = world.for_rent.asked
    assert (query.gpus, query.count_min, query.count_max, query.spot) == (("H100 SXM",), 4, 4, False)
