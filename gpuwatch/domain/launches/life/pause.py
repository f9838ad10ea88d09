"""Pauses: renting that the owner switched off, for all watches or for one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo

import msgspec

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason
from gpuwatch.domain.setup.durations import format_moment


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """No launches from `at` until `until` (None: until resumed)."""

    watch: str | None  # None: all watches
    at: datetime
    until: datetime | None = None
    why: str = ""

    def holds(self, now: datetime) -> bool:
        """Return whether it still applies. Setting the clock back makes a pause longer, never shorter."""
        return self.until is None or now < self.until

    def binds(self, watch: str | None) -> bool:
        """Return whether it applies to this watch; None: to renting in general."""
        return self.watch is None or self.watch == watch

    def text(self, zone: tzinfo = UTC) -> str:
        """One sentence without a full stop."""
        what = "Renting" if self.watch is None else f"Renting by watch {self.watch!r}"
        how_long = "until you resume it" if self.until is None else f"until {format_moment(self.until, zone)}"
        return f"{what} is paused {how_long}" + (f" ({self.why})" if self.why else "")


def pause_refusal(pauses: Iterable[Pause], watch: str, now: datetime, zone: tzinfo = UTC) -> LaunchRefusal | None:
    """Return why the pauses do not allow this watch to rent, or None."""
    for pause in pauses_in_force(pauses, watch, now):
        text = pause.text(zone)
        return LaunchRefusal(RefusalReason.PAUSED, text[0].lower() + text[1:], of_watch=pause.watch is not None)
    return None


def pauses_in_force(pauses: Iterable[Pause], watch: str | None, now: datetime) -> Sequence[Pause]:
    """Return the pauses that apply to this watch now, the global one first."""
    found = [pause for pause in pauses if pause.holds(now) and pause.binds(watch)]
    return sorted(found, key=lambda pause: pause.watch or "")
