"""An unclaimed instance blocks renting for every process on this database, until the owner settles it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal, RefusalReason
from gpuwatch.domain.launches.life.strays import UnknownInstance
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON, a_match, a_watch, an_offer
from tests.reserving import launch_or_refusal
from tests.storage.alerts.test_pauses import adoption, outbox_alert
from tests.storage.launches.test_approvals import FIRST, SECOND, asked
from tests.storage.launches.test_approvals import approve as approve_row

LABEL = "gpuwatch-" + "z" * 12 + "-otherone-watchwid"


@dataclass
class World:
    database: Database

    def __post_init__(self) -> None:
        self.repository = SqlLaunchRepository(self.database)

    def listed(self, instance_id: str, label: str = LABEL) -> None:
        self.repository.add_unknown_instance(
            UnknownInstance(
                provider="vastai", instance_id=instance_id, account_id="7", label=label, first_listed_at=NOON
            )
        )

    def reserve(self, *others: Match, dry_run: bool = False) -> Launch | LaunchRefusal:
        watch = a_watch(launch=LaunchSpec(max_active=5))
        intent = Intent(watch=watch, match=a_match(an_offer()), launch_id=FIRST, dry_run=dry_run, alternatives=others)
        with self.database.write() as connection:
            return launch_or_refusal(connection, intent, Budget(), NOON)

    def why_not(self) -> str:
        got = self.reserve()
        assert isinstance(got, LaunchRefusal)
        assert got.reason is RefusalReason.STRANGERS  # word-check: allow - a stored value
        return got.text


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


def test_nothing_is_reserved_there_and_the_next_best_elsewhere_is(world: World) -> None:
    world.listed("99")
    assert "vastai lists instances" in world.why_not()
    assert "(99)" in world.why_not()
    elsewhere = a_match(an_offer(provider="runpod", offer_id="5"))
    got = world.reserve(elsewhere)
    assert not isinstance(got, LaunchRefusal)
    assert got.provider == "runpod"


def test_a_dry_run_rents_nothing_and_is_not_held(world: World) -> None:
    world.listed("99")
    assert not isinstance(world.reserve(dry_run=True), LaunchRefusal)


def test_an_approval_stays_open(world: World) -> None:
    ask = asked(world.database, FIRST)
    world.listed("99")
    got = approve_row(world.database, ask)
    assert isinstance(got, LaunchRefusal)
    assert "(99)" in got.text
    world.repository.mark_foreign("vastai", "99", NOON)
    assert not isinstance(approve_row(world.database, ask), LaunchRefusal)


def test_the_last_check_before_the_order_sees_it(world: World) -> None:
    """Another process listed it after the reservation."""
    launch = world.reserve()
    assert not isinstance(launch, LaunchRefusal)
    assert world.repository.may_send(launch, NOON) is None
    world.listed("99")
    refused = world.repository.may_send(launch, NOON)
    assert refused is not None
    assert refused.reason is RefusalReason.STRANGERS  # word-check: allow - a stored value


def test_disowning_one_settles_its_installation_at_once(world: World) -> None:
    world.listed("99")
    world.listed("100")
    world.listed("101", "gpuwatch-" + "y" * 12)
    world.repository.mark_foreign("vastai", "99", NOON, "otherone")
    assert "(101)" in world.why_not()
    world.repository.mark_foreign("vastai", "101", NOON)
    assert not isinstance(world.reserve(), LaunchRefusal)


def test_adopting_it_settles_it_at_once(world: World) -> None:
    world.listed("99")
    assert world.repository.adopt(adoption(SECOND, "99"), NOON, outbox_alert(NOON))
    assert world.repository.unknown_instances("vastai") == []
