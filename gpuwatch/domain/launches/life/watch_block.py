"""What keeps a watch from acting on its matches: a refusal of the admission, or a reason before it. Pure."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.domain.watches.decide import Decision, DecisionReason
from gpuwatch.domain.watches.watch import Watch


class BlockReason(StrEnum):
    """Reasons that no admission knows; other programs read these names, and those of `RefusalReason`."""

    NOT_READY = "not_ready"  # nothing can be rented at the provider now: key, balance, prerequisites, instances
    OUTSIDE_ACTIVE = "outside_active"  # outside the watch's windows
    HOLD_FOR = "hold_for"  # not at or under the limit for long enough
    IN_STOCK = "in_stock"  # a watch with `restock` waits until its offers were gone
    APPROVAL = "approval"  # it waits for the owner's approval
    DENIED = "denied"  # the owner denied these offers recently
    DRY_RUN = "dry_run"


class WatchBlock(msgspec.Struct, frozen=True):
    """Why a watch does not act. `text` is one line for a person, without a full stop."""

    reason: RefusalReason | BlockReason
    text: str

    @property
    def sentence(self) -> str:
        """The text as a sentence."""
        return f"{self.text[:1].upper()}{self.text[1:]}."


def refused(refusal: LaunchRefusal) -> WatchBlock:
    """Return the block of a refusal."""
    return WatchBlock(refusal.reason, refusal.text)


def block_of_decision(watch: Watch, decision: Decision) -> WatchBlock | None:
    """Return why a watch that has matches does not fire for a reason of its own settings, or None."""
    if decision.reason is DecisionReason.OUTSIDE_WINDOW:
        return WatchBlock(BlockReason.OUTSIDE_ACTIVE, f"outside its active windows ({', '.join(watch.active)})")
    if decision.reason is DecisionReason.HOLDING:
        span = format_duration(watch.hold_for_s)
        return WatchBlock(BlockReason.HOLD_FOR, f"not at or under its limit for {span} yet (hold_for)")
    if decision.reason is DecisionReason.IN_STOCK:
        return WatchBlock(BlockReason.IN_STOCK, "its offers were not out of stock before (restock = true)")
    return None
