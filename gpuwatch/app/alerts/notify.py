"""Send a test message through each configured channel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch import notifiers
from gpuwatch.bootstrap import build_channels, http_client, new_id, real_now
from gpuwatch.engine.alerts.channel_alerts import test_alert
from gpuwatch.errors import DeliveryError, UsageError
from gpuwatch.ports import MovableChannel

if TYPE_CHECKING:
    from gpuwatch.ports import Alert, Channel
    from gpuwatch.settings import Settings


class ChannelTestResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one channel. `in_part`: some of its recipients have the message, but not all."""

    channel: str
    arrived: bool
    in_part: bool = False
    error: str | None = None
    outdated: tuple[str, str] | None = None  # the key of [notify.NAME] that needs a new value, and the value


class ChannelTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test message that is being sent; iterating over `results` sends it."""

    alert_id: str
    results: Iterator[ChannelTestResult]


def send_test_message(settings: Settings) -> ChannelTest:
    """Send a test message through every channel. Raises UsageError: no channel is configured."""
    if not settings.channels:
        raise UsageError(f"no channel is configured: add one of {notify_sections()}")
    alert = test_alert(alert_id=new_id(), now=real_now())
    return ChannelTest(alert_id=alert.alert_id, results=_send(settings, alert))


def notify_sections() -> str:
    """The sections that configure a channel: "[notify.email], [notify.telegram]"."""
    return ", ".join(f"[notify.{name}]" for name in notifiers.names())


def _send(settings: Settings, alert: Alert) -> Iterator[ChannelTestResult]:
    with http_client(settings) as http:
        yield from send_to_all(build_channels(settings, http).values(), alert)


def send_to_all(channels: Iterable[Channel], alert: Alert) -> Iterator[ChannelTestResult]:
    """Try each channel once, regardless of the others' results."""
    for channel in channels:
        error, in_part = None, False
        try:
            channel.send(alert)
        except DeliveryError as fault:
            refused = f" (not by {fault.refused})" if fault.refused and fault.refused not in str(fault) else ""
            error = f"{fault}{refused}"
            in_part = not all(key.startswith("!") for key in fault.taken)
        outdated = None
        if isinstance(channel, MovableChannel) and channel.new_address is not None:
            outdated = (channel.address_option, channel.new_address)
        yield ChannelTestResult(
            channel=channel.name, arrived=error is None, in_part=in_part, error=error, outdated=outdated
        )


def channel_test_json(alert_id: str, results: Sequence[ChannelTestResult]) -> dict[str, Any]:
    """JSON of `gpuwatch notify`."""
    channels = [
        {
            "channel": result.channel,
            "arrived": result.arrived,
            "in_part": result.in_part,
            "error": result.error,
            "chat_id": None if result.outdated is None else result.outdated[1],  # the channel's new address
        }
        for result in results
    ]
    return {"alert_id": alert_id, "channels": channels}
