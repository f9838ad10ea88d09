"""An unknown instance with gpuwatch's label blocks renting until it is settled, whatever lists show meanwhile."""

from __future__ import annotations

import pytest

from gpuwatch.storage.setup.database import Database
from tests.builders import changed
from tests.engine.launch_world import RENTS, World
from tests.engine.lying_provider import AskableProvider, LyingProvider

LABEL = "gpuwatch-zzzzzzzzzzzz"


def with_unknown(database: Database, provider: LyingProvider) -> World:
    world = World(database, RENTS, provider)
    provider.foreign("1")
    provider.foreign("77", label=LABEL)
    world.look()
    assert "77" in (world.follower.not_ready() or "")
    return world


@pytest.fixture
def askable(sqlite_database: Database) -> World:
    return with_unknown(sqlite_database, AskableProvider())


@pytest.fixture
def listed_only(sqlite_database: Database) -> World:
    return with_unknown(sqlite_database, LyingProvider())


def omit(world: World) -> None:
    del world.provider.alive["77"]


@pytest.mark.parametrize("provider", [AskableProvider, LyingProvider])
def test_a_list_that_omits_it_ends_no_hold(sqlite_database: Database, provider: type[LyingProvider]) -> None:
    world = with_unknown(sqlite_database, provider())
    omit(world)
    world.look()
    assert "77" in (world.follower.not_ready() or "")


def test_it_holds_after_a_restart_whose_first_list_omits_it(listed_only: World) -> None:
    omit(listed_only)
    listed_only.start_process()
    listed_only.look()
    assert "77" in (listed_only.follower.not_ready() or "")


@pytest.mark.slow
def test_it_holds_as_long_as_it_answers_to_its_id(askable: World) -> None:
    provider = askable.provider
    assert isinstance(provider, AskableProvider)
    provider.omitted = {"77"}
    askable.look(900)
    assert "77" in (askable.follower.not_ready() or "")


def test_gone_by_its_id_for_a_minute_ends_the_hold(askable: World) -> None:
    omit(askable)
    askable.look(10)
    assert askable.follower.not_ready() is not None
    askable.look(4)
    assert askable.follower.not_ready() is None
    assert askable.repository.unknown_instances("vastai") == []


def test_without_an_answer_to_its_id_an_hour_of_whole_lists_ends_the_hold(listed_only: World) -> None:
    omit(listed_only)
    listed_only.look(58, every_s=60.0)
    assert listed_only.follower.not_ready() is not None
    listed_only.look(4, every_s=60.0)
    assert listed_only.follower.not_ready() is None


def test_empty_lists_prove_nothing(listed_only: World) -> None:
    listed_only.provider.alive.clear()
    listed_only.look(200, every_s=60.0)
    assert "77" in (listed_only.follower.not_ready() or "")


def test_a_label_that_is_edited_away_ends_no_hold(listed_only: World) -> None:
    listed_only.provider.alive["77"] = changed(listed_only.provider.alive["77"], label="mine")
    listed_only.look(200, every_s=60.0)
    assert "77" in (listed_only.follower.not_ready() or "")


def test_the_owner_ends_the_hold_of_what_is_listed_no_more(listed_only: World) -> None:
    omit(listed_only)
    listed_only.repository.mark_foreign("vastai", "77", listed_only.now)
    listed_only.look()
    assert listed_only.follower.not_ready() is None
