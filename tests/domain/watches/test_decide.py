"""Whether a watch fires: all reasons, and a watch's memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.domain.watches.decide import (
    FIRING_REASONS,
    Decision,
    DecisionReason,
    Observation,
    WatchMemory,
    decide,
    same_until,
)
from gpuwatch.domain.watches.watch import Watch
from tests.builders import NOON, a_match, a_watch, an_offer
from tests.drawn import examples

HOUR = timedelta(hours=1)
REPORTED = WatchMemory(fired_at=NOON - HOUR, fired_microusd_gpu_hour=3_600_000.0, under_since=NOON - HOUR)


def a_look(*listed: float, **changes: Any) -> Observation:
    """A complete poll with an H100 at each of these listed prices."""
    found = tuple(a_match(an_offer(quoted_usd_hour=price)) for price in sorted(listed))
    plain: dict[str, Any] = {"matches": found, "known": True, "near": bool(found), "observed_at": NOON}
    return Observation(**(plain | changes))


BLIND = a_look(known=False)


def reason(look: Observation, memory: WatchMemory, now: datetime = NOON, **watch: Any) -> DecisionReason:
    return decide(a_watch(**watch), look, memory, now).reason


class Player:
    """A watch over time, with its memory stored like in the store."""

    def __init__(self, **watch: Any) -> None:
        self.watch: Watch = a_watch(**watch)
        self.memory = WatchMemory()
        self.now = NOON

    def sees(self, *listed: float, after: timedelta = timedelta(minutes=5), **look: Any) -> DecisionReason:
        self.now += after
        return self.decides(a_look(*listed, observed_at=self.now, **look)).reason

    def decides(self, look: Observation) -> Decision:
        decision = decide(self.watch, look, self.memory, self.now)
        self.memory = msgspec.json.decode(msgspec.json.encode(decision.memory), type=WatchMemory)
        assert self.memory == decision.memory
        return decision


@pytest.mark.parametrize(
    ("look", "memory", "watch", "expected"),
    [
        (a_look(3.0), WatchMemory(), {}, DecisionReason.FIRST_MATCH),
        (a_look(2.85), REPORTED, {}, DecisionReason.CHEAPER),
        (a_look(2.86), REPORTED, {}, DecisionReason.NOTHING_NEW),
        (a_look(3.0), REPORTED, {}, DecisionReason.NOTHING_NEW),
        (a_look(3.0), REPORTED, {"repeat_every_s": 3600.0}, DecisionReason.REPEAT_DUE),
        (a_look(3.0), REPORTED, {"repeat_every_s": 3601.0}, DecisionReason.NOTHING_NEW),
        (a_look(3.0), REPORTED, {"repeat_every_s": None}, DecisionReason.NOTHING_NEW),
        (a_look(2.85), REPORTED, {"repeat_every_s": 3600.0}, DecisionReason.CHEAPER),
        (a_look(2.7), REPORTED, {"improve_by": 0.1}, DecisionReason.CHEAPER),
        (a_look(2.71), REPORTED, {"improve_by": 0.1}, DecisionReason.NOTHING_NEW),
        (a_look(2.999), REPORTED, {"improve_by": 0.0}, DecisionReason.CHEAPER),
        (a_look(3.0), REPORTED, {"improve_by": 0.0}, DecisionReason.NOTHING_NEW),
        (a_look(2.0), WatchMemory(fired_at=NOON - HOUR), {}, DecisionReason.NOTHING_NEW),  # at an unknown price
        (a_look(3.0), WatchMemory(), {"hold_for_s": 60.0}, DecisionReason.HOLDING),
        (a_look(3.0), WatchMemory(under_since=NOON - HOUR), {"hold_for_s": 3600.0}, DecisionReason.FIRST_MATCH),
        (a_look(3.0), WatchMemory(under_since=NOON - HOUR), {"hold_for_s": 3601.0}, DecisionReason.HOLDING),
        (a_look(3.0), WatchMemory(), {"active": ("13:00-14:00",)}, DecisionReason.OUTSIDE_WINDOW),
        (a_look(3.0), WatchMemory(), {"active": ("11:00-12:01",)}, DecisionReason.FIRST_MATCH),
        (a_look(2.0), REPORTED, {"active": ("13:00-14:00",)}, DecisionReason.OUTSIDE_WINDOW),
        (a_look(), WatchMemory(), {}, DecisionReason.NO_OFFER),
        (a_look(), REPORTED, {"active": ("13:00-14:00",)}, DecisionReason.NO_OFFER),
        (BLIND, WatchMemory(), {}, DecisionReason.NO_DATA),
        (BLIND, REPORTED, {"repeat_every_s": 1.0}, DecisionReason.NO_DATA),
    ],
)
def test_the_reason_of_one_look(
    look: Observation, memory: WatchMemory, watch: dict[str, Any], expected: DecisionReason
) -> None:
    decision = decide(a_watch(**watch), look, memory, NOON)
    assert decision.reason is expected
    fires = {"first_match", "restocked", "cheaper", "repeat_due"}
    assert decision.fires is (expected.value in fires)
    assert decision.true_now is (expected.value in {*fires, "nothing_new"})


def test_a_decision_names_the_matches_cheapest_first_also_when_it_is_quiet() -> None:
    decision = decide(a_watch(), a_look(3.0, 2.9), REPORTED, NOON)
    assert decision.reason is DecisionReason.NOTHING_NEW
    assert decision.best is decision.matches[0]
    assert decision.best.offer.quoted_usd_hour == 2.9


def test_a_watch_fires_if_it_is_true_at_the_start_and_is_quiet_while_nothing_is_new() -> None:
    watch = Player()
    assert [watch.sees(3.0) for _ in range(4)] == [DecisionReason.FIRST_MATCH] + 3 * [DecisionReason.NOTHING_NEW]


def test_it_reminds_no_more_often_than_repeat_every() -> None:
    watch = Player(repeat_every_s=900.0)
    reported = [watch.sees(3.0) for _ in range(7)]
    assert [reason.name for reason in reported] == (
        ["FIRST_MATCH", "NOTHING_NEW", "NOTHING_NEW", "REPEAT_DUE", "NOTHING_NEW", "NOTHING_NEW", "REPEAT_DUE"]
    )


def test_cheaper_is_measured_against_the_price_last_reported() -> None:
    """Small steps add up: 2 % is not reported, 6 % since the last report is."""
    watch = Player()
    assert [watch.sees(price) for price in (3.0, 2.94, 2.88, 2.82, 2.76)] == [
        DecisionReason.FIRST_MATCH,
        DecisionReason.NOTHING_NEW,
        DecisionReason.NOTHING_NEW,
        DecisionReason.CHEAPER,
        DecisionReason.NOTHING_NEW,
    ]


def test_a_price_that_goes_up_and_back_is_no_news() -> None:
    watch = Player()
    assert [watch.sees(price) for price in (2.5, 3.0, 2.5)] == [DecisionReason.FIRST_MATCH] + 2 * [
        DecisionReason.NOTHING_NEW
    ]


def test_one_miss_does_not_arm_it_again() -> None:
    watch = Player()
    assert [watch.sees(3.0), watch.sees(), watch.sees(3.0)] == [
        DecisionReason.FIRST_MATCH,
        DecisionReason.NO_OFFER,
        DecisionReason.NOTHING_NEW,
    ]


def test_two_misses_in_a_row_arm_it_again() -> None:
    watch = Player()
    seen = [watch.sees(3.0), watch.sees(), watch.sees(), watch.sees(3.0)]
    assert seen == [
        DecisionReason.FIRST_MATCH,
        DecisionReason.NO_OFFER,
        DecisionReason.NO_OFFER,
        DecisionReason.FIRST_MATCH,
    ]


def test_misses_with_a_match_between_do_not() -> None:
    watch = Player()
    seen = [watch.sees(3.0), watch.sees(), watch.sees(3.0), watch.sees(), watch.sees(3.0)]
    assert seen.count(DecisionReason.FIRST_MATCH) == 1


def test_with_rearm_above_one_a_near_offer_keeps_it_from_arming() -> None:
    """A price that fluctuates around the threshold is reported once."""
    watch = Player(rearm=1.1)
    assert watch.sees(3.0) is DecisionReason.FIRST_MATCH
    for _ in range(3):
        assert [watch.sees(near=True), watch.sees(near=True), watch.sees(3.0)][-1] is DecisionReason.NOTHING_NEW
    assert [watch.sees(), watch.sees(near=True), watch.sees(), watch.sees(3.0)][-1] is DecisionReason.NOTHING_NEW
    assert [watch.sees(), watch.sees(), watch.sees(3.0)][-1] is DecisionReason.FIRST_MATCH


def test_no_data_is_never_a_miss() -> None:
    watch = Player()
    watch.sees(3.0)
    for _ in range(5):
        assert watch.sees(known=False) is DecisionReason.NO_DATA
    assert watch.sees(3.0) is DecisionReason.NOTHING_NEW


def test_no_data_changes_nothing_that_is_remembered() -> None:
    assert decide(a_watch(), BLIND, REPORTED, NOON + HOUR).memory == REPORTED


def test_a_match_is_a_match_although_the_rest_is_not_known() -> None:
    """A truncated answer with a matching offer proves that there is one."""
    assert reason(a_look(3.0, known=False), WatchMemory()) is DecisionReason.FIRST_MATCH


@pytest.mark.parametrize("age", [timedelta(seconds=61), timedelta(seconds=-61)])
def test_a_look_that_is_stale_or_from_the_future_is_no_data(age: timedelta) -> None:
    look = a_look(3.0, observed_at=NOON - age)
    assert decide(a_watch(), look, WatchMemory(), NOON, max_age_s=60).reason is DecisionReason.NO_DATA
    assert decide(a_watch(), look, WatchMemory(), NOON, max_age_s=61).reason is DecisionReason.FIRST_MATCH


def test_hold_for_wants_the_price_to_stay_so_long() -> None:
    watch = Player(hold_for_s=600.0)
    assert [watch.sees(3.0), watch.sees(3.0), watch.sees(3.0)] == [
        DecisionReason.HOLDING,
        DecisionReason.HOLDING,
        DecisionReason.FIRST_MATCH,
    ]


def test_a_break_starts_the_holding_anew() -> None:
    watch = Player(hold_for_s=600.0)
    watch.sees(3.0), watch.sees(3.0), watch.sees()
    assert [watch.sees(3.0), watch.sees(3.0), watch.sees(3.0)] == [
        DecisionReason.HOLDING,
        DecisionReason.HOLDING,
        DecisionReason.FIRST_MATCH,
    ]


def test_it_holds_outside_its_window_too_and_fires_when_that_opens() -> None:
    watch = Player(active=("12:15-13:00",), hold_for_s=600.0)
    assert [watch.sees(3.0), watch.sees(3.0), watch.sees(3.0)] == [
        DecisionReason.OUTSIDE_WINDOW,
        DecisionReason.OUTSIDE_WINDOW,
        DecisionReason.FIRST_MATCH,
    ]


def test_windows_are_read_in_the_zone_that_is_given() -> None:
    watch = a_watch(active=("13:00-14:00",))  # noon in UTC is 13:00 in Berlin
    assert decide(watch, a_look(3.0), WatchMemory(), NOON, "Europe/Berlin").reason is DecisionReason.FIRST_MATCH


def test_a_clock_that_steps_back_neither_silences_for_long_nor_fires_at_once() -> None:
    """Alerted "in a year": the wait for the next reminder begins now."""
    future = WatchMemory(fired_at=NOON + 9_000 * HOUR, fired_microusd_gpu_hour=3_600_000.0, under_since=NOON + HOUR)
    first = decide(a_watch(repeat_every_s=3600.0), a_look(3.0), future, NOON)
    assert first.reason is DecisionReason.NOTHING_NEW
    assert (first.memory.fired_at, first.memory.under_since) == (NOON, NOON)
    assert (
        decide(a_watch(repeat_every_s=3600.0), a_look(3.0), first.memory, NOON + HOUR).reason
        is DecisionReason.REPEAT_DUE
    )


def test_firing_remembers_when_and_at_what_gpu_price() -> None:
    look = a_look(matches=(a_match(an_offer(gpu_count=2, quoted_usd_hour=5.0)),))
    memory = decide(a_watch(gpu_count_max=2), look, WatchMemory(), NOON).memory
    assert memory == WatchMemory(fired_at=NOON, fired_microusd_gpu_hour=3_000_000.0, under_since=NOON)


@given(
    fired_at=st.none() | st.datetimes(timezones=st.just(UTC)),
    reported=st.none() | st.floats(1, 1e10),
    under_since=st.none() | st.datetimes(timezones=st.just(UTC)),
    misses=st.integers(0, 2),
)
def test_the_memory_survives_the_store(
    fired_at: datetime | None, reported: float | None, under_since: datetime | None, misses: int
) -> None:
    memory = WatchMemory(fired_at=fired_at, fired_microusd_gpu_hour=reported, under_since=under_since, misses=misses)
    assert msgspec.json.decode(msgspec.json.encode(memory), type=WatchMemory) == memory


STEPS = st.tuples(
    st.sampled_from(["match", "match", "miss", "miss", "near", "blind", "partial match"]),
    st.decimals("1.5", "3", places=2).map(float),
    st.integers(1, 1_200),  # seconds since the last poll
)


@settings(max_examples=examples(300))
@given(
    steps=st.lists(STEPS, max_size=40),
    repeat_every_s=st.none() | st.sampled_from([60.0, 1_800.0]),
    improve_by=st.sampled_from([0.0, 0.05, 0.3]),
    hold_for_s=st.sampled_from([0.0, 900.0]),
)
def test_whatever_is_seen_a_watch_speaks_only_when_it_may(
    steps: list[tuple[str, float, int]], repeat_every_s: float | None, improve_by: float, hold_for_s: float
) -> None:
    """Between two FIRST_MATCH are two consecutive complete misses; CHEAPER and REPEAT_DUE keep their distances."""
    watch = Player(repeat_every_s=repeat_every_s, improve_by=improve_by, hold_for_s=hold_for_s, rearm=1.1)
    misses, armed, reported_at, reported_price, under_since = 0, True, None, Decimal(0), None
    for kind, listed, seconds in steps:
        prices = (listed,) if "match" in kind else ()
        known = kind not in {"blind", "partial match"}
        found = watch.sees(*prices, after=timedelta(seconds=seconds), known=known, near=kind == "near" or bool(prices))
        if prices:
            misses, under_since = 0, under_since or watch.now
        elif known:
            misses, under_since = (0 if kind == "near" else misses + 1), None
        armed = armed or misses >= 2
        price = Decimal(str(listed)) * Decimal("1.2")
        held = under_since is not None and (watch.now - under_since).total_seconds() >= hold_for_s
        if found in FIRING_REASONS:
            assert prices
            assert held
        if found is DecisionReason.FIRST_MATCH:
            assert armed
        elif found is DecisionReason.CHEAPER:
            assert price <= reported_price * (1 - Decimal(str(improve_by)))
            assert price < reported_price
        elif found is DecisionReason.REPEAT_DUE:
            assert reported_at is not None
            assert repeat_every_s is not None
            assert (watch.now - reported_at).total_seconds() >= repeat_every_s
        elif found is DecisionReason.NOTHING_NEW:
            assert not armed
            assert price > reported_price * (1 - Decimal(str(improve_by))) or price >= reported_price
        assert (found is DecisionReason.NO_DATA) is (kind == "blind")
        if found in FIRING_REASONS:
            armed, reported_at, reported_price = False, watch.now, price


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.sampled_from(["near", "none", "blind", "1.0", "1.9"]), st.integers(1, 5000)), max_size=12),
    st.lists(st.integers(1, 20_000), min_size=1, max_size=6),
)
def test_until_it_says_so_the_same_observation_leads_to_the_same_decision(
    seen: list[tuple[str, int]], later: list[int]
) -> None:
    """Whatever came before, also where only a part of the queries was answered again."""
    for rule in (
        {},
        {"hold_for_s": 600.0},
        {"repeat_every_s": 3600.0, "improve_by": 0.0},
        {"active": ("11:00-13:00",)},
    ):
        watch, memory, now = a_watch(**({"repeat_every_s": None} | rule)), WatchMemory(), NOON
        for what, after_s in seen:
            now += timedelta(seconds=after_s)
            look = a_look(*([float(what)] if what[0].isdigit() else ()), known=what != "blind", near=what == "near")
            decision = decide(watch, look, memory, now)
            memory, until = decision.memory, same_until(watch, look, decision)
            for ahead_s in sorted(later):
                then = now + timedelta(seconds=ahead_s)
                for whole in (True, False):
                    again = msgspec.structs.replace(look, observed_at=then, completes_cycle=whole)
                    if until is not None and then < until:
                        same = decide(watch, again, memory, then)
                        assert (same.reason, same.matches, same.memory) == (decision.reason, look.matches, memory)
