"""Send a test message through each configured channel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.errors import DeliveryError

if TYPE_CHECKING:
    from gpuwatch.ports import Alert, Channel


class ChannelTestResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one channel's test message."""

    channel: str
    arrived: bool
    error: str | None = None
    chat_id: str | None = None  # where the chat has moved to: the settings are stale


def send_to_all(channels: Iterable[Channel], alert: Alert) -> Iterator[ChannelTestResult]:
    """Try each channel once, whatever becomes of the others."""
    from gpuwatch.ports import MovableChat

    for channel in channels:
        error = None
        try:
            channel.send(alert)
        except DeliveryError as fault:
            error = str(fault) + (
                f" (not by {fault.refused})" if fault.refused and fault.refused not in str(fault) else ""
            )
        new_chat_id = channel.new_chat_id if isinstance(channel, MovableChat) else None
        yield ChannelTestResult(channel=channel.name, arrived=error is None, error=error, chat_id=new_chat_id)
