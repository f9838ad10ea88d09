"""What must be done before a watch rents: items that its owner ticks (`require` of a watch). Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

import msgspec

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason
from gpuwatch.domain.watches.watch import ChecklistPolicy, Watch

# What is worth doing before money runs; an owner may name others, in words of their own.
KNOWN_ITEMS: Mapping[str, str] = MappingProxyType(
    {
        "dry_epoch": "One epoch ran on 1 % of the data, from loading to a saved checkpoint: it does not fall over "
        "after hours of rent.",
        "loss_falls": "The loss fell in that epoch: what is rented learns something.",
        "util_70": "The GPU was at 70 % or more meanwhile: under it, look for what it waits for (data, disk, CPU) "
        "before you rent a dearer one.",
        "amp": "Mixed precision (BF16 or FP16) is on: 2 to 3 times faster on cards with matrix units, half the memory.",
        "lora": "LoRA or QLoRA was weighed against training all weights: it wants a fraction of the memory, so smaller "
        "or fewer cards.",
        "grad_checkpoint": "Gradient checkpointing was weighed: about a third of the activations' memory, for some "
        "20 % more time.",
        "resume": "The job was killed once and went on from its checkpoint: a preempted or failed machine costs one "
        "interval, not everything.",
    }
)
_SHOWN = 5  # items that an alert names; the command shows all
_ITEM_SHOWN = 60  # letters of one there


class ChecklistTick(msgspec.Struct, frozen=True, kw_only=True):
    """An item that its owner ticked."""

    item: str
    at: datetime
    words: str | None = None


def unticked(watch: Watch, ticked: Collection[str]) -> tuple[str, ...]:
    """What the watch requires and nobody has ticked, in the order of the settings, each once."""
    return tuple(item for item in dict.fromkeys(watch.require) if item not in ticked)


def checklist_refusal(watch: Watch, ticked: Collection[str]) -> LaunchRefusal | None:
    """Does the checklist let this watch rent? None: yes."""
    missing = unticked(watch, ticked)
    if not missing or watch.require_policy is not ChecklistPolicy.BLOCK:
        return None
    text = f"the checklist is not done: {_named(missing)}; see: gpuwatch checklist {shlex.quote(watch.name)}"
    return LaunchRefusal(RefusalReason.CHECKLIST, text)


def checklist_warning(missing: Sequence[str]) -> str:
    """A sentence for an alert, with a blank in front; empty: nothing to be told.

    A watch that blocks says it in its refusal; one that only alerts reminds its owner, who rents by hand.
    """
    if not missing:
        return ""
    return f" Not ticked in the checklist: {_named(missing)}."


def _named(items: Sequence[str]) -> str:
    shown = [item if len(item) <= _ITEM_SHOWN else item[: _ITEM_SHOWN - 1] + "…" for item in items[:_SHOWN]]
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(shown) + more
