"""Which watch of the settings corresponds to which one in the store."""

from __future__ import annotations

import pytest

from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch, WatchChanges, watch_changes
from tests.builders import a_watch


def renting(name: str, renamed_from: str | None = None) -> Watch:
    return a_watch(name=name, action=Action.LAUNCH, launch=LaunchSpec(), renamed_from=renamed_from)


def changes(
    *watches: Watch, in_use: tuple[str, ...] = ("old",), retired: tuple[str, ...] = (), alive: tuple[str, ...] = ()
) -> WatchChanges:
    return watch_changes(watches, in_use, retired, alive)


def test_what_stays_changes_nothing() -> None:
    found = changes(renting("old"), alive=("old",))
    assert found == WatchChanges(renamed={}, added=[], blocked=[], removed=[], abandoned=[])


def test_a_new_watch_is_added_and_one_that_left_is_gone() -> None:
    found = changes(renting("new"))
    assert (found.added, found.blocked, found.removed, found.abandoned) == (["new"], [], ["old"], [])


@pytest.mark.parametrize("said", [None, "another", "odl"])
def test_a_new_watch_is_held_while_a_launch_of_one_that_is_gone_is_alive(said: str | None) -> None:
    found = changes(renting("new", said), alive=("old",))
    assert (found.added, found.blocked, found.removed, found.abandoned) == ([], ["new"], ["old"], ["old"])


def test_one_that_says_that_it_is_new_is_added() -> None:
    found = changes(renting("new", ""), alive=("old",))
    assert (found.added, found.blocked, found.abandoned) == (["new"], [], ["old"])


def test_a_rename_leaves_nothing_abandoned() -> None:
    found = changes(renting("new", "old"), alive=("old",))
    assert (found.renamed, found.blocked, found.removed, found.abandoned) == ({"old": "new"}, [], [], [])


def test_a_rename_that_was_done_is_done() -> None:
    found = changes(renting("new", "old"), in_use=("new",), alive=("new",))
    assert found == WatchChanges(renamed={}, added=[], blocked=[], removed=[], abandoned=[])


def test_a_watch_that_comes_back_may_be_the_one_that_is_gone() -> None:
    found = changes(renting("back"), retired=("back",), alive=("old",))
    assert (found.added, found.blocked) == ([], ["back"])


def test_one_that_comes_back_to_its_own_launch_is_not_held() -> None:
    found = changes(renting("back"), retired=("back",), alive=("old", "back"))
    assert (found.added, found.blocked, found.abandoned) == (["back"], [], ["old"])


def test_a_watch_that_only_alerts_is_not_reported_as_held() -> None:
    assert changes(a_watch(name="new"), alive=("old",)).blocked == []


def test_watches_that_were_there_go_on() -> None:
    found = changes(renting("stays"), renting("new"), in_use=("old", "stays"), alive=("old",))
    assert (found.blocked, found.added) == (["new"], [])
