"""The free slots of watches: also those of launches that a command or another host ended."""

from __future__ import annotations

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal, RefusalReason, new_launch
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from tests.builders import NOON, a_match, a_watch


def a_launch(launch_id: str) -> Launch:
    watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=3600.0))
    return new_launch(Intent(watch=watch, match=a_match(), launch_id=launch_id, dry_run=False), 0, NOON)


def test_what_another_process_ended_frees_its_slot_once() -> None:
    ran: list[str] = []
    slots, one, other = LaunchSlots(ran.append, ("hunt vastai",)), a_launch("a" * 12), a_launch("b" * 12)
    slots.note_alive([one, other])
    slots.note_reservation(one.watch, LaunchRefusal(RefusalReason.MAX_ACTIVE, "one is running"))
    slots.launch_over(other)  # by this process
    slots.note_reservation(one.watch, LaunchRefusal(RefusalReason.MAX_ACTIVE, "one is running"))
    slots.note_alive([one])
    assert (slots.is_full(one.watch), len(ran)) == (True, 1)
    slots.note_alive([])
    assert (slots.is_full(one.watch), slots.is_blocked(one.watch), len(ran)) == (False, False, 2)
    slots.note_alive([])
    assert len(ran) == 2
