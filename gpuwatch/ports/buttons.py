"""Buttons under a message: what a channel shows, and who says which an alert bears."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from gpuwatch.ports.alerts import Alert

DATA_BYTES = 64  # of one button (source: core.telegram.org/bots/api#inlinekeyboardbutton, callback_data)


class MessageButton(msgspec.Struct, frozen=True):
    """One button; `data` comes back when it is pressed: at most `DATA_BYTES`, ASCII."""

    label: str
    data: str


ButtonRows = Sequence[Sequence[MessageButton]]


class ButtonSource(Protocol):
    """Knows what the owner can do about an alert."""

    def buttons_for(self, alert: Alert) -> ButtonRows:
        """The buttons of its message, by row; empty: none. Never raises: an alert goes out without them then."""


@runtime_checkable
class ButtonChannel(Protocol):
    """A channel whose messages can bear buttons.

    Attributes:
        address: where its messages go: a button of one place does nothing in another.
        users: ids of those who may press; empty: nobody.
        button_secret: what only this installation and the service behind the channel know.
        buttons: says which an alert bears; None: none.
    """

    address: str
    users: frozenset[str]
    button_secret: str
    buttons: ButtonSource | None
