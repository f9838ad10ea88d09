"""Renting that is switched off: at all, or by one watch, by the owner's word. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo

import msgspec

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is rented from `at` until `until` (None: until it is resumed)."""

    watch: str | None  # None: by any watch
    at: datetime
    until: datetime | None = None
    why: str = ""

    def holds(self, now: datetime) -> bool:
        """Does it still stand? A clock that was set back makes it last longer, never shorter."""
        return self.until is None or now < self.until

    def binds(self, watch: str | None) -> bool:
        """Is it about this watch? None: about renting at all."""
        return self.watch is None or self.watch == watch

    def text(self, zone: tzinfo = UTC) -> str:
        """One sentence without a full stop."""
        what = "Renting" if self.watch is None else f"Renting by watch {self.watch!r}"
        how_long = "until you resume it" if self.until is None else f"until {_moment(self.until, zone)}"
        return f"{what} is paused {how_long}" + (f" ({self.why})" if self.why else "")


def pause_refusal(pauses: Iterable[Pause], watch: str, now: datetime) -> LaunchRefusal | None:
    """Do the pauses let this watch rent? None: yes."""
    for pause in pauses_in_force(pauses, watch, now):
        text = pause.text()
        return LaunchRefusal(RefusalReason.PAUSED, text[0].lower() + text[1:])
    return None


def pauses_in_force(pauses: Iterable[Pause], watch: str | None, now: datetime) -> Sequence[Pause]:
    """Those that stand and are about this watch, the global one first."""
    found = [pause for pause in pauses if pause.holds(now) and pause.binds(watch)]
    return sorted(found, key=lambda pause: pause.watch or "")


def _moment(at: datetime, zone: tzinfo) -> str:
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z")
