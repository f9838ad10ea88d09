"""The ports for alerts: the alerts, the channels that deliver them, and the buttons under a message.

`event_json` is an alert as JSON, the same for `gpuwatch alerts --json` and the webhook channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import msgspec

from gpuwatch.domain.market.money import rfc3339

DATA_BYTES = 64  # of one button (source: core.telegram.org/bots/api#inlinekeyboardbutton, callback_data)


class AlertKind(StrEnum):
    """The kind of an alert. A stored value."""

    MATCH = "match"  # a watch fired
    APPROVAL = "approval"  # a watch fired and requests approval to rent
    RENT = "rent"  # a launch: ordered, running, and changes of its state
    END = "end"  # a launch has ended, or is ending
    HELD = "held"  # a launch needs a decision by the owner
    ORPHAN = "orphan"  # a labelled instance that is not in the table
    BUDGET = "budget"  # refused or stopped because of a budget
    REFUSED = "refused"  # a launch was refused for another reason
    BLIND = "blind"  # a provider stopped answering
    RECOVERED = "recovered"  # a provider answers again
    DRIFT = "drift"  # a provider's format changed
    CHANNEL = "channel"  # a channel does not deliver
    DAEMON = "daemon"  # gpuwatch itself: a task hangs or fails
    AUDIT = "audit"  # the owner changed something through the page, the API or a chat; stored, not sent
    TEST = "test"


# Kinds about spending: such an alert never expires before a channel has accepted it.
MONEY_KINDS = frozenset({AlertKind.RENT, AlertKind.END, AlertKind.HELD, AlertKind.ORPHAN, AlertKind.BUDGET})


class Severity(StrEnum):
    """How urgent an alert is, lowest first. A stored value."""

    INFO = "info"
    WARNING = "warning"  # something is wrong; it can wait until the morning
    CRITICAL = "critical"  # money may be running away, or the owner must act now

    @property
    def rank(self) -> int:
        """Higher is more urgent."""
        return list(Severity).index(self)


_SEVERITIES = {
    AlertKind.HELD: Severity.CRITICAL,
    AlertKind.ORPHAN: Severity.CRITICAL,
    AlertKind.BUDGET: Severity.WARNING,
    AlertKind.REFUSED: Severity.WARNING,
    AlertKind.BLIND: Severity.WARNING,
    AlertKind.DRIFT: Severity.WARNING,
    AlertKind.CHANNEL: Severity.WARNING,
    AlertKind.DAEMON: Severity.WARNING,
}


def severity_of(kind: AlertKind) -> Severity:
    """Default severity of a kind."""
    return _SEVERITIES.get(kind, Severity.INFO)


class OfferLine(msgspec.Struct, frozen=True, kw_only=True):
    """One offer in an alert. Money is decimal text in US dollars, ready for display."""

    gpu: str
    gpu_count: int
    price_usd_gpu_hour: str
    listed_usd_gpu_hour: str
    price_usd_hour: str
    place: str
    reliability: str
    provider: str
    offer_id: str
    machine_id: str | None = None
    spot: bool = False
    verified: bool | None = None
    url: str | None = None
    marks: tuple[str, ...] = ()  # labels such as "listed", "via lambda", "also at runpod"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One message to the owner, in parts; each channel formats and escapes it.

    All text may contain what a marketplace's host wrote: control characters are removed, but it is not escaped.

    Attributes:
        severity: default: that of its kind.
        subject: a watch, a provider, a launch id, a channel; default: the watch.
        approval_id: the approval that the alert requests.
    """

    alert_id: str
    kind: AlertKind
    created_at: datetime
    headline: str  # one line; also the mail's subject
    watch: str | None = None
    facts: tuple[tuple[str, str], ...] = ()  # label → value, in order
    offers: tuple[OfferLine, ...] = ()  # the cheapest, at most three
    why: str = ""  # why now
    did: str = ""  # what gpuwatch did
    can_do: tuple[str, ...] = ()  # what the owner can do
    parts: tuple[Alert, ...] = ()  # several watches that fired in one poll: one alert each, sent in one message
    severity: Severity = None  # type: ignore[assignment]  # set by __post_init__: never None
    subject: str = ""
    approval_id: str | None = None

    def __post_init__(self) -> None:
        """Set the defaults that depend on other fields."""
        if self.severity is None:
            msgspec.structs.force_setattr(self, "severity", severity_of(self.kind))
        if not self.subject and self.watch:
            msgspec.structs.force_setattr(self, "subject", self.watch)


class OutboxAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert to be stored."""

    alert: Alert
    expires_at: datetime
    once_key: str | None = None  # unique: at most one alert has it
    channels: tuple[str, ...] = ()  # empty: the routing decides


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


def event_json(alert: Alert) -> dict[str, Any]:
    """All fields of an alert. Facts are an object; values of a repeated label are joined by "; "."""
    facts: dict[str, str] = {}
    for label, value in alert.facts:
        facts[label] = f"{facts[label]}; {value}" if label in facts else value
    return {
        "alert_id": alert.alert_id,
        "at": rfc3339(alert.created_at),
        "kind": alert.kind.value,
        "severity": alert.severity.value,
        "subject": alert.subject,
        "watch": alert.watch,
        "headline": alert.headline,
        "facts": facts,
        "offers": [msgspec.to_builtins(offer) for offer in alert.offers],
        "why": alert.why,
        "did": alert.did,
        "can_do": list(alert.can_do),
    }
