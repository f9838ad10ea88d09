"""Alerts about the alert channels themselves, and the test message. Pure."""

from __future__ import annotations

from datetime import datetime

from gpuwatch.ports import Alert, AlertKind, MovableChannel
from gpuwatch.redaction import redact


def channel_alert(channel: str, error: str, *, alert_id: str, now: datetime) -> Alert:
    """A channel refuses alerts; for the other channels."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel,
        created_at=now,
        headline=f"Alerts do not arrive by {channel}",
        facts=(("Channel", channel), ("Answer", redact(error))),
        why="The channel refused a message and will keep refusing until something is fixed.",
        did="Your other channels received the refused message. gpuwatch retries this channel from time to time.",
        can_do=(f"Fix [notify.{channel}], then run: gpuwatch notify", "See all channels: gpuwatch doctor"),
    )


def silent_channel_alert(channel: str, since: str, error: str, *, alert_id: str, now: datetime) -> Alert:
    """A channel takes nothing, without saying no; for the other channels."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel,
        created_at=now,
        headline=f"Alerts do not arrive by {channel}",
        facts=(("Channel", channel), ("Since", since), ("Answer", redact(error))),
        why="The channel has taken nothing since then.",
        did="Whatever waits there for 15 minutes goes to your other channels, too; gpuwatch keeps trying this one.",
        can_do=("See what is wrong: gpuwatch doctor", f"Try it: gpuwatch notify, after a change of [notify.{channel}]"),
    )


def new_address_alert(channel: MovableChannel, new: str, *, alert_id: str, now: datetime) -> Alert:
    """A channel's address has changed: the settings are out of date."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel.name,
        created_at=now,
        headline=f"The {channel.address_option} of {channel.name} has changed",
        facts=((f"Old {channel.address_option}", channel.address), (f"New {channel.address_option}", new)),
        why="The channel answered with its new address.",
        did="gpuwatch sends to the new address from now on and remembers it.",
        can_do=(f'Set [notify.{channel.name}] {channel.address_option} = "{new}"',),
    )


def late_alert(channel: str, count: int, *, alert_id: str, now: datetime) -> Alert:
    """Alerts of a channel expired, and no newer alert waits there to mention them."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel,
        created_at=now,
        headline=f"{count} {'alert' if count == 1 else 'alerts'} could not be delivered by {channel} in time",
        why="Quiet hours held them back, or the channel accepted nothing, while they were current.",
        did="They expired; they are listed here so that you know about them.",
        can_do=("See current offers: gpuwatch check",),
    )


def test_alert(*, alert_id: str, now: datetime) -> Alert:
    """What `gpuwatch notify` sends."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.TEST,
        created_at=now,
        headline="gpuwatch test message",
        why="You requested it with: gpuwatch notify",
        did="Nothing else: no offer was found, nothing was rented.",
    )
