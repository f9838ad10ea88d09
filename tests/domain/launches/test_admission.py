"""What may stand between a decision and a launch is asked before a slot is taken."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.domain.launches.admission import AdmissionState, admit_launch
from gpuwatch.domain.launches.launch import Intent, LaunchRefusal, RefusalReason
from gpuwatch.domain.launches.pause import Pause
from gpuwatch.domain.watches.watch import Action, Budget, LaunchSpec
from tests.builders import NOON, a_match, a_watch

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
