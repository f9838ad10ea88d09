"""Which channels get an alert, when, and with or without a sound: decided here, for every alert. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, tzinfo

import msgspec

from gpuwatch.domain.watches.windows import is_open
from gpuwatch.ports import Alert, AlertKind, Severity, UnroutedAlert

SILENCED_KINDS = frozenset({AlertKind.MATCH, AlertKind.APPROVAL})  # what `gpuwatch silence` holds back


class AlertRouting(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's wishes.

    Attributes:
        channels: all that are configured.
        watch_channels: by watch, where it names its own.
        min_severity: by channel; what is below comes without a sound.
        silent_channels: those that can deliver without a sound; the others do not get what is below.
        quiet_hours: local windows in which only critical alerts are sent; the others wait.
        zone: of the wall clock for `quiet_hours`.
    """

    channels: tuple[str, ...]
    watch_channels: Mapping[str, tuple[str, ...]] = {}
    min_severity: Mapping[str, Severity] = {}
    silent_channels: Collection[str] = frozenset()
    quiet_hours: tuple[str, ...] = ()
    zone: tzinfo = UTC

    def channels_for(self, one: UnroutedAlert) -> tuple[str, ...]:
        """The channels that are to send it; none if its watch is silenced, and none for what the owner did."""
        if one.alert.kind is AlertKind.AUDIT:
            return ()
        if one.silenced and one.alert.kind in SILENCED_KINDS:
            return ()
        wanted = self.watch_channels.get(one.alert.watch or "", self.channels)
        return tuple(name for name in wanted if self.takes(name, one.alert.severity))

    def takes(self, channel: str, severity: Severity) -> bool:
        """Does the channel send what is so urgent, with or without a sound?"""
        return channel in self.silent_channels or severity.rank >= self._least(channel)

    def is_below(self, channel: str, alert: Alert) -> bool:
        """Is it less urgent than what this channel is for?"""
        return alert.severity.rank < self._least(channel)

    def _least(self, channel: str) -> int:
        return self.min_severity.get(channel, Severity.INFO).rank

    def is_quiet(self, now: datetime) -> bool:
        """Do quiet hours hold back what is not critical?"""
        return bool(self.quiet_hours) and is_open(self.quiet_hours, now, self.zone)
