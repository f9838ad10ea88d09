"""The ports for alerts: the channels that deliver them, the outbox, and the buttons under a message."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from gpuwatch.domain.alerts.alert import Alert, AlertKind, Severity

DATA_BYTES = 64  # of one button (source: core.telegram.org/bots/api#inlinekeyboardbutton, callback_data)


class UnroutedAlert(msgspec.Struct, frozen=True, kw_only=True):
    """A stored alert that has not been logged or assigned to channels yet."""

    alert: Alert
    silenced: bool = False  # its watch was silenced when it was stored


class DueDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One alert to be sent on one channel; leased, so that no other sender sends it."""

    alert: Alert
    channel: str
    attempts: int  # earlier attempts, without this one
    taken: tuple[str, ...] = ()  # recipients that need no further attempt
    unreported: tuple[tuple[str, str], ...] = ()  # first of a channel: (id, headline) of alerts it never accepted
    facts: tuple[tuple[str, str], ...] = ()  # label → value: current facts, added to the alert


class StalledChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel that accepts nothing."""

    name: str
    since: datetime  # first failed attempt
    error: str | None  # the channel's error; None: it did not answer


class WaitingAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that a channel should have accepted by now."""

    alert_id: str
    kind: AlertKind
    severity: Severity
    channels: frozenset[str]  # channels that accepted it, or are about to send it


class Channel(Protocol):
    """Delivers alerts to a person."""

    name: str

    def send(self, alert: Alert) -> None:
        """Deliver once.

        Raises:
            DeliverLater: try again later.
            DeliveryRefused: this channel will never accept it.
        """


@runtime_checkable
class ManyRecipients(Protocol):
    """A channel with several recipients that remembers who needs no further attempt."""

    def send_remaining(self, alert: Alert, taken: Sequence[str]) -> None:
        """Like `send`, except for the recipients whose keys an earlier attempt raised as `taken`."""


@runtime_checkable
class SilentChannel(Protocol):
    """A channel that can deliver silently: used for alerts below its `min_severity`. Other channels skip those."""

    def send_silently(self, alert: Alert, taken: Sequence[str] = ()) -> None:
        """Like `send`, but silent; `taken` as in `send_remaining` if the channel has several recipients."""


@runtime_checkable
class BatchingChannel(Protocol):
    """A channel that keeps its connection from one alert to the next."""

    def batch(self) -> AbstractContextManager[object]:
        """Keep the connection open inside the block."""


@runtime_checkable
class OneByOneChannel(Protocol):
    """A channel for programs: alerts are never grouped for it."""

    one_by_one: bool


@runtime_checkable
class MovableChannel(Protocol):
    """A channel whose address may change while in use; it continues with the new address."""

    name: str
    address: str  # as in the settings
    address_option: str  # key of [notify.NAME] that holds the address
    new_address: str | None


class MessageButton(msgspec.Struct, frozen=True):
    """One button; `data` is returned when it is pressed: at most `DATA_BYTES`, ASCII."""

    label: str
    data: str


ButtonRows = Sequence[Sequence[MessageButton]]


class ButtonSource(Protocol):
    """Decides which actions an alert offers as buttons."""

    def buttons_for(self, alert: Alert) -> ButtonRows:
        """The buttons of an alert, by row; empty: none. Never raises: on error the alert is sent without buttons."""


@runtime_checkable
class ButtonChannel(Protocol):
    """A channel whose messages can have buttons.

    Attributes:
        address: where its messages go; a button works only there.
        users: ids of users who may press; empty: nobody.
        button_secret: shared only by this installation and the channel's service.
        buttons: decides which buttons an alert has; None: none.
    """

    address: str
    users: frozenset[str]
    button_secret: str
    buttons: ButtonSource | None


class AlertPicture(msgspec.Struct, frozen=True):
    """A PNG. `text`: what it shows, in one line."""

    png: bytes
    text: str


class PictureSource(Protocol):
    """Draws what an alert is about."""

    def picture_for(self, alert: Alert) -> AlertPicture | None:
        """Draw it; None: there is nothing to draw. Never raises, and takes a few seconds at most."""


@runtime_checkable
class PictureChannel(Protocol):
    """A channel that can send a picture with an alert.

    Attributes:
        pictures: draws them; None: none.
    """

    pictures: PictureSource | None
