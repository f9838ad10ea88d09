"""When a watch with failing launches is stopped, tried again, and resumed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchState, RefusalReason, new_launch
from gpuwatch.domain.launches.life.circuit_breaker import (
    COUNTED_REASONS,
    OPEN_FOR,
    CircuitBreaker,
    after_failure,
    after_run,
    breaker_refusal,
    closed_breaker,
    is_counted_failure,
)
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from tests.builders import NOON, a_match, a_watch, changed

MINUTE = timedelta(minutes=1)
WATCH = a_watch(action=Action.LAUNCH, launch=LaunchSpec())
OPEN = CircuitBreaker(watch="h100", at=NOON, until=NOON + OPEN_FOR, why="3 launches failed")


def a_launch(at: float = 0, **changes: Any) -> Launch:
    """A launch that began some minutes after noon."""
    intent = Intent(watch=WATCH, match=a_match(), launch_id="a" * 12, dry_run=False)
    return changed(new_launch(intent, 0, NOON + at * MINUTE), **changes)  # type: ignore[no-any-return]


def failed(at: float, took: float = 0, end: EndReason = EndReason.BROKEN, machine_id: str | None = None) -> Launch:
    """A launch that ended some minutes after noon, on a machine of its own unless one is named."""
    changes = {"state": LaunchState.FAILED, "ended_at": NOON + at * MINUTE, "end_reason": end.text("its words")}
    return a_launch(at - took, **changes, machine_id=machine_id or f"machine-{at:g}")


def finished(at: float, ran: float, **changes: Any) -> Launch:
    """A launch that ended by itself some minutes after noon, after running for some minutes."""
    times = {"running_at": NOON + (at - ran) * MINUTE, "ended_at": NOON + at * MINUTE}
    plain = {"state": LaunchState.ENDED, "end_reason": EndReason.FINISHED.text("exited")}
    return a_launch(at - ran - 1, **(plain | times | changes))


def test_an_image_that_ends_soon_after_it_ran_is_not_rented_for_ever() -> None:
    assert judged(finished(5, ran=3), finished(10, ran=3), finished(15, ran=3)) is not None
    assert judged(finished(5, ran=3), failed(10), finished(15, ran=9.9)) is not None


def test_short_work_that_says_it_is_done_is_no_failure() -> None:
    done = EndReason.FINISHED.text("Exited (0) 5 seconds ago")
    assert judged(*(finished(5 * n, ran=3, end_reason=done) for n in (1, 2, 3))) is None


@pytest.mark.parametrize(("code", "opens"), [(1, True), (137, True), (0, False)])
def test_what_crashes_after_hours_is_a_failure_and_counts_as_rented(code: int, opens: bool) -> None:
    """The exit code decides, not the duration."""
    end, state = (EndReason.CRASHED, LaunchState.FAILED) if code else (EndReason.FINISHED, LaunchState.ENDED)
    words = end.text(f"exited: Exited ({code}) 5 seconds ago")
    ends = [finished(500 * n, ran=400, end_reason=words, state=state) for n in (1, 2, 3)]
    near = [changed(one, intended_at=NOON + (500 * n - 499) * MINUTE) for n, one in enumerate(ends, 1)]
    breaker = judged(*near)
    assert (breaker is not None) is opens
    assert all(one.counts for one in near)


def test_a_broken_host_without_a_code_after_it_ran_is_no_failure_of_the_watch() -> None:
    broken = EndReason.BROKEN.text("its words")
    assert judged(*(finished(5 * n, ran=3, end_reason=broken) for n in (1, 2, 3))) is None


def test_work_that_took_its_time_is_no_failure() -> None:
    assert judged(finished(15, ran=10), finished(30, ran=10), finished(45, ran=10)) is None
    assert judged(*(finished(5 * n, ran=3, end_reason=EndReason.STOPPED.text()) for n in (1, 2, 3))) is None


def judged(*launches: Launch, breaker: CircuitBreaker | None = None) -> CircuitBreaker | None:
    newest = launches[-1]
    assert newest.ended_at is not None
    return after_failure(breaker, launches, newest, newest.ended_at)


def test_the_third_failure_within_half_an_hour_opens_it_for_an_hour() -> None:
    assert judged(failed(0), failed(10)) is None
    opened = judged(failed(0), failed(10), failed(29))
    assert opened is not None
    assert (opened.at, opened.until) == (NOON + 29 * MINUTE, NOON + 89 * MINUTE)


def test_it_counts_places_not_tries() -> None:
    """Failures of one place say nothing about the others; the place rests by itself."""
    here = [failed(n, machine_id="1H100.80S.30V/FIN-01") for n in range(5)]
    assert judged(*here) is None
    assert judged(*here, failed(5, machine_id="1H100.80S.30V/FIN-02")) is None
    opened = judged(*here, failed(5, machine_id="1H100.80S.30V/FIN-02"), failed(6, machine_id="1H100.80S.30V/FIN-03"))
    assert opened is not None


@pytest.mark.parametrize("end", [EndReason.BAD_ORDER, EndReason.CRASHED, EndReason.REFUSED, EndReason.NOT_RUN])
def test_failures_of_the_order_count_each_wherever_they_happen(end: EndReason) -> None:
    assert judged(*(failed(n, end=end, machine_id="1H100.80S.30V/FIN-01") for n in range(3))) is not None


def test_three_failures_over_half_an_hour_do_not() -> None:
    assert judged(failed(0), failed(15), failed(30)) is None


def test_what_the_attempts_took_themselves_does_not_spread_them_out() -> None:
    """Three consecutive machines that are not ready within 15 minutes: over 45 minutes, without any pause."""
    row = [failed(16, took=15.5), failed(32, took=15.5), failed(48, took=15.5)]
    assert judged(*row) is not None


@pytest.mark.parametrize(
    "end",
    [
        EndReason.OFFERS_GONE,
        EndReason.NO_CAPACITY,
        EndReason.PRICE_ROSE,
        EndReason.BID_LOST,
        EndReason.OUTBID,
        EndReason.BUDGET,
        EndReason.RATE_LIMITED,
        EndReason.NOT_SENT,
        EndReason.NOT_CHECKED,
        EndReason.STOPPED,
        EndReason.PAUSED,
    ],
)
def test_what_the_market_or_the_owner_does_is_not_counted(end: EndReason) -> None:
    assert not is_counted_failure(failed(0, end=end))
    assert judged(failed(0), failed(1), failed(2, end=end)) is None


@pytest.mark.parametrize("end", COUNTED_REASONS)
def test_what_a_person_should_look_at_is(end: EndReason) -> None:
    assert judged(failed(0, end=end), failed(1, end=end), failed(2, end=end)) is not None


def test_what_ran_and_ended_is_no_failure() -> None:
    assert not is_counted_failure(changed(failed(0, end=EndReason.OFFLINE), state=LaunchState.ENDED))


def test_nothing_is_tried_before_the_rest_is_over_and_then_one_at_a_time() -> None:
    refused = breaker_refusal(OPEN, [], NOON + OPEN_FOR - MINUTE)
    assert refused is not None
    assert (refused.reason, "gpuwatch watches resume h100" in refused.text) == (RefusalReason.BREAKER, True)
    assert breaker_refusal(OPEN, [], NOON + OPEN_FOR) is None
    assert breaker_refusal(OPEN, [a_launch(60)], NOON + 61 * MINUTE) is not None
    assert breaker_refusal(OPEN, [a_launch(-30)], NOON + 61 * MINUTE) is None  # an old one is no try


def test_a_try_that_fails_opens_it_again_in_the_same_episode() -> None:
    again = judged(failed(61), breaker=OPEN)
    assert again is not None
    assert (again.at, again.until) == (NOON, NOON + 61 * MINUTE + OPEN_FOR)


def test_a_try_that_the_market_took_away_leaves_it_half_open() -> None:
    assert judged(failed(61, end=EndReason.OFFERS_GONE), breaker=OPEN) is None


def test_a_failure_of_what_was_begun_before_is_no_try() -> None:
    assert judged(failed(62, took=70), breaker=OPEN) is None


def test_a_try_that_runs_closes_it_and_its_failures_are_forgotten() -> None:
    assert after_run(OPEN, a_launch(-10), NOON + MINUTE) is None
    now_closed = after_run(OPEN, a_launch(60), NOON + 65 * MINUTE)
    assert now_closed is not None
    assert now_closed.is_closed
    assert breaker_refusal(now_closed, [], NOON + 65 * MINUTE) is None
    before = [failed(63), failed(64), failed(65)]
    assert judged(*before, failed(66), failed(67), breaker=now_closed) is None
    assert judged(*before, failed(66), failed(67), failed(68), breaker=now_closed) is not None


def test_a_closed_one_stays_closed_when_something_runs() -> None:
    assert after_run(closed_breaker("h100", NOON, "resumed"), a_launch(1), NOON + 2 * MINUTE) is None
