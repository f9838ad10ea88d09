"""A provider's notice that it takes a spot machine back, from its API or from the machine itself. Pure.

Both are untrusted: a kind that is unknown is no notice, and a time that makes no sense is left out.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

_EARLIEST = timedelta(minutes=5)  # a notice may be read late, and clocks differ
_LATEST = timedelta(hours=1)  # no provider announces an interruption so long before it
_MINUTE = timedelta(minutes=1)


class InterruptionKind(StrEnum):
    """What the provider announces. A stored value."""

    TERMINATE = "terminate"
    STOP = "stop"
    HIBERNATE = "hibernate"
    REBALANCE = "rebalance"  # a higher risk than usual; no interruption is decided yet

    @property
    def is_decided(self) -> bool:
        """Whether the machine certainly goes."""
        return self is not InterruptionKind.REBALANCE


class InterruptionNotice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One notice.

    Attributes:
        at: when the machine goes; None: the provider names no time, or none that makes sense.
        noticed_at: when gpuwatch first read it; None: it is not stored yet.
    """

    kind: InterruptionKind
    at: datetime | None = None
    noticed_at: datetime | None = None


def parse_notice(kind: str, at: str = "") -> InterruptionNotice | None:
    """Return the notice of some text, as the machine's metadata has it; None: it is none."""
    try:
        known = InterruptionKind(kind)
    except ValueError:
        return None
    try:
        moment = datetime.fromisoformat(at)
        when = moment.astimezone(UTC) if moment.tzinfo is not None and known.is_decided else None
    except (ValueError, OverflowError):
        when = None
    return InterruptionNotice(kind=known, at=when)


def is_taken_back(*notices: InterruptionNotice | None) -> bool:
    """Return whether the machine certainly goes, by one of these."""
    return any(notice is not None and notice.kind.is_decided for notice in notices)


def news_of(notice: InterruptionNotice, known: InterruptionNotice | None, now: datetime) -> InterruptionNotice | None:
    """Return the notice to store; None: it says nothing that is not known.

    An announced interruption replaces a mere risk, never the other way round, and the first one stays: the API and the
    machine announce the same one.
    """
    if known is not None and (known.kind.is_decided or not notice.kind.is_decided):
        return None
    at = notice.at if notice.at is not None and -_EARLIEST <= notice.at - now <= _LATEST else None
    return InterruptionNotice(kind=notice.kind, at=at, noticed_at=now)


def time_left(notice: InterruptionNotice, now: datetime) -> str | None:
    """Return how soon it is, as the rest of a headline: "in 2 min", "in less than a minute"; None: not known."""
    if notice.at is None or notice.at <= now:
        return None
    minutes = round((notice.at - now) / _MINUTE)
    return f"in {minutes} min" if minutes else "in less than a minute"
