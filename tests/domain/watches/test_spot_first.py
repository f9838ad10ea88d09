"""`spot = "first"`: spot offers alone for `spot_for` after an offer on demand could first make it fire, then any."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.domain.watches.decide import (
    TRUE_NOW,
    Decision,
    DecisionReason,
    Observation,
    WatchMemory,
    after_refusal,
    after_renting,
    decide,
    same_until,
    spot_until,
    waits_until,
)
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action, SpotPolicy, Watch
from tests.builders import NOON, a_match, a_watch, an_offer
from tests.drawn import examples

MINUTE = timedelta(minutes=1)
WAITS, FIRST, STILL = DecisionReason.WAITS_FOR_SPOT, DecisionReason.FIRST_MATCH, DecisionReason.NOTHING_NEW
ALERTS = a_watch(spot=SpotPolicy.FIRST, spot_for_s=2700.0)
RENTS = msgspec.structs.replace(ALERTS, action=Action.LAUNCH, launch=LaunchSpec(max_active=1))


def a_look(at: datetime, *, spot: float | None = None, on_demand: float | None = None) -> Observation:
    """A complete poll with these offers; None: none of this type."""
    prices = ((True, spot), (False, on_demand))
    offers = [an_offer(spot=kind, quoted_usd_hour=price, offer_id=f"{kind}") for kind, price in prices if price]
    found = tuple(sorted((a_match(offer) for offer in offers), key=lambda match: match.figure))
    return Observation(matches=found, known=True, near=bool(found), observed_at=at)


class Course:
    """A watch over time; its memory passes through the store's format at each step, as after a restart."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.memory, self.now = watch, WatchMemory(), NOON

    def at(self, minute: float, *, rents: bool = True, may_rent: bool = True, **offers: Any) -> DecisionReason:
        self.now = NOON + minute * MINUTE
        decision = self.decided(decide(self.watch, a_look(self.now, **offers), self.memory, self.now), rents, may_rent)
        self.memory = msgspec.json.decode(msgspec.json.encode(decision.memory), type=WatchMemory)
        self.decision = decision
        return decision.reason

    def decided(self, decision: Decision, rents: bool, may_rent: bool) -> Decision:
        if not self.watch.rents_alone or not decision.matches:
            return decision
        if not may_rent:
            return after_refusal(decision, self.memory)
        return after_renting(decision) if rents and decision.true_now else decision

    @property
    def took(self) -> str:
        assert self.decision.true_now
        return "spot" if self.decision.matches[0].offer.spot else "on demand"


def test_a_spot_offer_is_taken_at_once_even_if_it_is_dearer() -> None:
    course = Course(ALERTS)
    assert course.at(0, spot=2.9, on_demand=2.0) is FIRST
    assert course.took == "spot"
    assert [match.offer.spot for match in course.decision.matches] == [True], "nothing falls back to one on demand"


def test_an_offer_on_demand_waits_and_is_taken_when_the_time_is_over() -> None:
    course = Course(ALERTS)
    assert course.at(0, on_demand=2.0) is WAITS
    assert waits_until(ALERTS, course.decision) == NOON + 45 * MINUTE
    assert course.at(44.9, on_demand=2.0) is WAITS
    assert course.at(45, on_demand=2.0) is FIRST
    assert course.took == "on demand"


def test_after_the_wait_the_best_of_both_is_taken() -> None:
    course = Course(ALERTS)
    course.at(0, on_demand=2.0)
    assert course.at(45, on_demand=2.0, spot=2.1) is FIRST
    assert course.took == "on demand"


def test_the_wait_begins_anew_after_an_alert_and_after_a_rental() -> None:
    course = Course(ALERTS)
    course.at(0, on_demand=2.0)
    course.at(45, on_demand=2.0)
    assert course.at(50, on_demand=1.0) is WAITS, "it would be cheaper, and is a new reason to fire"
    renting = Course(RENTS)
    renting.at(0, on_demand=2.0)
    assert renting.at(45, on_demand=2.0) is FIRST
    assert renting.at(46, on_demand=2.0) is WAITS


def test_an_order_that_fails_does_not_begin_another_wait() -> None:
    course = Course(RENTS)
    course.at(0, on_demand=2.0)
    assert course.at(45, rents=False, on_demand=2.0) is FIRST
    assert course.at(46, on_demand=2.0) is STILL
    assert course.took == "on demand"


def test_no_time_passes_while_the_watch_may_not_rent() -> None:
    """While its machine runs, the watch could not rent; when that is lost, spot comes first again."""
    course = Course(RENTS)
    for minute in range(0, 300, 5):
        assert course.at(minute, may_rent=False, on_demand=2.0) is WAITS
    assert course.at(300, on_demand=2.0) is WAITS
    assert waits_until(RENTS, course.decision) == NOON + 345 * MINUTE


def test_a_gap_shorter_than_spot_for_keeps_the_clock_and_a_longer_one_restarts_it() -> None:
    course = Course(ALERTS)
    course.at(0, on_demand=2.0)
    for minute in (10, 15, 20, 25):
        assert course.at(minute) is DecisionReason.NO_OFFER
    assert course.at(30, on_demand=2.0) is WAITS
    assert waits_until(ALERTS, course.decision) == NOON + 45 * MINUTE
    course.at(31)
    assert course.at(76, on_demand=2.0) is WAITS
    assert waits_until(ALERTS, course.decision) == NOON + 121 * MINUTE


def test_a_job_waits_until_the_time_that_its_deadline_sets() -> None:
    watch = msgspec.structs.replace(RENTS, spot_until=NOON + 90 * MINUTE)
    course = Course(watch)
    assert course.at(0, on_demand=2.0) is WAITS
    assert waits_until(watch, course.decision) == NOON + 90 * MINUTE
    assert course.at(90, on_demand=2.0) is FIRST


def test_nothing_waits_outside_the_windows_or_before_the_hold_is_over() -> None:
    held = Course(msgspec.structs.replace(ALERTS, hold_for_s=600.0))
    assert held.at(0, on_demand=2.0) is DecisionReason.HOLDING
    assert held.at(10, on_demand=2.0) is WAITS
    assert waits_until(ALERTS, held.decision) == NOON + 55 * MINUTE
    closed = Course(msgspec.structs.replace(ALERTS, active=("20:00-21:00",)))
    assert closed.at(0, on_demand=2.0) is DecisionReason.OUTSIDE_WINDOW
    assert closed.memory.spot_wait_since is None


prices = st.sampled_from((None, 1.0, 2.0, 2.9))
steps = st.lists(st.tuples(st.integers(1, 40), prices, prices, st.booleans(), st.booleans()), min_size=1, max_size=25)


@settings(max_examples=examples(200))
@given(steps, st.sampled_from((ALERTS, RENTS)), st.integers(1, 90))
def test_on_demand_only_after_the_wait_and_never_forever(steps: list[Any], watch: Watch, spot_for_min: int) -> None:
    """What is on demand is taken only when an offer on demand has been there for `spot_for`, and then it is."""
    watch = msgspec.structs.replace(watch, spot_for_s=spot_for_min * 60.0)
    course, minute = Course(watch), 0
    for after, spot, on_demand, rents, may_rent in steps:
        minute += after
        before = course.memory
        reason = course.at(minute, rents=rents, may_rent=may_rent, spot=spot, on_demand=on_demand)
        decision, since = course.decision, before.spot_wait_since
        if reason is WAITS:
            assert spot is None
            assert on_demand is not None
            until = spot_until(watch, decision.memory, course.now)
            assert until is not None
            assert course.now < until <= course.now + spot_for_min * MINUTE
        if reason in TRUE_NOW and (watch.rents_alone or decision.fires) and decision.matches[0].offer.spot is False:
            assert since is not None
            assert course.now - since >= spot_for_min * MINUTE
        if until := same_until(watch, a_look(course.now, spot=spot, on_demand=on_demand), decision):
            later = min(until - timedelta(seconds=1), course.now + MINUTE)
            if later > course.now and not watch.rents_alone:
                again = decide(watch, a_look(later, spot=spot, on_demand=on_demand), decision.memory, later)
                assert (again.reason, again.memory) == (reason, decision.memory)
