"""Which launches a key can manage: known forever after one query, and never guessed."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.engine.launches.following.provider_account import ProviderAccount, other_account_reason
from gpuwatch.errors import ProviderDown
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.account_rows import BY_KEY, SqlAccountRepository
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON
from tests.domain.launches.guard_values import a_running_launch
from tests.storage.launches.test_launch_repository import renting, reserve


class Nameless:
    """A provider whose API states no account."""

    name = "vastai"


class Naming(Nameless):
    """One whose API does: an account, None (the key lacks the permission), or an error."""

    def __init__(self, answer: str | Exception | None) -> None:
        self.answer = answer
        self.asked = 0

    def account_id(self) -> str | None:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def account(database: Database, launcher: Nameless, key: str | None = "k1", **more: bool) -> ProviderAccount:
    return ProviderAccount(launcher, SqlAccountRepository(database), key, **more)  # type: ignore[arg-type]


def under(account_id: str | None) -> Launch:
    return a_running_launch(account_id=account_id)


def test_a_key_is_asked_about_once_in_its_life(database: Database) -> None:
    launcher = Naming("7")
    assert account(database, launcher).identify(NOON) == "7"
    launcher.answer = ProviderDown("503")
    later = account(database, launcher)
    assert later.identify(NOON + timedelta(days=30)) == "7"
    assert launcher.asked == 1


def test_an_unknown_account_owns_nothing_and_is_asked_for_again(database: Database) -> None:
    launcher = Naming(ProviderDown("503"))
    mine = account(database, launcher)
    with pytest.raises(ProviderDown):
        mine.identify(NOON)
    assert mine.own([under("7"), under(None)]) == []
    launcher.answer = "7"
    assert mine.identify(NOON) == "7"
    assert len(mine.own([under("7"), under("8"), under(None)])) == 1


def test_a_new_key_of_the_same_named_account_needs_no_word_of_the_owner(database: Database) -> None:
    assert account(database, Naming("7"), "k1").identify(NOON) == account(database, Naming("7"), "k2").identify(NOON)


def test_where_no_account_is_named_a_new_key_is_another_until_the_owner_confirms(database: Database) -> None:
    first, second = account(database, Nameless(), "k1"), account(database, Nameless(), "k2")
    launch = under(first.identify(NOON))
    other = second.identify(NOON)
    assert launch.account_id not in {None, other, "k1"}
    assert second.own([launch]) == []
    assert "another account" in (other_account_reason([launch]) or "")
    SqlAccountRepository(database).link_accounts("vastai", other, launch.account_id or "", NOON)
    assert second.own([launch]) == [launch]
    assert first.own([launch]) == [launch]


def test_launches_under_a_hash_stay_reachable_once_the_provider_names_the_account(database: Database) -> None:
    """The key lacked the permission, or an older gpuwatch did not support it."""
    launch = under(account(database, Naming(None)).identify(NOON))
    named = account(database, Naming("7"))
    assert named.identify(NOON) == "7"
    assert named.own([launch]) == [launch]


def test_credentials_without_a_key_are_asked_about_at_every_start(database: Database) -> None:
    """A chain of credentials may later belong to another account."""
    launcher = Naming("7")
    assert account(database, launcher, None).identify(NOON) == "7"
    launcher.answer = "8"
    assert account(database, launcher, None).identify(NOON) == "8"


def test_older_launches_join_the_account_whose_list_shows_one_of_them(database: Database) -> None:
    older = [reserve(database, renting(f"w{n}"), str(n), letter * 12) for n, letter in enumerate("ab")]
    mine = account(database, Naming("7"))
    mine.identify(NOON)
    assert mine.claimed(older, lambda launch: False) == []
    found = mine.claimed(older, lambda launch: launch.launch_id == "a" * 12)
    assert [launch.account_id for launch in found] == ["7", "7"]
    assert {launch.account_id for launch in SqlLaunchRepository(database).alive()} == {"7"}


def test_an_owner_who_ends_an_older_launch_vouches_for_it(database: Database) -> None:
    mine = account(database, Naming("7"), takes_older=True)
    mine.identify(NOON)
    assert len(mine.own([under(None), under("8")])) == 1


def test_a_key_is_kept_as_a_hash_of_this_installation_alone(database: Database) -> None:
    repository = SqlAccountRepository(database)
    hashed = repository.ensure_key_account("vastai", "secret-key", NOON)
    assert hashed != repository.ensure_key_account("runpod", "secret-key", NOON)
    repository.record("vastai", hashed, None, NOON)
    (row,) = repository.all()
    assert (row.account_id, row.known_by, row.same_as) == (hashed, BY_KEY, None)
    assert "secret-key" not in repr(msgspec.to_builtins(row))


def test_two_that_are_said_to_be_each_other_end_nowhere_endless(database: Database) -> None:
    repository = SqlAccountRepository(database)
    one, other = (repository.record("vastai", f"key:{n}", None, NOON) for n in "ab")
    repository.link_accounts("vastai", one, other, NOON)
    repository.link_accounts("vastai", other, one, NOON)
    assert repository.canonical_account("vastai", one) in {one, other}
