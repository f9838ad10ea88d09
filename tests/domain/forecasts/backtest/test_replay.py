"""The replay: the daemon's decisions, poll by poll, without any knowledge of the future."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.forecasts.backtest.known_offers import KnownOffers, WatchPoll
from gpuwatch.domain.forecasts.backtest.replayed_candidates import find_candidates
from gpuwatch.domain.forecasts.backtest.replayed_offers import replayed_offer
from gpuwatch.domain.history.market_history import MarketHistory, MarketPoll
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.match import is_near, matches, price_for
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from tests.domain.forecasts.backtest.replayed_market import (
    START_S,
    a_renting_rule,
    a_rule,
    a_setting,
    a_story,
    history_of,
    played,
    reported,
    together,
)

HOUR = 3600
TWENTY = {"vastai": Commission("0.20")}


def test_it_fires_when_an_offer_comes_under_the_threshold_and_is_quiet_while_it_stands() -> None:
    market_history = history_of([(0, {"a": 3.0}), (600, {"a": 2.0}), (1200, {"a": 2.0}), (1800, {})])
    assert reported(played(market_history, a_rule())[0]) == [
        (0, "no_offer", None, None, 0),
        (600, "first_match", "a", 2.0, 0),
        (1200, "nothing_new", "a", 2.0, 0),
        (1800, "no_offer", None, None, 0),
    ]


def test_what_is_cheaper_by_less_than_improve_by_is_no_news() -> None:
    market_history = history_of([(0, {"a": 2.0}), (60, {"a": 1.95}), (120, {"a": 1.9})])
    assert [step[1] for step in reported(played(market_history, a_rule(improve_by=0.05))[0])] == [
        "first_match",
        "nothing_new",
        "cheaper",
    ]


def test_two_looks_without_an_offer_arm_it_again_one_does_not() -> None:
    one = history_of([(0, {"a": 2.0}), (60, {}), (120, {"a": 2.0})])
    two = history_of([(0, {"a": 2.0}), (60, {}), (120, {}), (180, {"a": 2.0})])
    assert reported(played(one, a_rule())[0])[-1][1] == "nothing_new"
    assert reported(played(two, a_rule())[0])[-1][1] == "first_match"


def test_hold_for_and_windows_are_kept_on_the_virtual_clock() -> None:
    market_history = history_of([(minute * 60, {"a": 2.0}) for minute in range(0, 180, 10)])
    held = reported(played(market_history, a_rule(hold_for_s=1800.0))[0])
    assert [step[:2] for step in held] == [(0, "holding"), (1800, "first_match"), (2400, "nothing_new")]
    later = reported(played(market_history, a_rule(active=("14:00-15:00",)))[0])
    assert [step[:2] for step in later] == [(0, "outside_window"), (7200, "first_match"), (7800, "nothing_new")]


def test_a_failed_look_is_no_data_and_arms_nothing() -> None:
    market_history = history_of([(0, {"a": 2.0}), (60, None), (120, None), (180, None), (240, {"a": 2.0})])
    assert [step[1] for step in reported(played(market_history, a_rule())[0])] == [
        "first_match",
        "no_data",
        "nothing_new",
    ]


def test_what_nobody_asked_for_hours_is_not_believed_any_more() -> None:
    other = history_of([(hours * HOUR, {}) for hours in range(1, 12)], spot=True)
    market_history = history_of([(0, {"a": 2.0}), (1, {"a": 2.0})])
    both = msgspec.structs.replace(market_history, polls=sorted([*market_history.polls, *other.polls]))
    steps = reported(played(both, a_rule(spot=SpotPolicy.ANY))[0])
    assert [step[:2] for step in steps] == [(0, "first_match"), (1, "nothing_new"), (4 * HOUR, "no_offer")]


def test_where_the_daemon_hunts_sweeps_are_for_the_history_alone() -> None:
    market_history = history_of([(0, {"a": 3.0}), (60, {"a": 3.0}), (90, {"a": 2.0}), (120, {"a": 2.0})])
    lanes = ["sweep", "hunt", "sweep", "hunt"]
    polls = [poll._replace(lane=lane, gpu="H100 SXM") for poll, lane in zip(market_history.polls, lanes, strict=True)]
    hunted = msgspec.structs.replace(market_history, polls=polls)
    assert [step[:2] for step in reported(played(market_history, a_rule())[0])][1] == (90, "first_match")
    assert [step[:2] for step in reported(played(hunted, a_rule())[0])][1] == (120, "first_match")


def test_a_hunt_proves_no_absence() -> None:
    polls = [MarketPoll(START_S + at, "vastai", "", False, True, lane="hunt") for at in (0, 60, 120)]
    market_history = MarketHistory(listings=(), intervals=[], polls=polls, source="t")
    assert [step[1] for step in reported(played(market_history, a_rule())[0])] == ["no_data"]


def test_of_two_providers_asked_in_one_second_the_cheaper_is_the_first_match() -> None:
    market_history = together(history_of([(0, {"a": 1.5})]), history_of([(0, {"b": 1.0})], provider="runpod"))
    assert reported(played(market_history, a_rule())[0]) == [(0, "first_match", "b", 1.0, 0)]
    assert reported(played(market_history, a_rule(providers=("vastai",)))[0]) == [(0, "first_match", "a", 1.5, 0)]


def test_a_miss_is_a_round_of_both_providers() -> None:
    one = history_of([(0, {"a": 2.0}), (60, {}), (120, {}), (180, {"a": 2.0})])
    both = together(one, history_of([(30, {}), (200, {})], provider="runpod"))
    assert reported(played(one, a_rule())[0])[-1][1] == "first_match", "two misses armed it"
    assert reported(played(both, a_rule())[0])[-1][1] == "nothing_new", "the other provider was asked once meanwhile"


def test_a_provider_that_fails_leaves_what_the_other_shows() -> None:
    good, bad = (
        history_of([(0, {"a": 2.0}), (60, {"a": 2.0})]),
        history_of([(0, {"b": 1.0}), (60, None)], provider="runpod"),
    )
    steps = reported(played(together(good, bad), a_rule())[0])
    assert [step[:3] for step in steps] == [(0, "first_match", "b"), (60, "nothing_new", "a")]
    gone = reported(played(together(history_of([(0, {}), (60, {})]), bad), a_rule())[0])
    assert [step[1] for step in gone] == ["first_match", "no_data"]


def test_a_launch_lives_its_time_and_then_the_watch_rents_again() -> None:
    market_history = history_of([(hour * HOUR, {"a": 1.0, "b": 1.5}) for hour in range(6)])
    watch_replay = played(market_history, a_renting_rule(hours=2.0))[0]
    assert [(step[0], step[2]) for step in reported(watch_replay) if step[4]] == [
        (0, "a"),
        (2 * HOUR, "a"),
        (4 * HOUR, "a"),
    ]
    assert watch_replay.refused["max_active"] == 6, "after each launch, and while one runs, its slot is taken"


def test_max_total_and_the_job_s_length_bind() -> None:
    market_history = history_of([(hour * HOUR, {"a": 1.0}) for hour in range(9)])
    twice = a_renting_rule(launch=LaunchSpec(max_total=2, max_runtime_s=4.0 * HOUR))
    watch_replay = played(market_history, twice, job=timedelta(hours=1))[0]
    assert [step[0] for step in reported(watch_replay) if step[4]] == [0, HOUR]
    assert watch_replay.refused["max_total"] > 0


def test_two_slots_take_two_offers_of_one_look() -> None:
    market_history = history_of([(0, {"a": 1.0, "b": 1.5, "c": 1.9})])
    watch_replay = played(
        market_history, a_renting_rule(launch=LaunchSpec(max_active=2, max_total=0, max_runtime_s=HOUR))
    )[0]
    assert [match.offer.machine_id for _, match in watch_replay.steps[0].begun] == ["a", "b"]


def test_watches_share_the_budget() -> None:
    market_history = history_of([(0, {"a": 1.0, "b": 1.5})])
    watches = [a_renting_rule(name="first"), a_renting_rule(name="second")]
    first, second = played(market_history, *watches, budget=Budget(max_usd_hour=Decimal("2.00")))
    assert len(first.steps[0].begun) == 1
    assert (second.steps[0].begun, second.refused) == ((), {"max_usd_hour": 1})


def test_the_daily_budget_is_free_again_the_next_day() -> None:
    market_history = history_of([(hour * HOUR, {"a": 1.0}) for hour in range(0, 36, 2)])
    watch = a_renting_rule(hours=2.0)
    watch_replay = played(market_history, watch, budget=Budget(max_usd_day=Decimal("4.07")))[0]
    begun = [step[0] / HOUR for step in reported(watch_replay) if step[4]]
    assert begun == [0, 2, 12, 14], "two of 2 $ a day; midnight is 12 hours after noon"
    assert watch_replay.refused["max_usd_day"] > 0


def test_nothing_is_rented_where_nothing_can_be() -> None:
    market_history = history_of([(0, {"a": 1.0})])
    assert reported(played(market_history, a_renting_rule(), able=lambda found: ())[0]) == [
        (0, "first_match", "a", 1.0, 0)
    ]


def test_the_limit_may_change_with_time() -> None:
    market_history = history_of([(minute * 60, {"a": 1.5}) for minute in range(3)])

    def limit(watch: Watch, now: datetime) -> tuple[Watch, float]:
        return msgspec.structs.replace(watch, max_price_usd_gpu_hour=Decimal(next(rising))), now.timestamp() + 60

    rising = iter(["1.0", "1.4", "1.5"])
    assert [step[:2] for step in reported(played(market_history, a_rule(2.0), limit=limit)[0])] == [
        (0, "no_offer"),
        (120, "first_match"),
    ]


def test_what_is_answered_while_the_decision_stands_counts_for_the_round() -> None:
    """The second provider fails; when it answers again, the first one has been asked meanwhile: a second miss."""
    first = history_of([(0, {"a": 2.0}), (60, {}), (80, {}), (95, {"a": 2.0})])
    second = history_of([(10, {}), (65, {}), (70, None), (90, {})], provider="runpod")
    assert reported(played(together(first, second), a_rule())[0])[-1][:2] == (95, "first_match")


RULES = (
    a_rule(),
    a_rule(1.9, rearm=1.2, hold_for_s=600.0),
    a_rule(2.0, repeat_every_s=3600.0),
    a_renting_rule(2.0, hours=3.0),
)


@given(a_story(), st.integers(0, 30 * HOUR))
def test_cutting_the_future_off_changes_nothing_before_it(looks: list, cut_s: int) -> None:
    market_history = history_of(looks)
    budget = Budget(max_usd_day=Decimal("9.00"))
    for watch in RULES:
        whole = played(market_history, watch, budget=budget)[0]
        cut = played(market_history.before(START_S + cut_s), watch, budget=budget)[0]
        assert reported(cut) == [step for step in reported(whole) if step[0] < cut_s]
        assert list(cut.cheapest) == list(whole.cheapest)[: len(cut.cheapest)]
        assert list(cut.taken) == list(whole.taken)[: len(cut.taken)]


@given(a_story(), a_story(10))
def test_a_decision_is_left_out_only_where_it_would_be_the_same(looks: list, others: list) -> None:
    """With a limit that may change at any time, every poll is decided."""
    market_history = together(history_of(looks), history_of(others, provider="runpod"))
    rules = (*RULES, a_rule(1.9, hold_for_s=3600.0, repeat_every_s=7200.0), a_rule(2.0, active=("13:00-15:30",)))
    budget = Budget(max_usd_day=Decimal("9.00"))
    ours = played(market_history, *rules, budget=budget)
    theirs = played(market_history, *rules, budget=budget, limit=lambda watch, now: (watch, -inf))
    assert ours == theirs


@given(a_story())
def test_the_known_offers_shows_at_each_look_what_the_watch_s_own_rules_find_in_all_that_stands(looks: list) -> None:
    market_history, watch = history_of(looks), a_rule(1.9, rearm=1.2)
    found = find_candidates(watch, market_history, TWENTY, 8.0)
    known_offers = KnownOffers(watch, found)
    query = known_offers.query(("vastai", "H100 SXM", False))
    for poll in market_history.polls:
        known_offers.apply(WatchPoll([query], 10**9, False, poll.proves_absence, poll.failed), poll.at_s)
        standing = [
            replayed_offer(market_history.listings[interval.listing], interval, 8.0)
            for interval in market_history.intervals
            if interval.from_s <= poll.at_s and (interval.ended_s is None or interval.ended_s > poll.at_s)
        ]
        standing = [] if poll.failed else standing
        now = standing[0].observed_at if standing else None
        assert known_offers.under == (matches(watch, standing, TWENTY, now) if now else ())
        assert known_offers.best_under(Decimal("1.9")) == known_offers.under[:1]
        assert known_offers.near == (is_near(watch, standing, TWENTY, now) if now else False)
        lowest = min((price_for(watch, offer, TWENTY).price_microusd_hour for offer in standing), default=None)
        assert known_offers.cheapest == (lowest and pytest.approx(lowest, abs=1))


def test_a_launch_of_a_replay_is_an_ordinary_launch() -> None:
    watch_replay = played(history_of([(0, {"a": 1.0})]), a_renting_rule())[0]
    launch, match = watch_replay.steps[0].begun[0]
    assert isinstance(launch, Launch)
    assert (launch.price_microusd_hour, launch.machine_id) == (1_000_000, match.offer.machine_id)


def test_a_setting_says_how_old_an_answer_may_be() -> None:
    setting = a_setting(max_ages={"gcp": timedelta(days=1)})
    assert (setting.age_of("gcp"), setting.age_of("vastai")) == (timedelta(days=1), timedelta(hours=3))
