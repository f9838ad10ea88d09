"""Everything that can block a launch is checked before a slot is taken."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.domain.launches.launch import (
    EndReason,
    Intent,
    Launch,
    LaunchRefusal,
    LaunchState,
    RefusalReason,
    new_launch,
)
from gpuwatch.domain.launches.life.admission import AdmissionState, admit_launch, cooldown_refusal
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from tests.builders import NOON, a_match, a_watch, changed

WATCH = a_watch(action=Action.LAUNCH, launch=LaunchSpec(), require=("resume",))
INTENT = Intent(watch=WATCH, match=a_match(), launch_id="a" * 12, dry_run=False)


def admitted(**changes: object) -> object:
    plain = {"known": list, "total": lambda: 0, "avoided": lambda known: {}}
    return admit_launch(INTENT, AdmissionState(**(plain | changes)), Budget(), NOON)  # type: ignore[arg-type]


def test_an_item_that_is_not_ticked_refuses() -> None:
    refusal = admitted()
    assert isinstance(refusal, LaunchRefusal)
    assert refusal.reason is RefusalReason.CHECKLIST


def test_a_pause_refuses_whatever_is_ticked() -> None:
    refusal = admitted(ticked=lambda: ("resume",), pauses=[Pause(watch=None, at=NOON - timedelta(hours=1))])
    assert isinstance(refusal, LaunchRefusal)
    assert refusal.reason is RefusalReason.PAUSED


def test_what_is_ticked_and_not_paused_is_admitted() -> None:
    assert not isinstance(admitted(ticked=lambda: ("resume",)), LaunchRefusal)


def test_a_watch_makes_no_more_in_a_day_than_it_may_failed_ones_included() -> None:
    watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec(max_total=0), max_per_day=2)
    intent = Intent(watch=watch, match=a_match(), launch_id="a" * 12, dry_run=False)
    plain, day = new_launch(intent, 0, NOON), NOON.replace(hour=0)
    of_it = {"watch": watch.name, "state": LaunchState.FAILED, "instance_id": "1", "intended_at": day}

    def found(*known: Launch) -> object:
        state = AdmissionState(known=lambda: known, total=lambda: 0, avoided=lambda known: {})
        return admit_launch(intent, state, Budget(), NOON)

    made = changed(plain, **of_it)
    refusal = found(made, changed(plain, **of_it))
    assert isinstance(refusal, LaunchRefusal)
    assert refusal.reason is RefusalReason.MAX_PER_DAY
    assert not isinstance(found(made), LaunchRefusal)
    for other in (
        {"instance_id": None},  # refused: nothing was created
        {"intended_at": day - timedelta(seconds=1)},
        {"watch": "other"},
        {"dry_run": True},
    ):
        assert not isinstance(found(made, changed(plain, **(of_it | other))), LaunchRefusal)
    lost = changed(plain, **(of_it | {"state": LaunchState.HELD, "instance_id": None, "slot": 1}))
    assert isinstance(found(made, lost), LaunchRefusal)  # it may have been created


def test_a_launch_that_failed_for_lack_of_credit_rests_the_watches_of_its_owner_alone() -> None:
    """Another owner has another key, and another balance."""
    ended = {"state": LaunchState.FAILED, "end_reason": EndReason.NO_CREDIT.text("none"), "ended_at": NOON}
    failed = changed(new_launch(INTENT, 0, NOON), watch="lab::h100", **ended)
    assert cooldown_refusal([failed], "lab::other", failed.provider, NOON) is not None
    assert cooldown_refusal([failed], "other", failed.provider, NOON) is None
