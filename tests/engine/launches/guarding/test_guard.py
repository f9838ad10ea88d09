"""The guard on a real database: what ends a launch, and its alerts, each once."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuwatch.domain.launches.instances.instance_checks import UtilisationSample
from gpuwatch.domain.launches.launch import EndReason, InstanceCondition, LaunchState
from gpuwatch.domain.watches.launch_spec import BidSpec, Budget, BudgetPolicy, LaunchSpec, RelocateSpec
from gpuwatch.errors import StoreError
from gpuwatch.ports import AlertKind, InstanceState, Severity
from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON, a_match, an_offer, changed, seen_at
from tests.engine.guard_world import GuardWorld

IDLE = LaunchSpec(max_active=5, max_total=0, idle_below=10.0, idle_for_s=1200.0)
WASTE = LaunchSpec(max_active=5, max_total=0, wasteful_below=70.0, wasteful_for_s=1800.0)


# --- GPU use ----------------------------------------------------------------------------------------------------------
def test_idle_outlives_a_restart(database: Database) -> None:
    world = GuardWorld(database, launch=IDLE)
    launch = world.running()
    assert world.look(launch, gpu_utilisation=3.0) is None
    world.pass_(minutes=19)
    assert world.look(launch, gpu_utilisation=None) is None
    world.start_process()
    world.pass_(minutes=1)
    assert world.look(launch, gpu_utilisation=2.0) == (
        EndReason.IDLE,
        "GPU utilisation 2 %, under 10 % since 12:00 UTC",
    )


def test_an_unknown_use_ends_nothing_and_is_kept_as_unknown(database: Database) -> None:
    world = GuardWorld(database, launch=IDLE)
    launch = world.running()
    for odd in (None, math.nan, -1.0, 101.0):
        assert world.look(launch, gpu_utilisation=odd) is None
        world.pass_(minutes=20)
    assert [one.percent for one in SqlUtilisationRepository(database).samples_since(launch.launch_id, NOON)] == [
        None
    ] * 4


def test_a_look_that_tells_nothing_ends_nothing(database: Database) -> None:
    world = GuardWorld(database, launch=IDLE)
    launch = world.running()
    for minutes, percent in ((0, 3.0), (19, 3.0), (1, None)):
        world.pass_(minutes=minutes)
        assert world.look(launch, gpu_utilisation=percent) is None
    assert world.look(launch, gpu_utilisation=3.0) is not None


def test_waste_is_reported_with_what_it_wasted_once_a_day_and_anew_after_it_recovered(database: Database) -> None:
    world = GuardWorld(database, launch=WASTE)
    launch = world.running()

    def reported_in_an_hour_at(percent: float) -> int:
        for _ in range(6):
            world.pass_(minutes=10)
            assert world.look(launch, gpu_utilisation=percent) is None
        return len(world.alerts())

    for _ in range(4):
        world.look(launch, gpu_utilisation=15.0)
        world.pass_(minutes=10)
    (alert,) = world.alerts()
    assert alert.headline == "h100: low GPU utilisation: 15 %"
    assert alert.why == "Mean of 30 min: 15 %; less than the 70 % that you expect (wasteful_below)."
    facts = dict(alert.facts)
    assert facts["Useful hour"] == "$26.67 per useful GPU-hour, at $4.00 per GPU-hour"
    assert facts["Wasted so far"] == "$1.70"  # 85 % of half an hour
    assert reported_in_an_hour_at(15.0) == 0
    world.start_process()
    assert reported_in_an_hour_at(15.0) == 0
    assert reported_in_an_hour_at(95.0) == 0
    assert reported_in_an_hour_at(20.0) == 1
    assert reported_in_an_hour_at(20.0) == 0
    world.pass_(hours=24)
    assert reported_in_an_hour_at(20.0) == 1


class Full(SqlUtilisationRepository):
    """A full disk."""

    def add(self, launch_id: str, sample: UtilisationSample) -> None:
        raise StoreError("the disk is full")


def test_a_store_that_fails_hides_no_other_rule(database: Database) -> None:
    world = GuardWorld(database, launch=changed(IDLE, stop_outside=True), active=("08:00-14:00",))
    world.uses = Full(database)
    world.start_process()
    launch = world.running()
    assert world.look(launch, gpu_utilisation=1.0, maintenance_at=NOON) is None
    assert len(world.alerts()) == 1
    world.pass_(hours=2)
    assert world.look(launch, gpu_utilisation=1.0) == (EndReason.OUTSIDE, "08:00-14:00")


# --- bids -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("spec", "least", "follows"),
    [
        (LaunchSpec(), 0.7, "waits until its bid wins again"),
        (LaunchSpec(relaunch=True), 0.7, "rents elsewhere (launch.relaunch = true)"),
        (LaunchSpec(bid=BidSpec(max_usd_gpu_hour=Decimal(3))), 0.7, "raises its bid within launch.bid.max"),
        (LaunchSpec(bid=BidSpec(max_usd_gpu_hour=Decimal("0.5"))), 9.0, "waits until its bid wins again"),
    ],
)
def test_a_higher_bid_is_reported_while_the_machine_still_runs_with_what_follows(
    database: Database, spec: LaunchSpec, least: float, follows: str
) -> None:
    world = GuardWorld(database, launch=spec)
    launch = world.running(spot=True, bid_microusd_hour=500_000)
    assert world.look(launch, spot=True, bid_usd_hour=0.5, min_bid_usd_hour=0.5) is None
    assert world.alerts() == []
    for _ in range(2):
        assert world.look(launch, spot=True, bid_usd_hour=0.5, min_bid_usd_hour=least) is None
    (alert,) = world.alerts()
    assert alert.headline == "h100: somebody bids more for its machine"
    assert f"runs at $0.50/h, listed; ${least:.2f}/h would keep it" in alert.why
    assert follows in alert.did
    assert world.look(launch, spot=True, bid_usd_hour=0.5, min_bid_usd_hour=least, state=InstanceState.STOPPED) is None
    assert world.alerts() == [], "outbid is another event"


# --- time -------------------------------------------------------------------------------------------------------------
def test_windows_end_it_and_are_reported_ten_minutes_ahead(database: Database) -> None:
    spec = LaunchSpec(stop_outside=True)
    world = GuardWorld(database, launch=spec, active=("08:00-14:00",))
    launch = world.running()
    world.pass_(minutes=109)
    assert (world.look(launch), world.alerts()) == (None, [])
    for _ in range(3):
        world.pass_(minutes=1)
        assert world.look(launch) is None
    (alert,) = world.alerts()
    assert alert.headline == "h100: its active windows close soon"
    assert "2026-11-21 14:00 UTC" in alert.why
    world.pass_(minutes=8)
    assert world.look(launch) == (EndReason.OUTSIDE, "08:00-14:00")
    assert world.guard.due(launch, world.now) == (EndReason.OUTSIDE, "08:00-14:00")


def test_the_end_of_its_time_is_reported_once(database: Database) -> None:
    world = GuardWorld(database, launch=LaunchSpec(max_runtime_s=36_000.0))
    launch = world.running()
    world.pass_(hours=8)
    for _ in range(3):
        world.look(launch)
        world.start_process()
    (alert,) = world.alerts()
    assert alert.headline == "h100: its longest runtime ends at 22:00 UTC"
    assert alert.can_do[-1] == f"End it now: gpuwatch launches stop {launch.launch_id}"


def test_a_contract_that_ends_too_early_is_reported_and_again_in_its_last_hour(database: Database) -> None:
    world = GuardWorld(database, launch=LaunchSpec(max_runtime_s=36_000.0))
    launch = world.running()
    ends_at = NOON + timedelta(hours=6)
    world.look(launch, ends_at=ends_at)
    world.look(launch, ends_at=ends_at)
    world.pass_(hours=5)
    world.look(launch, ends_at=ends_at)
    early, soon = world.alerts()
    assert early.headline == "h100: its host ends the contract at 2026-11-21 18:00 UTC"
    assert "its longest runtime extends to 2026-11-21 22:00 UTC" in early.why
    assert soon.headline == "h100: its host ends the contract in less than an hour"


def test_maintenance_is_reported_once(database: Database) -> None:
    world = GuardWorld(database)
    launch = world.running()
    for _ in range(2):
        world.look(launch, maintenance_at=NOON + timedelta(days=1))
    (alert,) = world.alerts()
    assert alert.headline == "h100: its host announces maintenance at 2026-11-22 12:00 UTC"


# --- events of the instance -------------------------------------------------------------------------------------------
def test_what_is_stopped_and_billed_is_called_to_mind_daily_with_the_price_of_its_disk(database: Database) -> None:
    world = GuardWorld(database)
    launch = world.running(condition=InstanceCondition.STOPPED, condition_since=NOON)
    for minutes in (14, 1, 60, 23 * 60, 10):
        world.pass_(minutes=minutes)
        world.look(launch, state=InstanceState.STOPPED, stopped_usd_hour=0.05)
    first, second = world.alerts()
    assert first.kind is AlertKind.HELD
    assert first.headline == second.headline == "h100: still stopped at the provider, and billed"
    assert dict(first.facts)["Its disk"] == "$1.44 a day"


def test_outbid_says_what_would_run(database: Database) -> None:
    world = GuardWorld(database)
    launch = world.running(condition=InstanceCondition.OUTBID, condition_since=NOON)
    world.pass_(minutes=15)
    world.look(launch, state=InstanceState.STOPPED, bid_usd_hour=1.0, min_bid_usd_hour=1.25)
    (alert,) = world.alerts()
    assert alert.headline == "h100: still outbid"
    assert dict(alert.facts)["Bid"] == "$1.00/h, listed; $1.25/h would run"
    assert dict(alert.facts)["Its disk"] == "its price is unknown"


@pytest.mark.parametrize(("relaunch", "fault"), [(False, None), (True, (EndReason.OFFLINE, "since 12:00 UTC"))])
def test_a_host_that_stays_offline(database: Database, relaunch: bool, fault: object) -> None:
    world = GuardWorld(database, launch=LaunchSpec(relaunch=relaunch))
    launch = world.running(condition=InstanceCondition.OFFLINE, condition_since=NOON)
    world.pass_(minutes=15)
    assert world.look(launch, state=InstanceState.OFFLINE, status="offline") == fault
    reported = [alert.headline for alert in world.alerts()]
    assert reported == ([] if relaunch else ["h100: its host is still offline"])


def test_a_host_that_is_back_ends_nothing(database: Database) -> None:
    world = GuardWorld(database, launch=LaunchSpec(relaunch=True))
    launch = world.running(condition=InstanceCondition.OFFLINE, condition_since=NOON)
    world.pass_(hours=1)
    assert world.look(launch) is None


# --- budgets ----------------------------------------------------------------------------------------------------------
def test_a_budget_is_reported_at_80_percent_and_at_its_end_and_only_reported(database: Database) -> None:
    world = GuardWorld(database, Budget(max_usd_day=Decimal(10)))
    launch = world.running()
    for minutes in (119, 1, 10, 20, 10):
        world.pass_(minutes=minutes)
        world.refresh()
        assert world.look(launch) is None
    nearly, full = world.alerts()
    assert nearly.headline == "daily budget is used to 80 %"
    assert dict(nearly.facts) == {
        "Limit": "$10.00 in 2026-11-21",
        "Spent": "$8.00",
        "If all launches continue": "$48.00",
    }
    assert full.headline == "daily budget is reached"
    assert (full.kind, full.severity, full.did.partition(" (")[0]) == (
        AlertKind.BUDGET,
        Severity.CRITICAL,
        "No launch ends",
    )


def test_a_budget_that_stops_ends_what_runs_and_says_so(database: Database) -> None:
    world = GuardWorld(database, Budget(max_usd_day=Decimal(10), on_reached=BudgetPolicy.STOP))
    launch = world.running()
    world.pass_(minutes=150)
    assert world.look(launch) is None
    world.refresh()
    words = "$10.00 spent in 2026-11-21 (max_usd_day = 10.00)"
    assert world.look(launch) == (EndReason.BUDGET_REACHED, words)
    assert world.guard.due(launch, world.now) == (EndReason.BUDGET_REACHED, words)
    (alert,) = world.alerts()
    assert alert.did == 'Ends every launch under this budget (on_reached = "stop").'


def test_the_budget_of_a_watch_is_its_own(database: Database) -> None:
    own = Budget(max_usd_day=Decimal(10), on_reached=BudgetPolicy.STOP)
    world = GuardWorld(database, Budget(max_usd_day=Decimal(1000)), budget=own)
    launch = world.running()
    world.pass_(minutes=150)
    world.refresh()
    (alert,) = world.alerts()
    assert (alert.headline, alert.watch) == ("h100: its daily budget is reached", "h100")
    assert world.guard.due(launch, world.now) is not None


def test_what_ended_meanwhile_still_counts(database: Database) -> None:
    world = GuardWorld(database, Budget(max_usd_day=Decimal(10)))
    launch = world.running()
    world.refresh()
    world.pass_(hours=3)
    stopping = world.repository.transition(launch, LaunchState.STOPPING, "x", world.now, end_reason="x")
    world.repository.transition(stopping, LaunchState.ENDED, "x", world.now, ended_at=world.now)
    world.refresh()
    assert [alert.headline for alert in world.alerts()] == ["daily budget is reached"]


def test_an_hour_that_costs_too_much_ends_the_newest(database: Database) -> None:
    world = GuardWorld(database, Budget(max_usd_hour=Decimal(8), on_reached=BudgetPolicy.STOP))
    first = world.running()
    world.pass_(minutes=1)
    second = world.running()
    world.refresh()
    assert world.guard.due(second, world.now) is None
    world.pass_(minutes=1)
    third = world.running()
    world.refresh()
    assert [world.guard.due(one, world.now) is not None for one in (first, second, third)] == [False, False, True]
    (alert,) = world.alerts()
    assert alert.did == 'Ends the newest launches until the others fit (on_reached = "stop").'
    assert dict(alert.facts)["Billed"] == "$12.00/h"


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, -1.0, 1e300, 0.0])
def test_a_strange_instance_raises_nothing(database: Database, odd: float) -> None:
    world = GuardWorld(database, launch=changed(IDLE, wasteful_below=50.0, stop_outside=True), active=("00:00-24:00",))
    for condition in (None, *InstanceCondition):
        launch = world.running(condition=condition, condition_since=NOON)
        for state in InstanceState:
            world.look(
                launch, state=state, status="\x1b[31m", gpu_count=-3, ssh_port=-1, gpu_utilisation=odd,
                listed_usd_hour=odd, stopped_usd_hour=odd, bid_usd_hour=odd, min_bid_usd_hour=odd,
                ends_at=NOON - timedelta(days=3), maintenance_at=NOON - timedelta(days=9),
            )  # fmt: skip
        world.pass_(hours=1)
        stopping = world.repository.transition(launch, LaunchState.STOPPING, "x", world.now)
        world.repository.transition(stopping, LaunchState.ENDED, "x", world.now, ended_at=world.now)


def test_that_moving_would_pay_is_reported_once_until_the_saving_changes(database: Database) -> None:
    world = GuardWorld(database, relocate=RelocateSpec(min_saving=0.15, after_s=3600.0))
    launch = world.running()

    def reported_at(usd_hour: float) -> list[str]:
        quote = a_match(an_offer(provider="runpod", machine_id=None, offer_id="r1", quoted_usd_hour=usd_hour))
        world.shown = [seen_at(quote, world.now)]
        assert world.look(launch) is None
        return [alert.headline for alert in world.alerts()]

    assert reported_at(1.0) == [], "it has not run for an hour"
    world.pass_(minutes=60)
    (headline,) = reported_at(2.5)
    assert headline == "h100: moving it to runpod would save $24.00 (25%)"
    assert reported_at(2.49) == []
    world.start_process()
    assert reported_at(2.5) == [], "also not by the next process"
    (headline,) = reported_at(2.0)
    assert "(40%)" in headline
    assert reported_at(4.0) == []


def test_the_alert_about_a_move_says_what_is_assumed(database: Database) -> None:
    world = GuardWorld(database, relocate=RelocateSpec(after_s=0.0))
    launch = world.running()
    world.shown = [seen_at(a_match(an_offer(provider="runpod", offer_id="r1", quoted_usd_hour=1.0)), world.now)]
    world.look(launch)
    (alert,) = world.alerts()
    assert "no max_runtime" in dict(alert.facts)["Assumed"]
    assert "does not move" in alert.did
