"""The result of an event: one durable transition, and the effects after it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from gpuwatch.domain.launches.launch import LaunchState


class NotificationTopic(StrEnum):
    """The subject of a notification; it decides its kind, its advice and how often it is sent."""

    STATE_CHANGED = "moved"
    NOT_RENTED = "not rented"
    HELD = "held"
    UNLISTED = "unlisted"
    RETURNED = "returned"
    CONDITION_CHANGED = "condition changed"  # running, stopped, or another price: may change back and forth


class Notification(msgspec.Struct, frozen=True):
    """The alert for the owner, recorded in the transaction of the transition."""

    headline: str
    why: str
    about: NotificationTopic = NotificationTopic.STATE_CHANGED
    candidate: str | None = None  # HELD: the instance that may belong to it


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One durable state change.

    Args:
        words: the provider's own text, cleaned.
        notify: the alert for the owner.
        hook: the owner's hook to run.
    """

    to_state: LaunchState
    cause: str
    words: str | None = None
    changes: Mapping[str, Any] = {}
    notify: Notification | None = None
    hook: str | None = None


class Destroy(msgspec.Struct, frozen=True):
    """End this instance at the provider. Repeating it is harmless."""

    instance_id: str


class RaiseBid(msgspec.Struct, frozen=True):
    """Raise the bid to this amount (listed, GPUs only)."""

    instance_id: str
    bid_microusd_hour: int


class SlotFreed(msgspec.Struct, frozen=True):
    """The launch is over, so its slot is free."""


Effect = Destroy | RaiseBid | SlotFreed


class TransitionResult(msgspec.Struct, frozen=True):
    """First the transition is stored, then the effects are carried out. Without either, nothing follows."""

    transition: Transition | None = None
    effects: tuple[Effect, ...] = ()


NO_TRANSITION = TransitionResult()


def over(state: LaunchState, reason: str, now: datetime, notify: Notification, words: str = "") -> TransitionResult:
    """Return what every end does: the reason, the owner's alert and hook, and the free slot."""
    changes = {"ended_at": now, "end_reason": reason}
    step = Transition(
        to_state=state, cause=reason, words=words or None, changes=changes, notify=notify, hook="on_ended"
    )
    return TransitionResult(step, (SlotFreed(),))
