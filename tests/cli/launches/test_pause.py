"""`gpuwatch watches pause`, `resume` and `machines`: the owner's controls, beside a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec
import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.cli import Exit
from gpuwatch.daemon.service_manager import pause_summary
from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.launches.life.refused_scopes import SkippedScope
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import RefusalScope
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.renting_blocks import SqlSkippedScopes
from gpuwatch.storage.setup.database import Database, open_database
from tests.builders import a_match, a_watch, an_offer
from tests.cli.conftest import Shell
from tests.reserving import launch_or_refusal
from tests.upgraded_store import open_upgraded

NOW = real_now()  # as the commands read it
WATCHES = """
[[watch]]
name = "h100"
gpu = ["H100"]
max_price = 3.6
[[watch]]
name = "other one"
gpu = ["A100"]
max_price = 1.0
"""


@pytest.fixture
def store(shell: Shell) -> Iterator[Database]:
    url = f"sqlite:///{shell.folder}/gpuwatch.db"
    shell.settings(f'database_url = "{url}"\n' + WATCHES)
    opened = open_upgraded(url)
    yield opened
    opened.close()


def reserve(
    store: Database, watch: str = "h100", machine: str = "77", launch_id: str = "a" * 12, at: datetime | None = None
) -> Launch | LaunchRefusal:
    rents = a_watch(name=watch, action=Action.LAUNCH, launch=LaunchSpec(max_active=9, max_total=0, max_runtime_s=60.0))
    match = a_match(an_offer(offer_id=f"of-{launch_id}", machine_id=machine))
    intent = Intent(watch=rents, match=match, launch_id=launch_id, dry_run=False)
    with store.write() as connection:
        return launch_or_refusal(connection, intent, Budget(), at or real_now())


def fail(store: Database, machine: str = "77", launch_id: str = "a" * 12, at: datetime = NOW) -> Launch:
    launch = reserve(store, machine=machine, launch_id=launch_id, at=at)
    assert isinstance(launch, Launch)
    text = EndReason.NOT_READY.text("stuck in loading")
    return SqlLaunchRepository(store).transition(launch, LaunchState.FAILED, text, at, ended_at=at, end_reason=text)


# --- pause and resume -------------------------------------------------------------------------------------------------


def test_a_pause_refuses_every_rent_until_it_is_resumed(shell: Shell, store: Database) -> None:
    ran = shell("pause", "--why", "on holiday")
    assert (ran.code, "Renting is paused until you resume it (on holiday)" in ran.out) == (0, True)
    refused = reserve(store)
    assert isinstance(refused, LaunchRefusal)
    assert (refused.reason, "on holiday" in refused.text) == (RefusalReason.PAUSED, True)
    assert shell("resume").code == 0
    assert isinstance(reserve(store), Launch)


def test_a_pause_of_one_watch_lets_the_others_rent(shell: Shell, store: Database) -> None:
    assert shell("pause", "h100").code == 0
    assert isinstance(reserve(store, "h100"), LaunchRefusal)
    assert isinstance(reserve(store, "other one"), Launch)


def test_a_slip_in_a_name_pauses_nothing_and_says_so(shell: Shell, store: Database) -> None:
    ran = shell("pause", "h100-nihgt")
    assert (ran.code, "h100" in ran.err) == (2, True)
    assert isinstance(reserve(store), Launch)


def test_resume_of_a_watch_leaves_the_global_pause(shell: Shell, store: Database) -> None:
    shell("pause")
    shell("pause", "h100")
    ran = shell("resume", "h100")
    assert (ran.code, "Renting is paused until you resume it" in ran.out) == (0, True)
    assert isinstance(reserve(store), LaunchRefusal)


def test_json_names_scope_times_and_reason(shell: Shell, store: Database) -> None:
    (one,) = shell("pause", "h100", "--for", "2h", "--why", "tests", "--json").json
    assert (one["kind"], one["watch"], one["why"]) == ("hand", "h100", "tests")
    until, since = (datetime.fromisoformat(one[key]) for key in ("until", "since"))
    assert until - since == timedelta(hours=2)
    assert shell("resume", "h100", "--json").json == []


@pytest.mark.parametrize("text", ["0s", "soon", "-1h", ""])
def test_a_length_that_is_none_is_wrong_usage(shell: Shell, store: Database, text: str) -> None:
    assert shell("pause", f"--for={text}").code == 2
    assert isinstance(reserve(store), Launch)


def test_resume_of_what_is_not_paused_is_no_fault(shell: Shell, store: Database) -> None:
    ran = shell("resume")
    assert (ran.code, ran.out) == (0, "renting was not paused\n")


def test_launches_and_doctor_say_that_renting_is_paused(shell: Shell, store: Database) -> None:
    shell("pause", "--for", "2h")
    listed = shell("launches", "--json")
    assert (listed.json, "Renting is paused until" in listed.err) == ([], True)
    found = {one["area"]: one for one in shell("doctor", "--json").json}
    assert found["renting"]["state"] == "note"
    assert "gpuwatch watches resume" in found["renting"]["text"]


def test_resume_closes_a_breaker_at_once(shell: Shell, store: Database) -> None:
    for n in range(3):
        fail(store, machine=f"m{n}", launch_id="abc"[n] * 12, at=NOW - timedelta(minutes=20 - 5 * n))
    refused = reserve(store, machine="new", launch_id="d" * 12)
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.BREAKER
    assert "3 launches failed within 30 minutes" in shell("launches").err
    assert shell("resume", "h100").out.startswith("watch 'h100' resumed")
    assert isinstance(reserve(store, machine="new", launch_id="d" * 12), Launch)


def test_the_daemons_status_names_every_pause_and_its_end(shell: Shell, store: Database) -> None:
    assert pause_summary(SqlPauseRepository(store).load(), NOW) is None
    shell("pause", "other one", "--for", "2h")
    shell("pause")
    said = pause_summary(SqlPauseRepository(store).load(), real_now())
    assert said is not None
    assert said.startswith("renting PAUSED, other one PAUSED until ")
    assert pause_summary(SqlPauseRepository(store).load(), NOW + timedelta(hours=3)) == "renting PAUSED"


def test_a_name_with_a_blank_is_quoted_in_what_to_type(shell: Shell, store: Database) -> None:
    assert "gpuwatch watches resume 'other one'" in shell("pause", "other one").out


# --- machines ---------------------------------------------------------------------------------------------------------


def test_a_machine_that_failed_is_listed_with_its_launch_and_end(shell: Shell, store: Database) -> None:
    fail(store)
    (one,) = shell("machines", "--json").json
    assert (one["machine_id"], one["reason"], one["launch_id"]) == ("77", "failed", "a" * 12)
    assert "stuck in loading" in one["why"]
    until, since = (datetime.fromisoformat(one[key]) for key in ("until", "since"))
    assert until - since == timedelta(days=1)
    assert "77" in shell("machines").out


def test_how_launches_went_is_listed_by_machine(shell: Shell, store: Database) -> None:
    assert shell("machines", "--reputation").out == "no launches of the last 90 days to rate a machine by\n"
    fail(store)
    (one,) = shell("machines", "--reputation", "--json").json
    assert (one["machine_id"], one["good"], one["failed"], one["reputation"]) == ("77", 0, 1, 0.72)
    assert "0.720" in shell("machines", "--reputation").out
    assert shell("machines", "--reputation", "--scopes").code == Exit.USAGE
    shell("machines", "forgive", "77")
    assert shell("machines", "--reputation", "--json").json == []


def test_what_a_refusal_was_about_is_listed_until_it_expires(shell: Shell, store: Database) -> None:
    now = real_now()
    scope = SkippedScope(
        provider="aws",
        scope=RefusalScope.REGION_FAMILY,
        key="us-east-1 P on demand",
        why="VcpuLimitExceeded",
        since=now,
        until=now + timedelta(hours=1),
        launch_id="a" * 12,
    )
    assert shell("machines", "--scopes").out == "nothing is skipped\n"
    SqlSkippedScopes(store).skip(scope)
    (one,) = shell("machines", "--scopes", "--json").json
    assert (one["provider"], one["scope"], one["key"]) == ("aws", "region_family", "us-east-1 P on demand")
    assert (one["why"], one["launch_id"], one["watch"]) == ("VcpuLimitExceeded", "a" * 12, None)
    assert "us-east-1 P on demand" in shell("machines", "--scopes").out
    shell("resume")
    assert shell("machines", "--scopes", "--json").json == []


def test_a_forgiven_machine_is_rented_again(shell: Shell, store: Database) -> None:
    fail(store)
    assert isinstance(reserve(store, launch_id="b" * 12), LaunchRefusal)
    assert "not running in time" in shell("machines", "forgive", "77").out
    assert isinstance(reserve(store, launch_id="b" * 12), Launch)
    assert shell("machines").out == "no machine is blocked\n"


def test_a_blocked_machine_is_never_rented_and_only_allow_lifts_it(shell: Shell, store: Database) -> None:
    assert shell("machines", "block", "77", "--for", "7d", "--why", "slow disk").code == 0
    refused = reserve(store)
    assert isinstance(refused, LaunchRefusal)
    assert (refused.reason, "machines allow 77" in refused.text) == (RefusalReason.MACHINE_FAILED, True)
    assert shell("machines", "forgive", "77").code == 2
    assert isinstance(reserve(store), LaunchRefusal)
    assert shell("machines", "allow", "77").code == 0
    assert isinstance(reserve(store), Launch)


def test_a_provider_that_is_not_enabled_is_wrong_usage(shell: Shell, store: Database) -> None:
    assert shell("machines", "block", "77", "--provider", "nowhere").code == 2
    assert shell("machines", "block", " ").code == 2


def test_what_one_owners_key_was_refused_is_not_refused_to_another(sqlite_database: Database) -> None:
    """The empty balance of one account held back the launches of the other owner, who has another account."""
    lab = open_database(sqlite_database.url)
    lab.owner, now = "lab", NOW.replace(microsecond=0)
    whole = SkippedScope(
        provider="vastai",
        scope=RefusalScope.ACCOUNT,
        key="",
        why="no credit",
        since=now,
        until=now + timedelta(hours=1),
    )
    own, others = SqlSkippedScopes(sqlite_database), SqlSkippedScopes(lab)
    own.skip(whole)
    assert (own.in_force(now), others.in_force(now)) == ([whole], [])
    others.skip(whole)
    others.skip(msgspec.structs.replace(whole, watch="lab::h100"))
    assert [one.watch for one in others.in_force(now)] == [None, "lab::h100"]
    SqlPauseRepository(sqlite_database).resume(None, now, "by hand")
    assert (own.in_force(now), len(others.in_force(now))) == ([], 2)
    lab.close()
