"""Which machines are avoided: by their failures, and by the owner's decision. The effect of an outbid launch."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuwatch.domain.launches.instances.machines_and_places import (
    MachineNote,
    MachineVerdict,
    find_avoided_machines,
    machine_records,
    machine_refusal,
    offer_machine_refusal,
)
from gpuwatch.domain.launches.launch import (
    EndReason,
    Intent,
    Launch,
    LaunchState,
    PriceSpan,
    Promise,
    RefusalReason,
    new_launch,
)
from gpuwatch.domain.launches.life.admission import replaced_launch_id
from gpuwatch.domain.launches.life.owner_decisions import Pause, pause_refusal
from gpuwatch.domain.launches.money.budgets import all_budgets_refusal, budget_checks
from gpuwatch.domain.launches.refusal_words import first_refusal
from gpuwatch.domain.market.offer import OfferTerms
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.past_limits import MachineRecord
from gpuwatch.domain.watches.watch import Action
from tests.builders import NOON, a_match, a_watch, an_offer, changed

HOUR = timedelta(hours=1)
BAD = ("vastai", "77")


def a_launch(launch_id: str = "a" * 12, watch: str = "h100", **changes: Any) -> Launch:
    rents = a_watch(name=watch, action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=36_000.0))
    intent = Intent(watch=rents, match=a_match(), launch_id=launch_id, dry_run=False)
    return changed(new_launch(intent, 0, NOON), **changes)  # type: ignore[no-any-return]


def over(end: EndReason, launch_id: str = "a" * 12, watch: str = "h100", **changes: Any) -> Launch:
    ended = {"state": LaunchState.ENDED, "ended_at": NOON, "end_reason": end.text("its words")}
    return a_launch(launch_id, watch, **(ended | changes))


def word(verdict: MachineVerdict, at: float = 1, hours: float | None = None) -> MachineNote:
    """A note made some hours after noon."""
    until = None if hours is None else NOON + (at + hours) * HOUR
    return MachineNote(provider="vastai", machine_id="77", verdict=verdict, at=NOON + at * HOUR, until=until)


# --- machines ---------------------------------------------------------------------------------------------------------


def test_a_machine_s_record_counts_what_it_did_and_what_it_failed() -> None:
    ran = {"running_at": NOON - HOUR}
    launches = [
        over(EndReason.MAX_RUNTIME, **ran),
        over(EndReason.STOPPED, **ran),
        over(EndReason.NOT_READY),
        over(EndReason.OFFLINE, **ran),
        over(EndReason.CRASHED, **ran),  # the command's
        over(EndReason.OUTBID, **ran),  # the market's
        over(EndReason.GONE, **ran),  # perhaps the owner's
        over(EndReason.OFFERS_GONE),  # nothing was created
        over(EndReason.NOT_READY, dry_run=True),
        over(EndReason.NOT_READY, ended_at=NOON - 91 * 24 * HOUR),
        a_launch(),
    ]
    assert machine_records(launches, (), NOON) == {BAD: MachineRecord(good=2, bad=2)}


def test_forgiven_failures_leave_the_record_and_later_ones_count() -> None:
    later = over(EndReason.BROKEN, ended_at=NOON + 2 * HOUR)
    launches = [over(EndReason.NOT_READY), over(EndReason.MAX_RUNTIME, running_at=NOON - HOUR), later]
    found = machine_records(launches, [word(MachineVerdict.ALLOWED)], NOON + 3 * HOUR)
    assert found == {BAD: MachineRecord(good=1, bad=1)}
    found = machine_records(launches, [word(MachineVerdict.BLOCKED)], NOON + 3 * HOUR)
    assert found == {BAD: MachineRecord(good=1, bad=2)}


@pytest.mark.parametrize(
    ("end", "is_avoided"),
    [
        (EndReason.DEARER, True),
        (EndReason.WRONG_TYPE, True),
        (EndReason.NOT_READY, False),
        (EndReason.OFFLINE, False),
    ],
)
def test_of_stock_only_what_another_machine_would_repeat_is_avoided(end: EndReason, is_avoided: bool) -> None:
    """A list price that the bill exceeds would be rented again and again, and billed each time."""
    avoided = find_avoided_machines([over(end)], (), NOON + HOUR)
    stock = an_offer(provider="vastai", machine_id="77", terms=OfferTerms(fungible=True))
    assert (offer_machine_refusal(avoided, stock) is not None) is is_avoided
    assert offer_machine_refusal(avoided, an_offer(provider="vastai", machine_id="77")) is not None
    assert offer_machine_refusal(find_avoided_machines([over(end)], (), NOON + 25 * HOUR), stock) is None
    of_stock = over(end, promised=Promise(is_stock=True))  # nor listed as avoided
    assert bool(find_avoided_machines([of_stock], (), NOON + HOUR)) is is_avoided


@pytest.mark.parametrize(
    "end",
    [
        EndReason.NOT_READY,
        EndReason.BROKEN,
        EndReason.NOT_AS_PROMISED,
        EndReason.NO_SSH,
        EndReason.TOO_SLOW,
        EndReason.OFFLINE,
        EndReason.DEARER,
        EndReason.WRONG_TYPE,
    ],
)
def test_a_machine_is_avoided_for_a_day_by_its_own_fault(end: EndReason) -> None:
    assert set(find_avoided_machines([over(end)], [], NOON + 23 * HOUR)) == {BAD}
    assert not find_avoided_machines([over(end)], [], NOON + 24 * HOUR)


@pytest.mark.parametrize(
    "end",
    [
        EndReason.OFFERS_GONE,
        EndReason.IDLE,
        EndReason.MAX_RUNTIME,
        EndReason.STOPPED,
        EndReason.NO_CREDIT,
        EndReason.FINISHED,
    ],
)
def test_what_is_not_its_fault_is_not_held_against_it(end: EndReason) -> None:
    assert not find_avoided_machines([over(end)], [], NOON)


def test_an_outbid_machine_is_avoided_by_the_watch_that_rents_elsewhere_alone() -> None:
    assert not find_avoided_machines([over(EndReason.OUTBID)], [], NOON)
    assert set(find_avoided_machines([over(EndReason.OUTBID)], [], NOON, ["h100"])) == {BAD}
    assert not find_avoided_machines([over(EndReason.OUTBID)], [], NOON, ["another"])


def test_what_was_forgiven_counts_no_more_and_what_comes_after_does() -> None:
    forgiven = word(MachineVerdict.ALLOWED)
    assert not find_avoided_machines([over(EndReason.BROKEN)], [forgiven], NOON + 2 * HOUR)
    later = over(EndReason.BROKEN, ended_at=NOON + 2 * HOUR)
    assert set(find_avoided_machines([later, over(EndReason.BROKEN)], [forgiven], NOON + 3 * HOUR)) == {BAD}


def test_a_block_lasts_as_long_as_was_said() -> None:
    assert set(find_avoided_machines([], [word(MachineVerdict.BLOCKED)], NOON + 9999 * HOUR)) == {BAD}
    assert not find_avoided_machines([], [word(MachineVerdict.BLOCKED, hours=7)], NOON + 8 * HOUR)


def test_a_refusal_says_whose_word_it_is() -> None:
    failed = machine_refusal(find_avoided_machines([over(EndReason.BROKEN)], [], NOON), *BAD)
    blocked = machine_refusal(
        find_avoided_machines([over(EndReason.BROKEN)], [word(MachineVerdict.BLOCKED)], NOON + HOUR), *BAD
    )
    assert failed is not None
    assert blocked is not None
    assert ("would not come to life" in failed.text, "you blocked machine" in blocked.text) == (True, True)
    assert machine_refusal(find_avoided_machines([over(EndReason.BROKEN)], [], NOON), "vastai", None) is None


# --- effects of an outbid launch --------------------------------------------------------------------------------------

RELAUNCHES = LaunchSpec(relaunch=True)


def test_a_replacement_names_the_newest_outbid_launch_without_one() -> None:
    known = [over(EndReason.OUTBID, "a" * 12), over(EndReason.OUTBID, "b" * 12, ended_at=NOON + HOUR)]
    assert replaced_launch_id(RELAUNCHES, "h100", known, NOON + 2 * HOUR) == "b" * 12
    known.append(a_launch("c" * 12, relaunch_of="b" * 12))
    assert replaced_launch_id(RELAUNCHES, "h100", known, NOON + 2 * HOUR) == "a" * 12
    known.append(a_launch("d" * 12, relaunch_of="a" * 12))
    assert replaced_launch_id(RELAUNCHES, "h100", known, NOON + 2 * HOUR) is None


def test_a_replacement_that_failed_leaves_it_to_the_next() -> None:
    known = [over(EndReason.OUTBID), over(EndReason.BROKEN, "b" * 12, state=LaunchState.FAILED, relaunch_of="a" * 12)]
    assert replaced_launch_id(RELAUNCHES, "h100", known, NOON + HOUR) == "a" * 12


def test_nothing_is_replaced_without_the_setting_of_another_watch_or_after_a_day() -> None:
    known = [over(EndReason.OUTBID)]
    assert replaced_launch_id(LaunchSpec(), "h100", known, NOON + HOUR) is None
    assert replaced_launch_id(RELAUNCHES, "another", known, NOON + HOUR) is None
    assert replaced_launch_id(RELAUNCHES, "h100", known, NOON + 24 * HOUR) is None


# --- budgets ----------------------------------------------------------------------------------------------------------


def test_a_watchs_own_budget_counts_its_launches_alone_and_is_named() -> None:
    mine, other = a_launch("b" * 12), a_launch("c" * 12, "another")
    own = Budget(max_usd_hour=Decimal("7.20"))
    assert all_budgets_refusal(a_launch(), [mine, other], Budget(), own, NOON) is None
    refused = all_budgets_refusal(a_launch(), [mine, mine], Budget(), own, NOON)
    assert refused is not None
    assert refused.reason is RefusalReason.MAX_USD_HOUR
    assert "[watch.budget] of watch 'h100' says max_usd_hour = 7.20" in refused.text


def test_the_global_budget_is_named_and_binds_whatever_the_watch_allows() -> None:
    refused = all_budgets_refusal(
        a_launch(), [a_launch(watch="another")], Budget(max_instances=1), Budget(max_instances=9), NOON
    )
    assert refused is not None
    assert refused.text == "1 instance is alive, and [budget] says max_instances = 1"


def test_a_bid_counts_at_its_maximum_and_a_raised_price_at_its_newest() -> None:
    budget = Budget(max_usd_hour=Decimal(10))
    assert (
        first_refusal(budget_checks(a_launch(most_microusd_hour=7_000_000), [a_launch()], [], budget, NOON)) is not None
    )
    raised = a_launch(state=LaunchState.RUNNING, running_at=NOON, spans=(PriceSpan(NOON, 6_000_000, 7_200_000),))
    assert first_refusal(budget_checks(a_launch(), [raised], [], budget, NOON)) is not None
    assert first_refusal(budget_checks(a_launch(), [a_launch()], [], budget, NOON)) is None


def test_a_month_counts_what_was_spent_since_its_first_and_no_more() -> None:
    first = NOON.replace(day=1, hour=0)

    def ran(from_hour: float) -> Launch:
        """For ten hours: 36 $."""
        began = first + from_hour * HOUR
        times = {"requested_at": began, "running_at": began, "ended_at": began + 10 * HOUR}
        return over(EndReason.STOPPED, **times)

    budget = Budget(max_usd_month=Decimal("72.13"))  # with its start, and until its end is proven
    assert first_refusal(budget_checks(a_launch(), [], [ran(5), ran(-10)], budget, NOON)) is None
    assert first_refusal(budget_checks(a_launch(), [], [ran(5), ran(-9)], budget, NOON)) is not None


def test_a_bound_a_hair_over_the_limit_does_not_read_as_the_limit() -> None:
    refused = first_refusal(
        budget_checks(a_launch(price_microusd_hour=3_600_001), [], [], Budget(max_usd_hour=Decimal("3.60")), NOON)
    )
    assert refused is not None
    assert "$3.61 an hour" in refused.text


# --- pauses -----------------------------------------------------------------------------------------------------------


def test_a_pause_holds_until_its_end_also_when_the_clock_steps_back() -> None:
    pause = Pause(watch=None, at=NOON, until=NOON + HOUR)
    assert pause_refusal([pause], "h100", NOON - 5 * HOUR) is not None
    assert pause_refusal([pause], "h100", NOON + HOUR) is None


def test_a_watchs_pause_binds_it_alone() -> None:
    pause = Pause(watch="h100", at=NOON, why="tests")
    refused = pause_refusal([pause], "h100", NOON)
    assert refused is not None
    assert refused.text == "renting by watch 'h100' is paused until you resume it (tests)"
    assert pause_refusal([pause], "another", NOON) is None
