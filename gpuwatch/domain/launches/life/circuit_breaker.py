"""Stops a watch whose launches keep failing, before it wastes more money. Pure.

The breaker starts closed. FAILURE_THRESHOLD failures within FAILURE_WINDOW open it for OPEN_FOR. Then it is half-open:
one launch at a time is tried. A failed attempt opens it again; a launch that runs closes it, and so can the owner.

It counts places, not tries: failures of one machine, or of the stock of one place, count once. They say nothing about
other places, and a place that keeps failing rests by itself (`machines_and_places`). Failures of the order count each.

Only failures that a person should examine count: the machine, the order, a refusal by the provider, an instance that
does not match its offer, an instance that ends by itself with an exit code other than 0, or without an exit code within
QUICK_END (an image that crashes must not be rented again and again). Market events (an offer gone, a higher price, a
bid lost at the start, a budget, a rate limit, a request that was never sent) do not count.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec

from gpuwatch.domain.launches.instances.end_rules import exit_code
from gpuwatch.domain.launches.instances.machines_and_places import MACHINE_FAULTS, is_place_fault, place_key
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.setup.durations import format_moment

FAILURE_THRESHOLD = 3
FAILURE_WINDOW = timedelta(minutes=30)
OPEN_FOR = timedelta(hours=1)
QUICK_END = timedelta(minutes=10)
CLOCKS_DIFFER = timedelta(minutes=2)  # between the hosts of several daemons
COUNTED_REASONS = (
    *MACHINE_FAULTS,
    EndReason.BAD_ORDER,
    EndReason.NO_CREDIT,
    EndReason.KEY,
    EndReason.REFUSED,
    EndReason.ABSENT,
    EndReason.NOT_RUN,
)


class CircuitBreaker(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of one watch's breaker: when this episode began, and until when no launch is tried.

    If `until` is at or before `at`, it is closed and failures up to `at` are forgotten.
    """

    watch: str
    at: datetime
    until: datetime
    why: str = ""

    @property
    def is_closed(self) -> bool:
        """Return whether the watch rents without restrictions."""
        return self.until <= self.at

    def is_from_future(self, now: datetime) -> bool:
        """Return whether the clock was set back since it opened: its times say nothing; one launch is tried."""
        return self.at > now + CLOCKS_DIFFER

    def text(self) -> str:
        """Return the state as one line of text."""
        return f"{self.why}; gpuwatch retries once after {format_moment(self.until)}"


def is_counted_failure(launch: Launch) -> bool:
    """Return whether the breaker counts this end: it never ran, crashed, or ended by itself soon after its start."""
    if launch.dry_run or not launch.is_over:
        return False
    if launch.ended_because(EndReason.FINISHED):
        if exit_code(launch.end_reason or "") is not None:  # an exit code of 0 means that its work is done
            return False
        return launch.running_at is not None and _ended(launch) - launch.running_at < QUICK_END
    return launch.state is LaunchState.FAILED and launch.ended_because(*COUNTED_REASONS)


def after_failure(
    breaker: CircuitBreaker | None, failed: Sequence[Launch], newest: Launch, now: datetime
) -> CircuitBreaker | None:
    """Return the breaker after one more failure of its watch, or None if it does not change.

    Args:
        failed: launches of the watch that are over, including `newest`; those that do not count are skipped.
    """
    if not is_counted_failure(newest):
        return None
    if breaker is not None and not breaker.is_closed:
        is_earlier = newest.intended_at < breaker.until and not breaker.is_from_future(now)
        if is_earlier:  # requested before the breaker opened, so not a trial launch
            return None
        return CircuitBreaker(
            watch=breaker.watch,
            at=min(breaker.at, now),
            until=now + OPEN_FOR,
            why="the retry after the pause failed as well",
        )
    since = None if breaker is None else breaker.at
    last = newest_by_place(_counted_since(failed, since))[-FAILURE_THRESHOLD:]
    if len(last) < FAILURE_THRESHOLD or _idle_between(last) >= FAILURE_WINDOW:
        return None
    why = f"{FAILURE_THRESHOLD} launches failed within {FAILURE_WINDOW // timedelta(minutes=1)} minutes"
    return CircuitBreaker(watch=newest.watch, at=now, until=now + OPEN_FOR, why=why)


def after_run(breaker: CircuitBreaker | None, running: Launch, now: datetime) -> CircuitBreaker | None:
    """Return the breaker after a launch started running, or None if it does not change. Only a trial closes it."""
    if breaker is None or breaker.is_closed:
        return None
    if running.intended_at < breaker.until and not breaker.is_from_future(now):
        return None
    return closed_breaker(breaker.watch, now, f"launch {running.launch_id} runs")


def closed_breaker(watch: str, now: datetime, why: str) -> CircuitBreaker:
    """Return a breaker that is closed from now on; it forgets earlier failures."""
    return CircuitBreaker(watch=watch, at=now, until=now, why=why)


def breaker_refusal(breaker: CircuitBreaker | None, active: Sequence[Launch], now: datetime) -> LaunchRefusal | None:
    """Return why the watch must not rent, or None.

    Args:
        active: the launches of the watch that are alive.
    """
    if breaker is None or breaker.is_closed:
        return None
    resume = f"gpuwatch watches resume {shlex.quote(breaker.watch)}"
    is_from_future = breaker.is_from_future(now)
    if now < breaker.until and not is_from_future:
        return LaunchRefusal(RefusalReason.BREAKER, f"{breaker.text()}; to resume now: {resume}")
    trying = [launch.launch_id for launch in active if is_from_future or launch.intended_at >= breaker.until]
    if trying:
        return LaunchRefusal(
            RefusalReason.BREAKER,
            f"after failures, one launch is tried first: {trying[0]}; to resume normally: {resume}",
        )
    return None


def _counted_since(failed: Sequence[Launch], since: datetime | None) -> list[Launch]:
    found = [launch for launch in failed if is_counted_failure(launch) and launch.ended_at is not None]
    found = [launch for launch in found if since is None or _ended(launch) > since]
    return sorted(found, key=_ended)


def newest_by_place(failed: Sequence[Launch]) -> list[Launch]:
    """Return the newest failure of each place, and every failure that no place caused, in their order.

    Args:
        failed: the oldest first.
    """
    found: dict[object, Launch] = {}
    for number, launch in enumerate(failed):
        key = place_key(launch) if is_place_fault(launch) else number
        found.pop(key, None)
        found[key] = launch
    return list(found.values())


def _idle_between(failed: Sequence[Launch]) -> timedelta:
    """The time between failures without the duration of the attempts themselves.

    Three machines that each need 15 minutes to fail are three failures in a row.
    """
    gaps = (later.intended_at - _ended(earlier) for earlier, later in pairwise(failed))
    return sum((max(gap, timedelta(0)) for gap in gaps), timedelta(0))


def _ended(launch: Launch) -> datetime:
    return launch.ended_at or launch.intended_at
