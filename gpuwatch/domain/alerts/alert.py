"""An alert: its kind, its severity, its parts, and its declaration. Pure.

`AlertSpec` declares one alert: kind, severity, what makes two of them the same, and its texts with named fields. All
declarations are in the `…_texts` modules of this folder; who sends an alert names the values of its fields.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.language import translate, translate_composed

KEY_LENGTH = 200  # of a `once_key`, as stored
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_OF_JOB = re.compile(r"job:(\S+): ")
# commands for which the pages have buttons and links
_ON_A_PAGE = re.compile(
    r"gpuwatch (?:launches(?: stop (?!--)| start| resolve| costs| extend|$)|approvals (?:approve|deny)"
    r"|jobs (?:show|logs|retry|cancel)|watches resume|check\b|alerts$|providers$)"
)


class Severity(StrEnum):
    """How urgent an alert is, lowest first. A stored value."""

    INFO = "info"
    WARNING = "warning"  # something is wrong; it can wait until the morning
    CRITICAL = "critical"  # money may be running away, or the owner must act now

    @property
    def rank(self) -> int:
        """Higher is more urgent."""
        return list(Severity).index(self)


class AlertKind(StrEnum):
    """The kind of an alert. A stored value."""

    MATCH = "match"
    APPROVAL = "approval"
    RENT = "rent"
    END = "end"
    HELD = "held"
    ORPHAN = "orphan"
    BUDGET = "budget"
    REFUSED = "refused"
    BLIND = "blind"
    RECOVERED = "recovered"
    DRIFT = "drift"
    CHANNEL = "channel"
    DAEMON = "daemon"
    AUDIT = "audit"
    TEST = "test"

    @property
    def rules(self) -> KindRules:
        """What holds for every alert of this kind."""
        return _KINDS[self]


class KindRules(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every alert of a kind.

    Attributes:
        about: what such an alert is about, for documents.
        severity: the lowest that it has.
        lifetime: how long it is worth sending; a critical one at least a week, because money may be at stake.
        is_money: it is about spending: it never expires before a channel has accepted it.
        is_offer: it is about offers of a watch: a silence holds it back, and several become one message.
        fails_over: the other channels get it if its channel does not accept it.
    """

    about: str
    severity: Severity = Severity.INFO
    lifetime: timedelta = _DAY
    is_money: bool = False
    is_offer: bool = False
    fails_over: bool = True


_KINDS = {
    # later somebody else has rented it, or it is reported again
    AlertKind.MATCH: KindRules(about="a watch fired", lifetime=_HOUR, is_offer=True),
    # it lives until the deadline of its approval, if that is later
    AlertKind.APPROVAL: KindRules(about="a quote needs your approval", lifetime=_HOUR, is_offer=True),
    AlertKind.RENT: KindRules(about="a launch is ordered, runs, or changes", is_money=True),
    AlertKind.END: KindRules(about="a launch is over, or ends", is_money=True),
    AlertKind.HELD: KindRules(
        about="a launch needs your decision", severity=Severity.CRITICAL, lifetime=7 * _DAY, is_money=True
    ),
    AlertKind.ORPHAN: KindRules(
        about="a labelled instance that no launch accounts for",
        severity=Severity.CRITICAL,
        lifetime=7 * _DAY,
        is_money=True,
    ),
    AlertKind.BUDGET: KindRules(
        about="a launch was refused for money, or a budget is reached", severity=Severity.WARNING, is_money=True
    ),
    AlertKind.REFUSED: KindRules(
        about="a launch was refused for another reason", severity=Severity.WARNING, lifetime=6 * _HOUR
    ),
    AlertKind.BLIND: KindRules(about="a provider does not answer usably", severity=Severity.WARNING),
    AlertKind.RECOVERED: KindRules(about="what was reported is over"),
    AlertKind.DRIFT: KindRules(about="a provider changed its format", severity=Severity.WARNING, lifetime=3 * _DAY),
    # the other channels already have those
    AlertKind.CHANNEL: KindRules(
        about="a channel does not deliver", severity=Severity.WARNING, lifetime=3 * _DAY, fails_over=False
    ),
    AlertKind.DAEMON: KindRules(about="gpuwatch itself", severity=Severity.WARNING, lifetime=3 * _DAY),
    AlertKind.AUDIT: KindRules(about="the owner changed something; stored, not sent"),
    AlertKind.TEST: KindRules(about="a test message", lifetime=timedelta(minutes=10), fails_over=False),
}
_CRITICAL = 7 * _DAY
MONEY_KINDS = frozenset(kind for kind, rules in _KINDS.items() if rules.is_money)


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
        page_url: where the web page shows what it is about; set when it is delivered, never stored.
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
    page_url: str | None = None

    def __post_init__(self) -> None:
        """Set the defaults that depend on other fields."""
        if self.severity is None:
            msgspec.structs.force_setattr(self, "severity", self.kind.rules.severity)
        if not self.subject and self.watch:
            msgspec.structs.force_setattr(self, "subject", self.watch)


def alert_for_reading(alert: Alert, *, has_page: bool = False) -> Alert:
    """Return the alert, which is composed and stored in English, as its owner reads it, in the language of the context.

    Args:
        has_page: a page shows what it is about, with buttons: the commands for the same are left out. An alert with the
            address of its page has one.
    """
    has_page = has_page or alert.page_url is not None
    can_do = [line for line in alert.can_do if not (has_page and _ON_A_PAGE.search(line))]
    return msgspec.structs.replace(
        alert,
        headline=_headline(alert.headline),
        facts=tuple((translate_composed(label), translate_composed(value)) for label, value in alert.facts),
        offers=tuple(map(_translated_offer, alert.offers)),
        why=translate_composed(alert.why),
        did=translate_composed(alert.did),
        can_do=tuple(translate_composed(line, with_commands=True) for line in can_do),
        parts=tuple(alert_for_reading(part, has_page=has_page) for part in alert.parts),
    )


def _headline(text: str) -> str:
    """A job's watch is named like its job."""
    said = translate_composed(text)
    found = _OF_JOB.match(said)
    return said if found is None else translate("job {job}: {text}").format(job=found[1], text=said[found.end() :])


def _translated_offer(offer: OfferLine) -> OfferLine:
    return msgspec.structs.replace(
        offer,
        place=translate_composed(offer.place),
        reliability=translate_composed(offer.reliability),
        marks=tuple(map(translate_composed, offer.marks)),
    )


class OutboxAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert to be stored."""

    alert: Alert
    expires_at: datetime
    once_key: str | None = None  # unique: at most one alert has it
    channels: tuple[str, ...] = ()  # empty: the routing decides


class _Values(dict[str, Any]):
    """The values of an alert's fields; a line that names one that is None is left out."""

    def __getitem__(self, name: str) -> Any:
        if (value := super().__getitem__(name)) is None:
            raise _LeftOut
        return value

    def line(self, text: str) -> str:
        try:
            return text.format_map(self)
        except _LeftOut:
            return ""


class _LeftOut(Exception):
    """A line has no value for a field."""


class AlertSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of one alert. Its texts have the form of `str.format`.

    A line that comes out empty is left out, and so is a line or a sentence that names a value which is None. Every text
    may name `now`, `subject` and `watch`.

    Attributes:
        severity: None: that of its kind.
        lifetime: at least; by default that of its kind.
        once: two alerts with the same key are one, for all daemons and restarts; empty: each of them is sent.
        why, did: a text, or its sentences.
        resolved: the alert that says that it is over; None: nothing does.
    """

    kind: AlertKind
    headline: str
    severity: Severity | None = None
    lifetime: timedelta = timedelta(0)
    once: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    why: str | tuple[str, ...] = ""
    did: str | tuple[str, ...] = ""
    can_do: tuple[str, ...] = ()
    resolved: AlertSpec | None = None

    def alert(  # noqa: PLR0913 the parts of an alert
        self,
        alert_id: str,
        now: datetime,
        *,
        subject: str = "",
        watch: str | None = None,
        kind: AlertKind | None = None,
        severity: Severity | None = None,
        facts: Sequence[tuple[str, str]] = (),
        more_facts: Sequence[tuple[str, str]] = (),
        can_do: Sequence[str] = (),
        **fields: Any,
    ) -> Alert:
        """Return the alert.

        Args:
            kind: instead of the declared one; so is `severity`.
            facts: before those of the declaration; `more_facts`: after them.
            can_do: after the lines of the declaration.
            fields: the values of the fields that its texts name.
        """
        plain = {"now": now, "subject": subject, "watch": watch, **fields}
        values = _Values(plain)
        return Alert(
            alert_id=alert_id,
            kind=kind or self.kind,
            severity=severity or self.severity or (kind or self.kind).rules.severity,
            subject=subject,
            watch=watch,
            created_at=now,
            headline=self.headline.format_map(plain),
            facts=(*facts, *filled_facts(self.facts, plain), *more_facts),
            why=_joined(self.why, values),
            did=_joined(self.did, values),
            can_do=(*filter(None, map(values.line, self.can_do)), *can_do),
        )

    def key(self, now: datetime, *, subject: str = "", watch: str | None = None, **fields: Any) -> str:
        """Return the key that at most one stored alert has."""
        return self.once.format_map({"now": now, "subject": subject, "watch": watch, **fields})[:KEY_LENGTH]

    def outbox(self, alert_id: str | None, now: datetime, **fields: Any) -> OutboxAlert:
        """Return the alert with its key, to be stored; `fields` as in `alert`. Without an id, the key gives it one."""
        key = self.key(now, **fields)
        alert = self.alert(alert_id or alert_id_from(key), now, **fields)
        return outbox_alert(alert, key or None, now + self.lifetime)


def filled_facts(facts: Sequence[tuple[str, str]], fields: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return declared facts with the values of their fields, without those that have none."""
    values = _Values(fields)
    filled = ((values.line(label), values.line(value)) for label, value in facts)
    return tuple(fact for fact in filled if fact[1])


def _joined(text: str | tuple[str, ...], values: _Values) -> str:
    sentences = (text,) if isinstance(text, str) else text
    return " ".join(filter(None, map(values.line, sentences)))


def outbox_alert(alert: Alert, once_key: str | None = None, until: datetime | None = None) -> OutboxAlert:
    """Return the alert with its lifetime, which lasts at least to `until`."""
    expires_at = max(alert.created_at + alert_lifetime(alert.kind, alert.severity), until or alert.created_at)
    return OutboxAlert(alert=alert, expires_at=expires_at, once_key=once_key)


def alert_lifetime(kind: AlertKind, severity: Severity = Severity.INFO) -> timedelta:
    """Return how long such an alert is worth sending; then it expires, and the next message mentions it."""
    return max(kind.rules.lifetime, _CRITICAL) if severity is Severity.CRITICAL else kind.rules.lifetime


def alert_id_from(key: str) -> str:
    """Return the alert id of a cause, always the same for the same cause: 12 characters."""
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def without_numbers(did: str) -> str:
    """Return a text without its numbers, for comparison: a balance that falls by a cent is not news."""
    return re.sub(r"[0-9]+", "", did)


class AlertView(JsonView, frozen=True, kw_only=True):
    """One alert, for programs and the webhook channel."""

    alert_id: str
    at: Moment
    kind: AlertKind
    severity: Severity
    subject: str
    watch: str | None
    headline: str
    facts: Annotated[dict[str, str], Meta(description='Values of a repeated label are joined by "; ".')]
    offers: tuple[OfferLine, ...]
    why: str
    did: str
    can_do: tuple[str, ...]
    page_url: str | None


def view_fields(alert: Alert) -> dict[str, Any]:
    """The fields of an `AlertView` that the alert has not under their names."""
    facts: dict[str, str] = {}
    for label, value in alert.facts:
        facts[label] = f"{facts[label]}; {value}" if label in facts else value
    return {"at": alert.created_at, "facts": facts}


def event_json(alert: Alert) -> dict[str, Any]:
    """All fields of an alert as JSON."""
    return AlertView.of(alert, **view_fields(alert)).json()
