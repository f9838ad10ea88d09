"""Approvals as rows: requested once, answered once, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from sqlalchemy import func, select

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.launches.life.owner_decisions import Approval, ApprovalState
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.storage.launches import approval_rows as approvals
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.schema.launch_side_tables import approval as asks_table
from gpuwatch.storage.setup.tables import launch as launches_table
from gpuwatch.storage.setup.tables import launch_event
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.builders import NOON, a_match, a_watch, an_offer

WATCH = a_watch(action=Action.ASK, launch=LaunchSpec(max_runtime_s=3600.0, max_active=5, max_total=0))
FIRST, SECOND, THIRD = "a" * 12, "b" * 12, "c" * 12
MINUTE = timedelta(minutes=1)
RACERS, ROUNDS = 4, 8


def match(listed: float = 3.0, machine: str = "77", offer_id: str = "1001") -> Match:
    return a_match(an_offer(machine_id=machine, offer_id=offer_id, quoted_usd_hour=listed))


def put(
    store: Database,
    approval_id: str,
    *matches: Match,
    budget: Budget = Budget(),  # noqa: B008
    after: timedelta = timedelta(0),
    ignores_denials: bool = False,
    watch: Watch = WATCH,
) -> Approval | LaunchRefusal | None:
    first, *others = matches or (match(),)
    intent = Intent(watch=watch, match=first, launch_id=approval_id, dry_run=False, alternatives=tuple(others))
    now = NOON + after
    with SqlDecisionStore(store).open() as page:
        return page.request_approval(intent, budget, now + 15 * MINUTE, now, ignores_denials)


def asked(store: Database, approval_id: str, *matches: Match, **how: Any) -> Approval:
    got = put(store, approval_id, *matches, **how)
    assert isinstance(got, Approval)
    return got


def approve(store: Database, ask: Approval, budget: Budget = Budget(), after: timedelta = MINUTE) -> Any:  # noqa: B008
    intent = Intent(watch=WATCH, match=ask.match, launch_id=ask.approval_id, dry_run=False)
    return SqlApprovalRepository(store).approve(ask.approval_id, intent, budget, NOON + after)


def over(store: Database, launch: Launch) -> None:
    """Its slot is free again."""
    stopping = SqlLaunchRepository(store).transition(launch, LaunchState.STOPPING, "a test", NOON)
    SqlLaunchRepository(store).transition(
        stopping, LaunchState.ENDED, "a test", NOON, ended_at=NOON, end_reason="stopped by the owner"
    )


def launches(store: Database) -> int:
    return len(SqlLaunchRepository(store).all())


def read(store: Database, approval_id: str) -> Approval:
    found = SqlApprovalRepository(store).get(approval_id)
    assert found is not None
    return found


# --- requests ---------------------------------------------------------------------------------------------------------


def test_an_ask_comes_back_as_it_was_written(database: Database) -> None:
    ask = asked(database, FIRST)
    assert read(database, FIRST) == ask
    assert (ask.state, ask.deadline, ask.match) == (ApprovalState.OPEN, NOON + 15 * MINUTE, match())


def test_trying_whether_it_could_be_rented_leaves_no_launch(database: Database) -> None:
    asked(database, FIRST)
    with database.read() as connection:
        counts = [
            connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (launches_table, launch_event, asks_table)
        ]
    assert counts == [0, 0, 1]


def test_what_budget_or_limits_forbid_is_not_asked(database: Database) -> None:
    got = put(database, FIRST, budget=Budget(max_usd_hour=Decimal("3.5")))
    assert isinstance(got, LaunchRefusal)
    assert got.reason is RefusalReason.MAX_USD_HOUR
    assert SqlApprovalRepository(database).get(FIRST) is None


@pytest.mark.parametrize("listed", [3.0, 2.9])
def test_the_same_offer_at_the_same_or_a_lower_price_is_asked_once(database: Database, listed: float) -> None:
    asked(database, FIRST)
    again = asked(database, SECOND, match(listed, offer_id="2002"), after=MINUTE)
    assert (again.approval_id, SqlApprovalRepository(database).get(SECOND)) == (FIRST, None)


def test_the_same_offer_at_a_higher_price_is_asked_anew_and_the_old_quote_is_over(database: Database) -> None:
    asked(database, FIRST, match(2.5))
    assert asked(database, SECOND, match(2.6), after=MINUTE).approval_id == SECOND
    old = read(database, FIRST)
    assert old.state is ApprovalState.REFUSED
    assert SECOND in (old.words or "")


def test_another_rental_type_count_or_machine_is_another_question(database: Database) -> None:
    asked(database, FIRST)
    assert asked(database, SECOND, match(machine="78", offer_id="2")).approval_id == SECOND
    two = a_match(an_offer(gpu_count=2, quoted_usd_hour=6.0))
    assert asked(database, THIRD, two).approval_id == THIRD


def test_an_expired_question_is_asked_again(database: Database) -> None:
    asked(database, FIRST)
    assert asked(database, SECOND, after=15 * MINUTE).approval_id == SECOND
    assert read(database, FIRST).state is ApprovalState.EXPIRED


def test_a_machine_that_another_launch_has_is_passed_over(database: Database) -> None:
    approve(database, asked(database, FIRST))
    assert asked(database, SECOND, match(), match(machine="78", offer_id="2")).match.offer.machine_id == "78"


# --- denying ----------------------------------------------------------------------------------------------------------


def test_a_denied_offer_is_not_asked_again_at_any_price_and_the_next_best_is(database: Database) -> None:
    asked(database, FIRST)
    assert SqlApprovalRepository(database).deny(FIRST, "too far away", NOON + MINUTE)
    assert put(database, SECOND, match(1.0), after=2 * MINUTE) is None
    assert (
        asked(database, SECOND, match(1.0), match(machine="78", offer_id="2"), after=2 * MINUTE).approval_id == SECOND
    )
    assert read(database, FIRST).words == "too far away"


def test_the_silence_ends_after_a_day_or_when_the_watch_is_armed_anew(database: Database) -> None:
    asked(database, FIRST)
    SqlApprovalRepository(database).deny(FIRST, "", NOON)
    day = timedelta(hours=24)
    assert put(database, SECOND, after=day - MINUTE) is None
    assert asked(database, SECOND, after=day + MINUTE).approval_id == SECOND
    SqlApprovalRepository(database).deny(SECOND, "", NOON + day + MINUTE)
    assert asked(database, THIRD, after=day + 2 * MINUTE, ignores_denials=True).approval_id == THIRD
    SqlApprovalRepository(database).mark_refused(THIRD, "gone", NOON)
    assert asked(database, "d" * 12, after=day + 3 * MINUTE).approval_id == "d" * 12  # … and it stays forgotten


def test_a_silence_from_a_clock_that_ran_ahead_does_not_last_for_years(database: Database) -> None:
    asked(database, FIRST)
    SqlApprovalRepository(database).deny(FIRST, "", NOON + timedelta(days=400))
    assert asked(database, SECOND, after=MINUTE).approval_id == SECOND


def test_another_watch_is_not_silenced(database: Database) -> None:
    asked(database, FIRST)
    SqlApprovalRepository(database).deny(FIRST, "", NOON)
    assert asked(database, SECOND, watch=msgspec.structs.replace(WATCH, name="other")).approval_id == SECOND


def test_a_late_denial_counts_and_a_second_one_changes_nothing(database: Database) -> None:
    asked(database, FIRST)
    asked(database, SECOND, match(machine="78", offer_id="2"), after=16 * MINUTE)  # records that FIRST expired
    assert SqlApprovalRepository(database).deny(FIRST, "no", NOON + 17 * MINUTE)
    assert not SqlApprovalRepository(database).deny(FIRST, "really no", NOON + 18 * MINUTE)
    assert read(database, FIRST).words == "no"


def test_hostile_words_are_cleaned(database: Database) -> None:
    asked(database, FIRST)
    SqlApprovalRepository(database).deny(FIRST, "no\x1b[31m" + "x" * 5000, NOON)
    words = read(database, FIRST).words or ""
    assert "\x1b" not in words
    assert len(words) <= 200


# --- approving --------------------------------------------------------------------------------------------------------


def test_an_approval_writes_the_launch_under_the_asks_own_id(database: Database) -> None:
    launch = approve(database, asked(database, FIRST))
    assert isinstance(launch, Launch)
    assert (launch.launch_id, launch.state) == (FIRST, LaunchState.REQUESTED)
    ask = read(database, FIRST)
    assert (ask.state, ask.launch_id, ask.answered_at) == (ApprovalState.APPROVED, FIRST, NOON + MINUTE)


def test_a_refused_approval_leaves_the_ask_open_and_no_launch(database: Database) -> None:
    ask = asked(database, FIRST)
    got = approve(database, ask, Budget(max_usd_hour=Decimal("1")))
    assert isinstance(got, LaunchRefusal)
    assert (read(database, FIRST), launches(database)) == (ask, 0)
    assert isinstance(approve(database, ask), Launch)


def test_a_late_approval_launches_nothing(database: Database) -> None:
    assert approve(database, asked(database, FIRST), after=15 * MINUTE) is None
    assert launches(database) == 0


def test_a_doubled_approval_launches_nothing_more(database: Database) -> None:
    ask = asked(database, FIRST)
    assert isinstance(approve(database, ask), Launch)
    assert approve(database, ask) is None
    assert launches(database) == 1


def test_a_denied_a_refused_and_an_unknown_ask_launch_nothing(database: Database) -> None:
    denied, refused = asked(database, FIRST), asked(database, SECOND, match(machine="78", offer_id="2"))
    SqlApprovalRepository(database).deny(FIRST, "", NOON)
    SqlApprovalRepository(database).mark_refused(SECOND, "gone", NOON)
    unknown = msgspec.structs.replace(denied, approval_id=THIRD)
    assert [approve(database, ask) for ask in (denied, refused, unknown)] == [None, None, None]
    assert launches(database) == 0


def due(store: Database, after: timedelta, fired_after: timedelta = timedelta(0)) -> bool:
    with store.read() as connection:
        return approvals.is_request_due(connection, "h100", NOON + fired_after, NOON + after, NOON + after)


def test_a_refused_quote_leaves_its_question_open_for_an_hour_or_until_it_is_asked_again(database: Database) -> None:
    first = asked(database, "a" * 12)
    assert not due(database, MINUTE)
    assert SqlApprovalRepository(database).mark_refused(first.approval_id, "dearer", NOON + MINUTE)
    assert due(database, 2 * MINUTE)
    assert not due(database, 62 * MINUTE)
    asked(database, "b" * 12, after=2 * MINUTE)
    assert not due(database, 3 * MINUTE)
    assert not due(database, -24 * 60 * MINUTE, fired_after=-24 * 60 * MINUTE)  # the clock was set back


def test_what_was_not_asked_when_the_watch_fired_is_due_until_it_is(database: Database) -> None:
    assert due(database, MINUTE)
    asked(database, FIRST, after=2 * MINUTE)
    assert not due(database, 3 * MINUTE)
    assert not due(database, 60 * MINUTE, fired_after=5 * MINUTE)  # it was open when the watch fired again
    assert due(database, 60 * MINUTE, fired_after=40 * MINUTE)  # it had expired by then
    assert SqlApprovalRepository(database).deny(FIRST, "", NOON + 4 * MINUTE)
    assert not due(database, 6 * MINUTE)
    assert due(database, 6 * MINUTE, fired_after=5 * MINUTE)


def test_open_and_recent_asks_are_listed_newest_first(database: Database) -> None:
    asked(database, FIRST)
    asked(database, SECOND, match(machine="78", offer_id="2"), after=timedelta(days=5))
    later = NOON + timedelta(days=10)
    SqlApprovalRepository(database).mark_refused(FIRST, "gone", later)
    assert [ask.approval_id for ask in SqlApprovalRepository(database).recent(NOON + timedelta(days=6))] == [
        SECOND,
        FIRST,
    ]
    assert [ask.approval_id for ask in SqlApprovalRepository(database).recent(later)] == [SECOND]
    week = NOON + timedelta(days=7)
    assert len(SqlApprovalRepository(database).recent(week)) == 2
    assert len(SqlApprovalRepository(database).recent(week + MINUTE)) == 1


# --- races ------------------------------------------------------------------------------------------------------------


def race(url: str, jobs: list[Callable[[Database], Any]]) -> list[Any]:
    """Run each job on its own connection, all started at the same moment, like several processes."""
    found: list[Any] = []
    gate = threading.Barrier(len(jobs))

    def one(job: Callable[[Database], Any]) -> None:
        store = open_database(url)
        try:
            SqlApprovalRepository(store).recent(NOON)  # connected
            gate.wait()
            found.append(job(store))
        finally:
            store.close()

    threads = [threading.Thread(target=one, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(jobs)
    return found


def test_approvals_at_the_same_moment_launch_once(database: Database, database_url: str) -> None:
    for n in range(ROUNDS):
        approval_id = "race" + "abcdefgh"[n] * 8
        ask = asked(database, approval_id, match(machine=str(n), offer_id=str(n)))
        got = race(database_url, [lambda store, ask=ask: approve(store, ask)] * RACERS)
        assert sorted(type(one).__name__ for one in got) == ["Launch"] + ["NoneType"] * (RACERS - 1)
        over(database, next(one for one in got if one))
    assert launches(database) == ROUNDS


def test_an_approval_and_a_denial_at_the_same_moment_leave_one_answer(database: Database, database_url: str) -> None:
    for n in range(ROUNDS):
        before = launches(database)
        ask = asked(database, "deny" + "abcdefgh"[n] * 8, match(machine=str(n), offer_id=str(n)))
        jobs: list[Callable[[Database], Any]] = [
            lambda store, ask=ask: isinstance(approve(store, ask), Launch),
            lambda store, ask=ask: SqlApprovalRepository(store).deny(ask.approval_id, "", NOON + MINUTE),
        ]
        assert sorted(race(database_url, jobs)) == [False, True]
        answered = read(database, ask.approval_id)
        assert launches(database) - before == (answered.state is ApprovalState.APPROVED)
        if answered.launch_id is not None:
            launch = SqlLaunchRepository(database).get(answered.launch_id)
            assert launch is not None
            over(database, launch)


def test_two_daemons_that_fire_at_the_same_moment_ask_once(database: Database, database_url: str) -> None:
    for n in range(ROUNDS):
        offer = match(machine=str(n), offer_id=str(n))
        ids = [letter * 4 + "abcdefgh"[n] * 8 for letter in "wxyz"]
        got = race(
            database_url,
            [lambda store, approval_id=approval_id, offer=offer: put(store, approval_id, offer) for approval_id in ids],
        )
        assert len({ask.approval_id for ask in got}) == 1
    assert len(SqlApprovalRepository(database).recent(NOON)) == ROUNDS
