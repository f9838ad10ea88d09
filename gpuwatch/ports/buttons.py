"""The ports for buttons under a message: what a channel shows, and which buttons an alert has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from gpuwatch.ports.alerts import Alert

DATA_BYTES = 64  # of one button (source: core.telegram.org/bots/api#inlinekeyboardbutton, callback_data)


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
