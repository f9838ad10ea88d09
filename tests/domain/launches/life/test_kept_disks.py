"""A machine that is stopped with its disk kept: what is sent, what is billed, when it ends, and how it starts again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.instances.absence import AbsenceVerdict
from gpuwatch.domain.launches.instances.obligation import latest_end, obligation_of
from gpuwatch.domain.launches.launch import (
    EndReason,
    InstanceCondition,
    Intent,
    Launch,
    LaunchState,
    PriceSpan,
    new_launch,
)
from gpuwatch.domain.launches.life.admission import active_check, free_slot_number
from gpuwatch.domain.launches.life.kept_disks import HALT_WITHIN, kept_after_end_s, kept_fields, started_again
from gpuwatch.domain.launches.life.launch_events import (
    ClockReading,
    Destroy,
    EndRequested,
    Halt,
    InstanceListed,
    KeepRequested,
    LifecycleEvent,
    ListUnavailable,
    Resume,
    TransitionResult,
    WatchTerms,
)
from gpuwatch.domain.launches.life.state_machine import transition
from gpuwatch.domain.launches.money.budgets import highest_rate_microusd_hour, remaining_microusd
from gpuwatch.domain.launches.money.launch_costs import burn_rate, predicted_cost
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from tests.builders import NOON, a_match, a_watch, an_offer, changed

HOUR = 3600.0
DAY = 24 * HOUR
RENTS = a_watch(action=Action.LAUNCH, disk_gb=720.0, launch=LaunchSpec(max_runtime_s=2 * HOUR, ready_within_s=900.0))
KEEPS = WatchTerms(keep_s=DAY)
SENT = WatchTerms(keep_s=DAY, is_halt_sent=True)
DISK_MICROUSD_HOUR = 100_000


def running(**changes: Any) -> Launch:
    first = new_launch(Intent(watch=RENTS, match=a_match(an_offer()), launch_id="a" * 12, dry_run=False), 0, NOON)
    rates = first.listed_microusd_hour, first.price_microusd_hour
    plain: dict[str, Any] = {
        "state": LaunchState.RUNNING,
        "instance_id": "7",
        "running_at": NOON,
        "disk_microusd_hour": DISK_MICROUSD_HOUR,
        "spans": (PriceSpan(NOON, *rates),),
    }
    return changed(first, **(plain | changes))  # type: ignore[no-any-return]


def listed(state: InstanceState) -> InstanceListed:
    return InstanceListed(Instance(instance_id="7", label=None, state=state, status=state.value))


def at(seconds: float) -> ClockReading:
    now = NOON + timedelta(seconds=seconds)
    return ClockReading(now, now)


def apply(
    launch: Launch, event: LifecycleEvent, seconds: float, terms: WatchTerms = KEEPS
) -> tuple[Launch, TransitionResult]:
    outcome = transition(launch, event, at(seconds), terms)
    step = outcome.transition
    return (launch if step is None else changed(launch, state=step.to_state, **step.changes)), outcome


def stopped(seconds: float = 60.0) -> Launch:
    """Return one that its owner stopped, and whose stop a list has shown."""
    launch, _ = apply(running(), KeepRequested(DAY, "stopped by the owner"), seconds)
    return apply(launch, listed(InstanceState.STOPPED), seconds + 5)[0]


def test_a_stop_is_sent_again_until_a_list_shows_it() -> None:
    launch, outcome = apply(running(), KeepRequested(DAY, "stopped by the owner"), 60)
    assert (launch.state, launch.is_halted, launch.is_kept) == (LaunchState.RUNNING, True, False)
    assert outcome.effects == (Halt("7"),)
    for state in (InstanceState.RUNNING, InstanceState.EXITED, InstanceState.UNKNOWN, InstanceState.OFFLINE):
        same, outcome = apply(launch, listed(state), 70)
        assert (same, outcome.effects) == (launch, (Halt("7"),))
    assert apply(launch, ListUnavailable(AbsenceVerdict.UNPROVEN), 70)[1].effects == (Halt("7"),)
    assert latest_end(launch) == latest_end(running()), "the end of its run applies until the proof"


def test_the_proof_of_the_stop_moves_its_end_and_its_price() -> None:
    launch = stopped()
    assert launch.is_kept
    assert latest_end(launch) == NOON + timedelta(seconds=65 + DAY)
    assert launch.spans[-1].price_microusd_hour == launch.with_commission(DISK_MICROUSD_HOUR)
    now = NOON + timedelta(hours=3)
    assert burn_rate([launch], now).listed == DISK_MICROUSD_HOUR
    later = predicted_cost(launch, now, since=NOON + timedelta(hours=1))
    assert (later.gpu, later.disk) == (0, 2 * DISK_MICROUSD_HOUR)
    assert highest_rate_microusd_hour(launch) == launch.with_commission(DISK_MICROUSD_HOUR)
    most = remaining_microusd(launch, now, timedelta(days=2))
    assert 20 * launch.with_commission(DISK_MICROUSD_HOUR) < most < 24 * launch.with_commission(DISK_MICROUSD_HOUR)
    assert apply(launch, listed(InstanceState.STOPPED), 300)[1] == TransitionResult()
    assert obligation_of(launch, None, now).ends_at == latest_end(launch)


def test_it_takes_no_place_of_a_running_one() -> None:
    spec = LaunchSpec(max_active=1)
    assert active_check(spec, "w", [running()]).refusal is not None
    kept = stopped()
    assert active_check(spec, "w", [kept]).refusal is None
    assert free_slot_number(spec, [kept]) == 1
    starting = started_again(kept, HOUR, NOON + timedelta(hours=1))
    assert active_check(spec, "w", [starting]).refusal is not None


def test_at_the_end_of_keep_disk_for_it_is_destroyed() -> None:
    launch = stopped()
    assert apply(launch, listed(InstanceState.STOPPED), DAY)[0] == launch
    ending, outcome = apply(launch, listed(InstanceState.STOPPED), DAY + 66)
    assert (ending.state, ending.end_reason) == (LaunchState.STOPPING, EndReason.KEPT.value)
    assert outcome.effects == (Destroy("7"),)


def test_its_owner_can_destroy_it_at_any_time() -> None:
    assert apply(stopped(), EndRequested(EndReason.STOPPED), 100)[0].state is LaunchState.STOPPING


def test_on_end_stop_begins_early_enough_to_be_proven_before_the_end() -> None:
    begins = 2 * HOUR - HALT_WITHIN.total_seconds()
    assert apply(running(), listed(InstanceState.RUNNING), begins - 1)[0].kept is None
    launch, outcome = apply(running(), listed(InstanceState.RUNNING), begins)
    assert (launch.is_halted, outcome.effects) == (True, (Halt("7"),))
    kept, _ = apply(launch, listed(InstanceState.STOPPED), begins + 20)
    assert kept.is_kept
    without = apply(running(), listed(InstanceState.RUNNING), begins, WatchTerms())[0]
    assert without.kept is None


def test_what_this_process_could_not_stop_until_its_end_is_destroyed() -> None:
    launch, _ = apply(running(), listed(InstanceState.RUNNING), 2 * HOUR - 60)
    ending, outcome = apply(launch, listed(InstanceState.RUNNING), 2 * HOUR, SENT)
    assert (ending.state, outcome.effects) == (LaunchState.STOPPING, (Destroy("7"),))
    without, outcome = apply(running(), listed(InstanceState.RUNNING), 2 * HOUR, WatchTerms())
    assert (without.state, outcome.effects) == (LaunchState.STOPPING, (Destroy("7"),))


def test_what_is_found_past_its_end_is_stopped_and_its_disk_kept_from_that_end_on() -> None:
    """gpuwatch was away at the end. The stop has two minutes: nothing may go on."""
    late, outcome = apply(running(), listed(InstanceState.RUNNING), 5 * HOUR)
    assert (late.is_halted, outcome.effects) == (True, (Halt("7"),))
    again, outcome = apply(late, listed(InstanceState.RUNNING), 5 * HOUR + 60, SENT)
    assert (again, outcome.effects) == (late, (Halt("7"),))
    assert apply(late, ListUnavailable(AbsenceVerdict.UNPROVEN), 5 * HOUR + 60, SENT)[1].effects == (Halt("7"),)
    kept, _ = apply(late, listed(InstanceState.STOPPED), 5 * HOUR + 90, SENT)
    assert kept.is_kept
    assert latest_end(kept) == NOON + timedelta(hours=2, days=1)
    for event in (listed(InstanceState.RUNNING), ListUnavailable(AbsenceVerdict.UNPROVEN)):
        ending, outcome = apply(late, event, 5 * HOUR + 121, SENT)
        assert (ending.ended_because(EndReason.NOT_STOPPED), outcome.effects) == (True, (Destroy("7"),))


def test_after_the_time_for_which_its_disk_is_kept_it_is_destroyed_wherever_it_is_found() -> None:
    for state in (InstanceState.RUNNING, InstanceState.STOPPED):
        assert apply(running(), listed(state), 2 * HOUR + DAY)[0].state is LaunchState.STOPPING
        asked, _ = apply(running(), KeepRequested(DAY, "stopped by the owner"), 60)
        assert apply(asked, listed(state), 2 * HOUR + DAY)[0].state is LaunchState.STOPPING


def test_a_stop_under_way_when_gpuwatch_went_away_is_taken_up_or_recorded_past_the_end() -> None:
    asked, _ = apply(running(), KeepRequested(DAY, "stopped by the owner"), 60)
    kept, _ = apply(asked, listed(InstanceState.STOPPED), 5 * HOUR, WatchTerms())
    assert kept.is_kept
    assert latest_end(kept) == NOON + timedelta(hours=2, days=1)
    late, outcome = apply(asked, listed(InstanceState.RUNNING), 5 * HOUR, WatchTerms())
    assert (late.is_halted, outcome.effects) == (True, (Halt("7"),))
    assert apply(late, listed(InstanceState.RUNNING), 5 * HOUR + 121)[0].state is LaunchState.STOPPING


def test_a_start_that_nobody_followed_does_not_end_its_disk_earlier() -> None:
    launch = started_again(stopped(), HOUR, NOON + timedelta(hours=5))
    back, _ = apply(launch, listed(InstanceState.STOPPED), 10 * HOUR, WatchTerms())
    assert (back.is_kept, latest_end(back)) == (True, latest_end(stopped()))
    late, outcome = apply(launch, listed(InstanceState.RUNNING), 10 * HOUR, WatchTerms())
    assert (late.is_halted, late.is_kept, outcome.effects) == (True, False, (Halt("7"),))
    kept, _ = apply(late, listed(InstanceState.STOPPED), 10 * HOUR + 30, SENT)
    assert (kept.is_kept, latest_end(kept)) == (True, latest_end(stopped()))


def test_the_keeper_keeps_a_disk_after_the_end_of_a_run_alone() -> None:
    assert kept_after_end_s(running(), DAY) == DAY
    assert kept_after_end_s(running(), None) == 0
    assert kept_after_end_s(running(state=LaunchState.STARTING), DAY) == 0
    assert kept_after_end_s(running(condition=InstanceCondition.OUTBID), DAY) == 0
    assert kept_after_end_s(stopped(), DAY) == 0
    assert kept_after_end_s(apply(running(), KeepRequested(HOUR, "x"), 60)[0], None) == HOUR


def test_an_idle_one_is_stopped_and_other_ends_destroy_it() -> None:
    idle = InstanceListed(listed(InstanceState.RUNNING).instance, (EndReason.IDLE, "5 %"))
    assert apply(running(), idle, 600)[0].is_halted
    spent = InstanceListed(idle.instance, (EndReason.BUDGET_REACHED, ""))
    assert apply(running(), spent, 600)[0].state is LaunchState.STOPPING
    assert apply(stopped(), spent, 600)[0].state is LaunchState.STOPPING


def test_one_that_cannot_be_stopped_runs_on_to_its_end() -> None:
    launch, _ = apply(running(), KeepRequested(DAY, "stopped by the owner"), 60)
    still, outcome = apply(launch, listed(InstanceState.RUNNING), 60 + 121)
    assert (still.kept, still.state) == (None, LaunchState.RUNNING)
    assert outcome.transition is not None
    assert outcome.transition.notify is not None


def test_one_that_runs_unasked_is_stopped_again_or_destroyed() -> None:
    launch, outcome = apply(stopped(), listed(InstanceState.RUNNING), 1000)
    assert (launch.is_kept, outcome.effects) == (False, (Halt("7"),))
    assert launch.spans[-1].listed_microusd_hour == launch.listed_microusd_hour
    assert apply(launch, listed(InstanceState.STOPPED), 1030)[0].is_kept
    assert latest_end(apply(launch, listed(InstanceState.STOPPED), 1030)[0]) == latest_end(stopped())
    ending, _ = apply(launch, listed(InstanceState.RUNNING), 1000 + 121)
    assert ending.ended_because(EndReason.NOT_STOPPED)


def test_a_start_is_sent_until_it_runs_and_its_time_counts_from_then() -> None:
    launch = started_again(stopped(), HOUR, NOON + timedelta(hours=5))
    assert highest_rate_microusd_hour(launch) == launch.bound_microusd_hour
    assert latest_end(launch) == NOON + timedelta(hours=6, minutes=15)
    assert apply(launch, listed(InstanceState.STOPPED), 5 * HOUR + 3)[1].effects == (Resume("7"),)
    assert apply(launch, listed(InstanceState.STARTING), 5 * HOUR + 6)[1].effects == (Resume("7"),)
    again, _ = apply(launch, listed(InstanceState.RUNNING), 5 * HOUR + 60)
    assert (again.kept, again.condition, again.state) == (None, None, LaunchState.RUNNING)
    assert latest_end(again) == NOON + timedelta(hours=6, minutes=1)
    assert again.spans[-1].price_microusd_hour == again.price_microusd_hour
    assert apply(again, listed(InstanceState.RUNNING), 6 * HOUR + 61, WatchTerms())[0].state is LaunchState.STOPPING


def test_a_start_whose_gpus_are_taken_is_taken_back_and_the_disk_keeps_its_end() -> None:
    kept = stopped()
    launch = started_again(kept, HOUR, NOON + timedelta(hours=5))
    back, outcome = apply(launch, listed(InstanceState.STOPPED), 5 * HOUR + 901)
    assert outcome.effects == (Halt("7"),)
    assert (back.is_kept, back.condition) == (True, InstanceCondition.STOPPED)
    assert latest_end(back) == latest_end(kept)
    assert outcome.transition is not None
    assert outcome.transition.notify is not None
    assert kept_fields(back)["disk_day"] == "$2.88 a day"


def test_what_was_asked_twice_changes_nothing() -> None:
    launch, _ = apply(running(), KeepRequested(DAY, "stopped by the owner"), 60)
    assert apply(launch, KeepRequested(DAY, "stopped by the owner"), 61)[1] == TransitionResult()
    starting = running(state=LaunchState.STARTING, running_at=None)
    assert apply(starting, KeepRequested(DAY, "x"), 61)[1] == TransitionResult()
