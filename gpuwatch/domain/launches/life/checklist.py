"""Items that the owner must tick before a watch rents (`require` in a watch). Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

import msgspec

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason
from gpuwatch.domain.watches.watch import ChecklistPolicy, Watch

# Recommended before renting. Owners may add items of their own.
KNOWN_ITEMS: Mapping[str, str] = MappingProxyType(
    {
        "dry_epoch": "One epoch ran on 1 % of the data, from loading to a saved checkpoint, so that the job does not "
        "fail after hours of rental.",
        "loss_falls": "The loss fell in that epoch, so the job learns.",
        "util_70": "The GPU was at 70 % or more during that epoch. If not, find what it waits for (data, disk, "
        "CPU) before you rent a more expensive one.",
        "amp": "Mixed precision (BF16 or FP16) is on: 2 to 3 times faster on cards with matrix units, half the memory.",
        "lora": "LoRA or QLoRA was considered instead of training all weights: it needs a fraction of the memory, so "
        "smaller or fewer cards suffice.",
        "grad_checkpoint": "Gradient checkpointing was considered: about a third of the activation memory for "
        "about 20 % more time.",
        "memory_fits": "The job fits in the card's memory with some headroom, so that it does not run out halfway.",
        "tokens_per_s": "Its speed was measured, so that hours and cost are known before you pay for the whole job.",
        "resume": "The job was killed once and resumed from its checkpoint, so that a preemption or failure costs "
        "one checkpoint interval and not the whole job.",
    }
)
# Items that the pilot of a job measures and ticks by itself.
PILOT_ITEMS = frozenset({"dry_epoch", "loss_falls", "util_70", "memory_fits", "tokens_per_s"})
_SHOWN = 5  # items named in an alert; the command shows all
_ITEM_SHOWN = 60  # maximum length of an item in an alert, in characters


class ChecklistTick(msgspec.Struct, frozen=True, kw_only=True):
    """An item that the owner ticked."""

    item: str
    at: datetime
    words: str | None = None


def unticked(watch: Watch, ticked: Collection[str]) -> tuple[str, ...]:
    """Return the required items that nobody has ticked, in the order of the settings, without duplicates."""
    return tuple(item for item in dict.fromkeys(watch.require) if item not in ticked)


def checklist_refusal(watch: Watch, ticked: Collection[str]) -> LaunchRefusal | None:
    """Return why the checklist does not allow this watch to rent, or None."""
    missing = unticked(watch, ticked)
    if not missing or watch.require_policy is not ChecklistPolicy.BLOCK:
        return None
    return LaunchRefusal(RefusalReason.CHECKLIST, checklist_refusal_text(watch, missing))


def checklist_refusal_text(watch: Watch, missing: Sequence[str]) -> str:
    """Return the missing items and where to find them."""
    return f"the checklist is not complete: {_named(missing)}; see: gpuwatch checklist {shlex.quote(watch.name)}"


def checklist_warning(missing: Sequence[str]) -> str:
    """Return a sentence for an alert, with a leading space, or "".

    A watch that is blocked states it in its refusal. A watch that only alerts reminds its owner, who rents by hand.
    """
    if not missing:
        return ""
    return f" Not ticked in the checklist: {_named(missing)}."


def _named(items: Sequence[str]) -> str:
    shown = [item if len(item) <= _ITEM_SHOWN else item[: _ITEM_SHOWN - 1] + "…" for item in items[:_SHOWN]]
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(shown) + more
