"""The ports to the owner: alerts, the channels that deliver them, and the outbox between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec


class AlertKind(StrEnum):
    """What an alert is about. A stored value."""

    MATCH = "match"  # a watch fired
    APPROVAL = "approval"  # … and asks whether to rent
    RENT = "rent"  # a launch: ordered, running, and what happens to it while it lives
    END = "end"  # a launch is over, or ending
    HELD = "held"  # a launch needs the owner
    ORPHAN = "orphan"  # a labelled instance that the table does not know
    BUDGET = "budget"  # refused or stopped for money
    REFUSED = "refused"  # a launch was refused for another reason
    BLIND = "blind"  # a provider stopped answering
    RECOVERED = "recovered"  # … and is back
    DRIFT = "drift"  # a provider's format changed
    CHANNEL = "channel"  # a channel is broken
    DAEMON = "daemon"  # gpuwatch itself: a task hangs or fails
    AUDIT = "audit"  # the owner changed something through the page, the API or a chat; stored, not sent
    TEST = "test"


# What gpuwatch spends or may be spending: such an alert is never given up before some channel has taken it.
MONEY_KINDS = frozenset({AlertKind.RENT, AlertKind.END, AlertKind.HELD, AlertKind.ORPHAN, AlertKind.BUDGET})


class Severity(StrEnum):
    """How urgent an alert is, least first. A stored value."""

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
    """The severity of a kind, where its alert states none of its own."""
    return _SEVERITIES.get(kind, Severity.INFO)


class OfferLine(msgspec.Struct, frozen=True, kw_only=True):
    """One offer as an alert shows it. Money is decimal text in US dollars, finished for showing."""

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
    marks: tuple[str, ...] = ()  # what sets it apart: "listed", "via lambda", "also at runpod"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One message to the owner, in parts; each channel lays it out and escapes it in its own way.

    All text may hold what a marketplace's host wrote: cleaned of control characters, not escaped.

    Attributes:
        severity: by default that of its kind.
        subject: what it is about: a watch, a provider, a launch id, a channel; by default the watch.
        approval_id: the approval that it asks for.
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
    parts: tuple[Alert, ...] = ()  # several watches fired in one poll: one alert each, sent in one message
    severity: Severity = None  # type: ignore[assignment]  # set by __post_init__: never None
    subject: str = ""
    approval_id: str | None = None

    def __post_init__(self) -> None:
        """Fill what follows from the rest."""
        if self.severity is None:
            msgspec.structs.force_setattr(self, "severity", severity_of(self.kind))
        if not self.subject and self.watch:
            msgspec.structs.force_setattr(self, "subject", self.watch)


class OutboxAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert on its way into the store."""

    alert: Alert
    expires_at: datetime
    once_key: str | None = None  # at most one alert ever bears it
    channels: tuple[str, ...] = ()  # empty: as the routing decides


class UnroutedAlert(msgspec.Struct, frozen=True, kw_only=True):
    """A stored alert that was neither logged nor given to channels yet."""

    alert: Alert
    silenced: bool = False  # the owner silenced its watch before it came


class DueDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One alert that one channel is to send now; it is leased, so nobody else sends it meanwhile."""

    alert: Alert
    channel: str
    attempts: int  # earlier ones, without this
    taken: tuple[str, ...] = ()  # of several recipients, those that need no further try
    missed: tuple[tuple[str, str], ...] = ()  # (alert_id, headline) of earlier ones that this channel never took
    facts: tuple[tuple[str, str], ...] = ()  # label → value: what is so now, whatever the alert is about


class StalledChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel that takes nothing."""

    name: str
    since: datetime  # the first try that did not succeed
    error: str | None  # the channel's words; None: it did not answer at all


class WaitingAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that a channel should have taken by now."""

    alert_id: str
    kind: AlertKind
    severity: Severity
    given: frozenset[str]  # the channels that have it, or are to send it


class Channel(Protocol):
    """Takes alerts to a person."""

    name: str

    def send(self, alert: Alert) -> None:
        """Deliver once.

        Raises:
            DeliverLater: try again later.
            DeliveryRefused: this channel will not take it.
        """


@runtime_checkable
class ManyRecipients(Protocol):
    """A channel that mails several people, and remembers who needs no further try."""

    def send_remaining(self, alert: Alert, taken: Sequence[str]) -> None:
        """`send`, without those whose keys an earlier try raised as `taken`."""


@runtime_checkable
class SilentChannel(Protocol):
    """A channel that can deliver without a sound: for alerts below its `min_severity`. Others do not get those."""

    def send_silently(self, alert: Alert, taken: Sequence[str] = ()) -> None:
        """`send`, without a sound; `taken` as in `send_remaining`, if the channel has several recipients."""


@runtime_checkable
class BatchingChannel(Protocol):
    """A channel that keeps its connection from one alert to the next."""

    def batch(self) -> AbstractContextManager[object]:
        """Keeps it open inside the block."""


@runtime_checkable
class OneByOneChannel(Protocol):
    """A channel for programs: alerts are never put together for it."""

    one_by_one: bool


@runtime_checkable
class MovableChannel(Protocol):
    """A channel whose address may change while it is used; it goes on with the new one."""

    name: str
    address: str  # as the settings have it
    address_option: str  # the key of [notify.NAME] that holds it
    new_address: str | None


class UndeliveredAlerts(Protocol):
    """The outbox as failover sees it. All methods raise StoreError."""

    def stalled_channels(self, before: datetime) -> Sequence[StalledChannel]:
        """Channels that took nothing since a try at or before then."""

    def waiting_too_long(self, channels: Sequence[str], before: datetime) -> Sequence[WaitingAlert]:
        """What waits in these channels, and what is about money and was tried in vain since then in any."""

    def retry_untaken(self, now: datetime) -> None:
        """What is about money, was refused and is taken by nobody is tried again."""

    def also(self, alert_id: str, channels: Sequence[str]) -> int:
        """Send it on these channels too, where it is not already; how many were added."""


class DeliveryQueue(UndeliveredAlerts, Protocol):
    """The outbox as its sender sees it. `now` is given; all methods raise StoreError."""

    def start(self, channels: Sequence[str]) -> int:
        """A sender begins, with these channels; how many deliveries it takes over from channels that are gone."""

    def has_work(self) -> bool:
        """Is anything new, waiting, or expired and not mentioned yet?"""

    def unrouted(self) -> Sequence[UnroutedAlert]:
        """Alerts that were stored since `route`, oldest first; some of them, if there are many."""

    def route(self, channels: Mapping[str, Sequence[str]], now: datetime) -> None:
        """Give alerts, by their ids, to channels. What has channels already keeps those."""

    def lease(
        self,
        now: datetime,
        limit: int,
        lease_s: float,
        channels: Sequence[str] | None = None,
        *,
        only_critical: bool = False,
    ) -> Sequence[DueDelivery]:
        """Claim what is due, in order; None: of any channel."""

    def release(self, due: DueDelivery) -> None:
        """Give a lease back untouched: there was no time for it."""

    def settle_sent(self, due: DueDelivery, now: datetime, note: str | None = None) -> None:
        """The channel took it; `note`: what went wrong on the way, redacted."""

    def settle_later(self, due: DueDelivery, next_try_at: datetime, error: str, taken: Sequence[str] = ()) -> None:
        """Not before `next_try_at`, for this and all that wait behind it."""

    def settle_refused(self, due: DueDelivery, error: str, probe_at: datetime) -> None:
        """The channel will not take it; nothing else is tried there before `probe_at`."""

    def expire(self, now: datetime) -> int:
        """Give up what is past its time; how many deliveries."""

    def unreported_failures(self) -> Mapping[str, int]:
        """Channel → deliveries given up there that no message has mentioned and none waiting will mention."""

    def new_address(self, channel: str, address: str) -> str | None:
        """The newest address in place of this one; None: it has not changed."""

    def note_new_address(self, channel: str, address: str, new: str, now: datetime) -> None:
        """Keep it for the next start."""

    def enqueue(self, news: OutboxAlert) -> bool:
        """Put an alert in; False: an alert with this `once_key` is there already."""
