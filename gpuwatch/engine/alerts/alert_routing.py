"""Decides for every alert which channels get it, when, and with or without a sound. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, tzinfo

import msgspec

from gpuwatch.domain.watches.windows import is_open
from gpuwatch.ports import Alert, AlertKind, Severity, UnroutedAlert

SILENCED_KINDS = frozenset({AlertKind.MATCH, AlertKind.APPROVAL})  # held back by `gpuwatch silence`


class AlertRouting(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's routing settings.

    Attributes:
        channels: all configured channels.
        watch_channels: by watch, if it names its own channels.
        min_severity: by channel; less severe alerts are delivered without a sound.
        silent_channels: channels that can deliver without a sound; the others do not get less severe alerts.
        quiet_hours: local windows in which only critical alerts are sent; the others wait.
        zone: time zone of `quiet_hours`.
    """

    channels: tuple[str, ...]
    watch_channels: Mapping[str, tuple[str, ...]] = {}
    min_severity: Mapping[str, Severity] = {}
    silent_channels: Collection[str] = frozenset()
    quiet_hours: tuple[str, ...] = ()
    zone: tzinfo = UTC

    def channels_for(self, one: UnroutedAlert) -> tuple[str, ...]:
        """Return the channels for an alert: none if its watch is silenced, and none for an audit event."""
        if one.alert.kind is AlertKind.AUDIT:
            return ()
        if one.silenced and one.alert.kind in SILENCED_KINDS:
            return ()
        wanted = self.watch_channels.get(one.alert.watch or "", self.channels)
        return tuple(name for name in wanted if self.takes(name, one.alert.severity))

    def takes(self, channel: str, severity: Severity) -> bool:
        """Whether the channel sends alerts of this severity, with or without a sound."""
        return channel in self.silent_channels or severity.rank >= self._least(channel)

    def is_below(self, channel: str, alert: Alert) -> bool:
        """Whether the alert is less severe than the channel's minimum."""
        return alert.severity.rank < self._least(channel)

    def _least(self, channel: str) -> int:
        return self.min_severity.get(channel, Severity.INFO).rank

    def is_quiet(self, now: datetime) -> bool:
        """Whether quiet hours hold back all but critical alerts."""
        return bool(self.quiet_hours) and is_open(self.quiet_hours, now, self.zone)
