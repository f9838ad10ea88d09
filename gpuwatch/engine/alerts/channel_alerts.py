"""Alerts about the alert channels themselves, and the test message. Pure."""

from __future__ import annotations

from datetime import datetime

from gpuwatch.ports import Alert, AlertKind, MovableChannel
from gpuwatch.redaction import redact


def channel_alert(channel: str, error: str, *, alert_id: str, now: datetime) -> Alert:
    """Alert the other channels that a channel rejects alerts."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel,
        created_at=now,
        headline=f"{channel} does not deliver alerts",
        facts=(("Channel", channel), ("Answer", redact(error))),
        why="The channel rejected a message and will keep rejecting until you fix it.",
        did="The rejected message went to your other channels. gpuwatch retries this channel from time to time.",
        can_do=(f"Fix [notify.{channel}], then run: gpuwatch notify", "See all channels: gpuwatch doctor"),
    )


def partly_refused_alert(channel: str, error: str, *, alert_id: str, now: datetime) -> Alert:
    """Alert the other channels that some recipients of a channel reject alerts."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel,
        created_at=now,
        headline=f"{channel} does not reach all of its recipients",
        facts=(("Channel", channel), ("Answer", redact(error))),
        why="These recipients rejected a message.",
        did="The other recipients received it.",
        can_do=(f"Fix [notify.{channel}], then run: gpuwatch notify",),
    )


def silent_channel_alert(channel: str, since: str, error: str, *, alert_id: str, now: datetime) -> Alert:
    """Alert the other channels that a channel accepts nothing, without an explicit rejection."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel,
        created_at=now,
        headline=f"{channel} does not deliver alerts",
        facts=(("Channel", channel), ("Since", since), ("Answer", redact(error))),
        why="The channel has accepted nothing since then.",
        did="Alerts that wait there for 15 minutes also go to your other channels; gpuwatch keeps trying this one.",
        can_do=(
            "See what is wrong: gpuwatch doctor",
            f"After a change of [notify.{channel}], test it: gpuwatch notify",
        ),
    )


def new_address_alert(channel: MovableChannel, new: str, *, alert_id: str, now: datetime) -> Alert:
    """Alert that a channel's address has changed, so that the settings are out of date."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel.name,
        created_at=now,
        headline=f"The {channel.address_option} of {channel.name} has changed",
        facts=((f"Old {channel.address_option}", channel.address), (f"New {channel.address_option}", new)),
        why="The channel reported its new address.",
        did="gpuwatch remembers the new address and uses it from now on.",
        can_do=(f'Set [notify.{channel.name}] {channel.address_option} = "{new}"',),
    )


def late_alert(channel: str, count: int, *, alert_id: str, now: datetime) -> Alert:
    """Alert that alerts of a channel expired, with no newer alert in its queue to mention them."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel,
        created_at=now,
        headline=f"{channel} did not deliver {count} {'alert' if count == 1 else 'alerts'} in time",
        why="Quiet hours held them back, or the channel accepted nothing before they expired.",
        did="They expired and are listed here for your information.",
        can_do=("See current offers: gpuwatch check",),
    )


def test_alert(*, alert_id: str, now: datetime) -> Alert:
    """Return the test message of `gpuwatch notify`."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.TEST,
        created_at=now,
        headline="gpuwatch test message",
        why="You requested it with: gpuwatch notify",
        did="This is only a test: no offer was found, nothing was rented.",
    )
