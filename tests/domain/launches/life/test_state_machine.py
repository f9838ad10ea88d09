"""The life of a launch as a pure function: invariants that hold for any events in any order."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.instances.absence import AbsenceVerdict
from gpuwatch.domain.launches.launch import (
    ALLOWED_TRANSITIONS,
    EndReason,
    InstanceCondition,
    Intent,
    Launch,
    LaunchState,
    new_launch,
)
from gpuwatch.domain.launches.life.launch_events import (
    NO_TRANSITION,
    AnswerLost,
    BidRaised,
    ClockReading,
    Destroy,
    EndRequested,
    InstanceCreated,
    InstanceListed,
    InstanceUnlisted,
    LifecycleEvent,
    ListUnavailable,
    NothingCreated,
    RaiseBid,
    SlotFreed,
    TransitionResult,
    WatchTerms,
    watch_terms,
)
from gpuwatch.domain.launches.life.state_machine import transition
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.watches.launch_spec import BidSpec, LaunchSpec, PriceIncreasePolicy
from gpuwatch.domain.watches.watch import Action, AutoPrice
from tests.builders import NOON, a_match, a_watch, an_offer, changed
from tests.drawn import examples

S = LaunchState
I = InstanceState  # noqa: E741
BID = BidSpec(max_usd_gpu_hour=Decimal("3.60"), step_usd_gpu_hour=Decimal("0.10"))
RENTS = a_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=7200.0, ready_within_s=900.0, bid=BID))
SPOT = an_offer(spot=True, quoted_usd_hour=2.0, min_bid_usd_hour=2.0, disk_usd_gb_month=None)


def requested(spot: bool = False) -> Launch:
    match = a_match(SPOT) if spot else a_match()
    return new_launch(Intent(watch=RENTS, match=match, launch_id="a" * 12, dry_run=False), 0, NOON)


def alive(state: LaunchState, spot: bool = False, **changes: Any) -> Launch:
    running_at = NOON if state is S.RUNNING else None
    plain: dict[str, Any] = {"state": state, "instance_id": "7", "running_at": running_at}
    return changed(requested(spot), **(plain | changes))  # type: ignore[no-any-return]


def instance(state: InstanceState = I.RUNNING, **changes: Any) -> Instance:
    plain: dict[str, Any] = {"instance_id": "7", "label": "gpuwatch-" + "a" * 12, "state": state, "status": state.value}
    return Instance(**(plain | changes))


def at(seconds: float = 60.0) -> ClockReading:
    now = NOON + timedelta(seconds=seconds)
    return ClockReading(now, now)


def after(launch: Launch, outcome: TransitionResult) -> Launch:
    assert outcome.transition is not None
    return changed(launch, state=outcome.transition.to_state, **outcome.transition.changes)  # type: ignore[no-any-return]


# --- one rule a test --------------------------------------------------------------------------------------------------
def test_an_answer_that_comes_after_the_owner_ended_it_ends_what_was_made() -> None:
    outcome = transition(changed(requested(), state=S.STOPPING), InstanceCreated("9"), at())
    assert outcome.transition is not None
    assert (outcome.transition.to_state, outcome.transition.changes) == (S.STOPPING, {"instance_id": "9"})
    assert outcome.effects == (Destroy("9"),)


@pytest.mark.parametrize(("spot", "end"), [(True, EndReason.BID_LOST), (False, EndReason.BROKEN)])
def test_a_contract_that_stands_still_from_the_start_ends_at_once(spot: bool, end: EndReason) -> None:
    """Found by its label after a lost answer: it will not run, and its disk is billed."""
    ending = after(
        alive(S.STARTING, spot=spot),
        transition(alive(S.STARTING, spot=spot), InstanceListed(instance(I.STOPPED)), at()),
    )
    assert (ending.state, ending.ended_because(end)) == (S.STOPPING, True)


@pytest.mark.parametrize(
    ("state", "status", "end"),
    [
        (S.RUNNING, "exited", EndReason.FINISHED),
        (S.RUNNING, "exited: Exited (0) 3 minutes ago", EndReason.FINISHED),
        (S.RUNNING, "exited: Exited (137) 3 minutes ago", EndReason.CRASHED),
        (S.STARTING, "exited", EndReason.BROKEN),
    ],
)
def test_what_ends_by_itself_after_it_ran_has_finished(state: LaunchState, status: str, end: EndReason) -> None:
    launch = alive(state, running_at=NOON if state is S.RUNNING else None)
    ending = after(launch, transition(launch, InstanceListed(instance(I.EXITED, status=status)), at()))
    assert (ending.state, ending.ended_because(end)) == (S.STOPPING, True)
    over = after(ending, transition(ending, InstanceUnlisted(AbsenceVerdict.ABSENT), at(120)))
    assert over.state is (S.ENDED if end is EndReason.FINISHED else S.FAILED)
    assert over.counts is (state is S.RUNNING)


def test_a_refusal_never_fails_a_launch_whose_instance_is_known() -> None:
    assert transition(alive(S.STARTING), NothingCreated(EndReason.REFUSED.text("no")), at()) == NO_TRANSITION


def test_what_runs_unverified_is_billed_and_not_yet_its_owners() -> None:
    first = transition(alive(S.STARTING), InstanceListed(instance(), verified=False), at())
    launch = after(alive(S.STARTING), first)
    assert (launch.state, launch.running_at) == (S.STARTING, at().now)
    assert cost_microusd(launch, at(60 + 3600).now) > 3_500_000
    second = transition(launch, InstanceListed(instance(), verified=True), at(120))
    assert second.transition is not None
    assert (second.transition.to_state, second.transition.hook) == (S.RUNNING, "on_running")
    assert "running_at" not in second.transition.changes


def test_what_is_not_verified_in_time_fails_and_takes_nothing_from_max_total() -> None:
    launch = alive(S.STARTING, running_at=NOON)
    ending = transition(launch, InstanceListed(instance(), verified=False), at(901))
    launch = after(launch, ending)
    assert (launch.state, launch.end_reason) == (S.STOPPING, "its SSH port does not answer: running")
    over = transition(launch, InstanceUnlisted(AbsenceVerdict.ABSENT), at(930))
    assert over.transition is not None
    assert (over.transition.to_state, over.effects) == (S.FAILED, (SlotFreed(),))


@pytest.mark.parametrize(
    ("state", "spot", "condition"),
    [
        (I.STOPPED, False, InstanceCondition.STOPPED),
        (I.STOPPED, True, InstanceCondition.OUTBID),
        (I.OFFLINE, False, InstanceCondition.OFFLINE),
    ],
)
def test_while_it_stands_still_its_disk_alone_is_billed(
    state: InstanceState, spot: bool, condition: InstanceCondition
) -> None:
    launch = alive(S.RUNNING, spot=spot)
    launch = after(launch, transition(launch, InstanceListed(instance(state, stopped_usd_hour=0.01)), at(3600)))
    assert (launch.state, launch.condition) == (S.RUNNING, condition)
    before = cost_microusd(launch, at(3600).now)
    assert cost_microusd(launch, at(7200).now, listed=True) - cost_microusd(launch, at(3600).now, listed=True) == 10_000
    launch = after(launch, transition(launch, InstanceListed(instance()), at(7100)))
    assert (launch.condition, launch.condition_since) == (None, None)
    assert cost_microusd(launch, at(7200).now) > before


def test_outbid_it_bids_more_up_to_its_maximum_and_then_waits() -> None:
    launch = alive(S.RUNNING, spot=True, condition=InstanceCondition.OUTBID, condition_since=NOON)
    terms = WatchTerms(bid=BID)
    outbid = transition(launch, InstanceListed(instance(I.STOPPED, min_bid_usd_hour=2.05)), at(), terms)
    assert outbid.effects == (RaiseBid("7", 2_100_000),)
    raised = after(launch, transition(launch, BidRaised(2_100_000), at(), terms))
    assert (raised.bid_microusd_hour, raised.price_microusd_hour) == (2_100_000, 2_520_000)
    with_disk = changed(launch, disk_microusd_hour=100_000)
    assert after(with_disk, transition(with_disk, BidRaised(2_100_000), at(), terms)).listed_microusd_hour == 2_200_000
    assert transition(raised, InstanceListed(instance(I.STOPPED, min_bid_usd_hour=2.05)), at(), terms) == NO_TRANSITION
    assert transition(raised, InstanceListed(instance(I.STOPPED, min_bid_usd_hour=3.01)), at(), terms) == NO_TRANSITION
    last = transition(raised, InstanceListed(instance(I.STOPPED, min_bid_usd_hour=2.95)), at(), terms)
    assert last.effects == (RaiseBid("7", 2_950_000),)


def test_without_a_known_minimum_the_bid_rises_by_its_step() -> None:
    launch = alive(S.RUNNING, spot=True, condition=InstanceCondition.OUTBID, condition_since=NOON)
    outbid = transition(launch, InstanceListed(instance(I.STOPPED)), at(), WatchTerms(bid=BID))
    assert outbid.effects == (RaiseBid("7", 2_100_000),)


def test_an_outbid_launch_of_unknown_since_waits() -> None:
    launch = alive(S.RUNNING, spot=True, condition=InstanceCondition.OUTBID, max_runtime_s=None)
    listed = InstanceListed(instance(I.STOPPED, min_bid_usd_hour=9.0))
    assert transition(launch, listed, at(900.0), WatchTerms(relaunch=True)) == NO_TRANSITION


def test_no_later_settings_raise_a_bid_beyond_what_its_budget_was_admitted_on() -> None:
    launch = alive(S.RUNNING, spot=True, condition=InstanceCondition.OUTBID, condition_since=NOON)
    richer = WatchTerms(bid=BidSpec(max_usd_gpu_hour=Decimal(9), step_usd_gpu_hour=Decimal("0.10")))
    at_most = transition(launch, InstanceListed(instance(I.STOPPED, min_bid_usd_hour=2.95)), at(), richer)
    assert at_most.effects == (RaiseBid("7", 2_950_000),)
    assert transition(launch, InstanceListed(instance(I.STOPPED, min_bid_usd_hour=3.01)), at(), richer) == NO_TRANSITION


@pytest.mark.parametrize(
    ("relaunch", "waited_s", "ends"), [(True, 120, True), (True, 119, False), (False, 9000, False)]
)
def test_outbid_for_good_it_goes_elsewhere_only_if_that_is_wanted(relaunch: bool, waited_s: float, ends: bool) -> None:
    launch = alive(S.RUNNING, spot=True, condition=InstanceCondition.OUTBID, condition_since=NOON, max_runtime_s=None)
    outcome = transition(
        launch, InstanceListed(instance(I.STOPPED, min_bid_usd_hour=9.0)), at(waited_s), WatchTerms(relaunch=relaunch)
    )
    assert (outcome != NO_TRANSITION) == ends
    if ends:
        assert after(launch, outcome).end_reason == "outbid: its watch rents elsewhere"


@pytest.mark.parametrize(
    ("policy", "listed", "ends"),
    [
        (PriceIncreasePolicy.ALERT, 9.0, False),
        (PriceIncreasePolicy.STOP, 3.2, True),
        (PriceIncreasePolicy.ACCEPT_UNDER, 3.25, False),  # exactly the threshold with 20 % on top
        (PriceIncreasePolicy.ACCEPT_UNDER, 3.3, True),
        (PriceIncreasePolicy.STOP, 2.5, False),
    ],
)
def test_a_new_price_is_billed_from_then_on_or_ends_it(policy: PriceIncreasePolicy, listed: float, ends: bool) -> None:
    terms = WatchTerms(ceiling_microusd=3_900_000, on_increase=policy)
    launch = alive(S.RUNNING)
    launch = after(launch, transition(launch, InstanceListed(instance(listed_usd_hour=listed)), at(3600), terms))
    assert (launch.state is S.STOPPING) == ends
    if not ends:
        spent = cost_microusd(launch, at(7200).now, at(3600).now, listed=True)
        assert spent == round(listed * 1e6)


def test_where_to_log_in_is_recorded_once_and_only_if_it_can_be_an_address() -> None:
    """With the transition that it comes with, and alone if it is known later or changes."""
    where = {"ssh_host": "ssh6.vast.ai", "ssh_port": 41822}
    runs = after(alive(S.STARTING), transition(alive(S.STARTING), InstanceListed(instance(**where)), at()))
    assert runs.ssh is not None
    assert (runs.state, runs.ssh.command) == (S.RUNNING, "ssh -p 41822 root@ssh6.vast.ai")
    assert transition(runs, InstanceListed(instance(**where)), at()) == NO_TRANSITION
    later = transition(alive(S.RUNNING), InstanceListed(instance(ssh_host="10.0.0.7", ssh_user="ubuntu")), at())
    known = after(alive(S.RUNNING), later)
    assert (later.effects, known.ssh and known.ssh.command) == ((), "ssh -p 22 ubuntu@10.0.0.7")
    assert transition(runs, InstanceListed(instance(I.UNKNOWN, ssh_host="10.0.0.8")), at()) == NO_TRANSITION
    for hostile in ("-oProxyCommand=id", "a.b; rm -rf ~", "a b", "$(id)", "x" * 300):
        assert transition(alive(S.RUNNING), InstanceListed(instance(ssh_host=hostile)), at()) == NO_TRANSITION, hostile


def test_a_launch_that_is_in_no_list_is_reported_once_and_comes_back() -> None:
    launch = alive(S.RUNNING)
    launch = after(launch, transition(launch, InstanceUnlisted(AbsenceVerdict.CANNOT_PROVE), at()))
    assert launch.condition is InstanceCondition.UNLISTED
    assert transition(launch, InstanceUnlisted(AbsenceVerdict.CANNOT_PROVE), at()) == NO_TRANSITION
    assert after(launch, transition(launch, InstanceListed(instance()), at())).condition is None


@pytest.mark.parametrize(("action", "ceiling"), [(Action.LAUNCH, 9_000_000), (Action.ASK, 3_600_000)])
def test_what_was_approved_is_held_to_the_price_that_was_approved(action: Action, ceiling: int) -> None:
    watch = a_watch(action=action, max_price_usd_gpu_hour=Decimal(9))
    assert watch_terms(watch, requested()).ceiling_microusd == ceiling


def test_what_is_billed_from_the_start_is_held_to_what_was_rented_not_to_the_cap_of_an_auto_price() -> None:
    """A host that lists 3.60 below the limit and bills 8.00 is under the cap, but is not what was rented."""
    auto = AutoPrice(cap_usd_gpu_hour=Decimal(9), deadline_s=3600.0)
    watch = a_watch(max_price_usd_gpu_hour=Decimal(9), auto=auto)
    assert watch_terms(watch, alive(S.STARTING)).ceiling_microusd == 3_600_000
    assert watch_terms(watch, alive(S.RUNNING)).ceiling_microusd == 9_000_000


# --- any order of observations ----------------------------------------------------------------------------------------
_STATES = st.sampled_from(list(InstanceState))
_USD = st.none() | st.floats(0.01, 20.0)
_INSTANCES = st.builds(
    Instance,
    instance_id=st.just("7"),
    label=st.just("gpuwatch-" + "a" * 12),
    state=_STATES,
    status=st.just("words"),
    spot=st.none() | st.booleans(),
    listed_usd_hour=_USD,
    stopped_usd_hour=_USD,
    min_bid_usd_hour=_USD,
)
_FAULTS = st.none() | st.sampled_from([(EndReason.IDLE, "3 %"), (EndReason.OUTSIDE, "")])
_SEEN: st.SearchStrategy[LifecycleEvent] = st.one_of(
    st.builds(InstanceCreated, st.sampled_from(["7", "8"]), st.booleans()),
    st.builds(AnswerLost, st.just("timeout"), st.none() | st.just("7")),
    st.builds(NothingCreated, st.just(EndReason.REFUSED.text("no"))),
    st.builds(InstanceListed, _INSTANCES, _FAULTS, st.booleans()),
    st.builds(InstanceUnlisted, st.sampled_from(list(AbsenceVerdict))),
    st.builds(ListUnavailable, st.sampled_from(list(AbsenceVerdict))),
    st.builds(EndRequested, st.just(EndReason.STOPPED), st.just("")),
    st.builds(BidRaised, st.integers(1_000, 20_000_000)),
)


class Life(RuleBasedStateMachine):
    """One launch, and a world that may report anything at any time."""

    @initialize(spot=st.booleans(), relaunch=st.booleans(), policy=st.sampled_from(list(PriceIncreasePolicy)))
    def begin(self, spot: bool, relaunch: bool, policy: PriceIncreasePolicy) -> None:
        self.launch = requested(spot)
        self.terms = WatchTerms(ceiling_microusd=5_000_000, bid=BID, relaunch=relaunch, on_increase=policy)
        self.now = NOON
        self.hooks: list[str] = []
        self.cost = 0

    @rule(seen=_SEEN, seconds=st.sampled_from([0.0, 1.0, 30.0, 600.0, 7200.0]))
    def observe(self, seen: LifecycleEvent, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        before, outcome = self.launch, transition(self.launch, seen, ClockReading(self.now, self.now), self.terms)
        if before.is_over:
            assert outcome == NO_TRANSITION
        for effect in outcome.effects:
            self._is_ours(effect, seen)
        if outcome.transition is None:
            return
        self.launch = after(before, outcome)
        assert self.launch.state in ALLOWED_TRANSITIONS[before.state]
        looked_for = {S.HELD} if before.instance_id is None else set()
        assert before.state is not S.STOPPING or self.launch.state in {S.STOPPING, S.ENDED, S.FAILED} | looked_for
        assert before.instance_id is None or self.launch.instance_id == before.instance_id
        if outcome.transition.hook:
            self.hooks.append(outcome.transition.hook)

    def _is_ours(self, effect: object, seen: LifecycleEvent) -> None:
        if isinstance(effect, Destroy):
            named = seen.instance_id if isinstance(seen, InstanceCreated) else "7"
            assert effect.instance_id in {self.launch.instance_id, named}
        if isinstance(effect, RaiseBid):
            assert effect.bid_microusd_hour * 1.2 <= 3_600_000
            assert self.launch.state is S.RUNNING

    @invariant()
    def what_runs_has_an_instance(self) -> None:
        if self.launch.state in {S.STARTING, S.RUNNING}:
            assert self.launch.instance_id is not None

    @invariant()
    def what_it_cost_never_falls(self) -> None:
        if self.launch.state is S.FAILED and self.launch.instance_id is None:
            self.cost = 0  # nothing was created: the upper bound for the uncertain time is void
        if self.launch.state in {S.REQUESTED, S.UNKNOWN, S.HELD} or self.launch.running_at is None:
            return
        cost = cost_microusd(self.launch, self.now)
        assert cost >= self.cost
        self.cost = cost

    @invariant()
    def billing_is_in_order(self) -> None:
        since = [span.since for span in self.launch.spans]
        assert since == sorted(since)
        assert all(span.listed_microusd_hour >= 0 for span in self.launch.spans)

    @invariant()
    def each_hook_is_called_once(self) -> None:
        assert len(self.hooks) == len(set(self.hooks))


Life.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
TestLife = Life.TestCase


def test_an_instance_missing_from_the_list_ends_once_it_is_late() -> None:
    outcome = transition(alive(S.STARTING), InstanceUnlisted(AbsenceVerdict.UNPROVEN), at(901))
    assert outcome.transition is not None
    assert outcome.transition.changes["end_reason"].startswith(EndReason.NOT_READY.value)


def test_an_unavailable_list_holds_nothing_while_the_search_goes_on() -> None:
    lost = changed(requested(), state=S.UNKNOWN)
    assert transition(lost, ListUnavailable(AbsenceVerdict.UNPROVEN), at()) == NO_TRANSITION
