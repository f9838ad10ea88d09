"""What follows from an observation: one durable step, and what is to be done after it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from gpuwatch.domain.launches.launch import LaunchState


class NotificationTopic(StrEnum):
    """What a telling is about; it decides its kind, its advice, and how often it is told."""

    STATE_CHANGED = "moved"
    NOT_RENTED = "not rented"
    HELD = "held"
    UNLISTED = "unlisted"
    CONDITION_CHANGED = "befallen"  # it runs on, or stands still, or its price is another: it may flap


class Notification(msgspec.Struct, frozen=True):
    """What the owner is told, in the transaction of the move."""

    headline: str
    why: str
    about: NotificationTopic = NotificationTopic.STATE_CHANGED


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One durable step.

    Args:
        words: the provider's own, as they were cleaned.
        hook: the owner's hook that it calls for.
    """

    to_state: LaunchState
    cause: str
    words: str | None = None
    changes: Mapping[str, Any] = {}
    notify: Notification | None = None
    hook: str | None = None


class Destroy(msgspec.Struct, frozen=True):
    """End this instance at the provider. To ask twice costs nothing."""

    instance_id: str


class RaiseBid(msgspec.Struct, frozen=True):
    """Bid this (listed, GPUs alone)."""

    instance_id: str
    bid_microusd_hour: int


class SlotFreed(msgspec.Struct, frozen=True):
    """It is over: its slot is free."""


Effect = Destroy | RaiseBid | SlotFreed


class TransitionResult(msgspec.Struct, frozen=True):
    """First the move, durably; then the effects. Neither: nothing follows."""

    transition: Transition | None = None
    effects: tuple[Effect, ...] = ()


NO_TRANSITION = TransitionResult()
