"""The first sentence of Now, in each of its variants, and the lines below it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from gpuwatch.app.alerts.needs import NeedView
from gpuwatch.app.launches.running_machines import RunningMachine
from gpuwatch.app.reader_text import use_clock
from gpuwatch.domain.launches.launch import Intent, LaunchState, new_launch
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.domain.launches.money.launch_costs import BurnRate
from gpuwatch.domain.launches.money.month_forecast import BudgetUse
from gpuwatch.domain.watches.watch import Action
from gpuwatch.web.now.now_answer import NowFigures, answer, heading
from gpuwatch.web.now.now_notices import notices
from tests.builders import NOON, a_match, a_watch, changed

QUIET = NowFigures(
    decisions=0,
    held=0,
    is_running=True,
    silent=(),
    burn=BurnRate(),
    pause=None,
    dry_run=False,
    now=NOON,
)
SILENT = (("RunPod", NOON - timedelta(minutes=34)),)


def plain(text: object) -> str:
    return str(text).replace("\N{NO-BREAK SPACE}", " ")


def said(**changes: Any) -> tuple[str, str]:
    figures = changed(QUIET, **changes)
    with use_clock("UTC", NOON):
        return heading(figures), plain(answer(figures, [a_watch(action=Action.LAUNCH)]))


def test_the_heading_is_the_first_that_applies() -> None:
    everything = {"decisions": 2, "held": 1, "is_running": False, "silent": SILENT}
    assert said(**everything)[0] == "2 decisions wait for you"
    assert said(decisions=1)[0] == "1 decision waits for you"
    assert said(**everything | {"decisions": 0})[0] == "1 machine needs your check"
    assert said(held=2)[0] == "2 machines need your check"
    assert said(is_running=False, silent=SILENT)[0] == "gpuwatch is not running"
    assert said(silent=SILENT)[0] == "RunPod does not answer"
    assert said(silent=SILENT * 2)[0] == "2 providers do not answer"
    assert said()[0] == "All quiet"


def test_below_it_stand_the_machines_renting_and_who_is_silent() -> None:
    assert said()[1] == "Nothing is rented. Renting is on."
    text = said(burn=BurnRate(launches=3, effective=3_543_000), silent=SILENT)[1]
    assert text == ('3 machines run for <b class="nw">$3.54/h</b>. Renting is on. RunPod has not answered for 34 min.')
    unsure = said(held=1, burn=BurnRate(launches=3, effective=3_543_000, held=1))[1]
    assert unsure.startswith('3 machines run for <b class="nw">$3.54/h</b>. 1 of them needs your check. ')
    kept = said(burn=BurnRate(launches=3, effective=3_543_000, kept=1))[1]
    assert kept.startswith(
        '2 machines run for <b class="nw">$3.54/h</b>. The disk of 1 more is kept; the rate contains it. '
    )
    assert said(burn=BurnRate(launches=1, effective=3_000, kept=1))[1].startswith("1 disk is kept for ")
    assert said(dry_run=True)[1] == "Nothing is rented. This is a dry run."
    paused = Pause(watch=None, at=NOON, until=NOON + timedelta(hours=2))
    assert said(pause=paused)[1] == "Nothing is rented. Renting is paused until 14:00."
    assert said(pause=changed(paused, until=None))[1] == "Nothing is rented. Renting is paused."


def test_a_provider_s_name_stays_text() -> None:
    assert "<script>" not in said(silent=(("<script>", None),))[1]


def test_each_need_is_one_line_with_one_link_most_urgent_first() -> None:
    launch = new_launch(Intent(watch=a_watch(), match=a_match(), launch_id="a" * 12, dry_run=False), 0, NOON)
    held, idle = changed(launch, state=LaunchState.HELD), changed(launch, launch_id="b" * 12)
    needs = [
        NeedView(kind="breaker", text="", command="", subject="h100", reason="3 failed"),
        NeedView(kind="unknown_instance", text="", command="", subject="4711", reason="vastai"),
        NeedView(kind="held", text="", command="", subject=held.launch_id),
        NeedView(kind="idle", text="", command="", subject=idle.launch_id),
        NeedView(kind="approval", text="", command="", subject="c" * 12),
    ]
    machines = [
        _machine(held), _machine(idle, used_percent=4.0, idle_since=NOON, idle_ends_at=NOON + timedelta(hours=1))
    ]  # fmt: skip
    uses = [
        BudgetUse(watch=None, limit_name="max_usd_day", limit=40_000_000, used=33_000_000),
        BudgetUse(watch=None, limit_name="max_usd_month", limit=500_000_000, used=3),
    ]
    with use_clock("UTC", NOON):
        lines = notices(needs, machines, [], uses)
    assert [(plain(one.text), one.path) for one in lines] == [
        ("1× H100 SXM needs your check: does it exist at vast.ai?", f"/launches/{held.launch_id}"),
        ("1× H100 SXM uses 4 % of its GPU; it ends at 13:00 if that stays so.", f"/launches/{idle.launch_id}"),
        ("Daily budget: $33.00 of $40.00 used.", "/costs"),
        ("A machine at vast.ai has gpuwatch's label and belongs to no launch.", "/launches"),
        ("h100 stopped renting, because several launches failed: 3 failed.", "/watches/h100"),
    ]


def _machine(launch: Any, **changes: Any) -> RunningMachine:
    plain_one = RunningMachine(
        launch=launch, rate_microusd_hour=1, cost_microusd=1, most_microusd=None, began_at=NOON, ends_at=None,
        used_percent=None, idle_since=None, idle_ends_at=None, job=None,
    )  # fmt: skip
    machine: RunningMachine = changed(plain_one, **changes)
    return machine
