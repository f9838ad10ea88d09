"""What follows from an observation: one durable step, and what is to be done after it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from gpuwatch.launches.launch import LaunchState


class About(StrEnum):
    """What a telling is about; it decides its kind, its advice, and how often it is told."""

    MOVED = "moved"
    NOT_RENTED = "not rented"
    HELD = "held"
    UNLISTED = "unlisted"
    BEFALLEN = "befallen"  # it runs on, or stands still, or its price is another: it may flap


class Tell(msgspec.Struct, frozen=True):
    """What the owner is told, in the transaction of the move."""

    headline: str
    why: str
    about: About = About.MOVED


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One durable step.

    Args:
        words: the provider's own, as they were cleaned.
        hook: the owner's hook that it calls for.
    """

    to_state: LaunchState
    cause: str
    words: str | None = None
    changes: Mapping[str, Any] = {}
    tell: Tell | None = None
    hook: str | None = None


class Destroy(msgspec.Struct, frozen=True):
    """End this instance at the provider. To ask twice costs nothing."""

    instance_id: str


class RaiseBid(msgspec.Struct, frozen=True):
    """Bid this (listed, GPUs alone)."""

    instance_id: str
    bid_microusd_hour: int


class Freed(msgspec.Struct, frozen=True):
    """It is over: its slot is free."""


Effect = Destroy | RaiseBid | Freed


class Outcome(msgspec.Struct, frozen=True):
    """First the move, durably; then the effects. Neither: nothing follows."""

    move: Move | None = None
    effects: tuple[Effect, ...] = ()


NOTHING = Outcome()
