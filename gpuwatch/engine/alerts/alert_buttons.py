"""The buttons of an alert: what its owner can do with one tap, as signed data. Pure.

- `AlertButtons` selects the buttons of an alert; `approval_buttons` are those of a quote that waits for approval.
- `ButtonSigner` writes and reads their data, of at most 64 bytes: `ACTION.SUBJECT.EXPIRY.NONCE.BOUND.SIGNATURE`. BOUND
  is a digest of what the action was offered for (a quote, the end of a launch), so that the button cannot act on
  anything else. The nonce makes every button unique: it works once.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from gpuwatch.domain.alerts import message_texts as texts
from gpuwatch.domain.alerts.offer_texts import NOTHING, ONLY_ALERTS
from gpuwatch.domain.launches.life.owner_decisions import Approval, ApprovalState
from gpuwatch.engine.alerts.launch_alerts import goes_on
from gpuwatch.engine.alerts.page_links import job_id_of, launch_id_of
from gpuwatch.errors import StoreError
from gpuwatch.language import translate_composed
from gpuwatch.ports import Alert, AlertKind
from gpuwatch.ports.alerts import DATA_BYTES, ButtonRows, MessageButton

LIVES_FOR = timedelta(days=7)  # validity of buttons whose subject sets no end; a store keeps presses for longer
SILENCE_FOR = timedelta(hours=6)
_SILENCE_OFFERED_FOR = timedelta(days=2)
_PARTS = 5  # approvals of one message that get buttons
_LABEL = 20  # characters of a watch's name in a button
_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,18}")
_SHAPE = re.compile(r"([a-z]{1,2})\.([A-Za-z0-9_-]{0,18})\.([0-9a-f]{8})\.([a-z0-9]{6})\.([0-9a-f]{6})\.([\w-]{16})")


class ButtonAction(StrEnum):
    """The action of a press; the values are in data sent long ago. `…_NOW`: confirmed after a question."""

    APPROVE = "a"
    DENY = "d"
    SILENCE = "s"
    WHY = "w"
    WHY_NOT = "y"
    STOP = "x"
    STOP_NOW = "xx"
    KEEP = "k"
    KEEP_NOW = "kk"
    START = "t"
    START_NOW = "tt"
    EXTEND = "e"
    EXTEND_BY = "eb"
    EXTEND_NOW = "ee"
    ABSENT_NOW = "ra"
    COST = "c"
    RENT = "q"
    RENT_FOR = "qf"
    PAUSE = "p"
    RESUME = "r"
    OFFERS = "o"
    HISTORY = "h"
    PLAN = "l"
    CANCEL = "n"
    JOB_LOG = "jl"
    JOB_CANCEL = "jc"
    JOB_CANCEL_NOW = "jx"
    JOB_RETRY = "jr"
    JOB_RETRY_NOW = "jq"
    SERIES_END = "je"
    SERIES_END_NOW = "jn"


# These change something; the others read, or only ask for confirmation.
_WORKS_ONCE = frozenset(
    {
        ButtonAction.APPROVE,
        ButtonAction.DENY,
        ButtonAction.SILENCE,
        ButtonAction.STOP_NOW,
        ButtonAction.KEEP_NOW,
        ButtonAction.START_NOW,
        ButtonAction.EXTEND_NOW,
        ButtonAction.ABSENT_NOW,
        ButtonAction.PAUSE,
        ButtonAction.RESUME,
        ButtonAction.JOB_CANCEL_NOW,
        ButtonAction.JOB_RETRY_NOW,
        ButtonAction.SERIES_END_NOW,
    }
)

_OF_LAUNCHES = {
    AlertKind.RENT: (
        (texts.STOP, ButtonAction.STOP),
        (texts.EXTEND, ButtonAction.EXTEND),
        (texts.COST, ButtonAction.COST),
    ),
    AlertKind.HELD: ((texts.STOP, ButtonAction.STOP), (texts.COST, ButtonAction.COST)),
    AlertKind.END: ((texts.COST, ButtonAction.COST),),
}

_LOG = (texts.LOG, ButtonAction.JOB_LOG)
_CANCEL = (texts.CANCEL, ButtonAction.JOB_CANCEL)
_RETRY = (texts.RETRY, ButtonAction.JOB_RETRY)


class ButtonFault(StrEnum):
    """Why a press does nothing; shown to the person who pressed."""

    FORGED = texts.FORGED
    LATE = texts.LATE


class SignedButton(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of a press.

    Attributes:
        subject: the id of an approval, a launch, a job or an alert; the `subject_key` of a watch, recurring job or GPU.
        bound: a digest, see `bound_to`; empty: not bound.
        data: the complete data as received; it identifies the press.
    """

    action: ButtonAction
    subject: str
    bound: str
    data: str

    @property
    def works_once(self) -> bool:
        """Whether a second press does nothing."""
        return self.action in _WORKS_ONCE


def subject_key(name: str) -> str:
    """Return a key of 10 characters for a name that may be too long for a button's data."""
    return hashlib.sha256(name.encode()).hexdigest()[:10]


def bound_to(*facts: object) -> str:
    """Return a digest of what a button is offered for."""
    return hashlib.sha256("\n".join(map(str, facts)).encode()).hexdigest()[:6]


class ButtonSigner:
    """Signs buttons for one chat and reads them back.

    Args:
        secret: of the installation and its bot; without it nobody can create a button.
        chat: a button of one chat does nothing in another one.
        new_nonce: returns six characters of a-z and 0-9.
    """

    def __init__(self, secret: bytes, chat: str, new_nonce: Callable[[], str]) -> None:
        self._secret = secret
        self._chat = chat
        self._new_nonce = new_nonce

    def button(
        self, label: str, action: ButtonAction, subject: str, expires_at: datetime, bound: str = ""
    ) -> MessageButton:
        """Return a button that does nothing from `expires_at` on."""
        expiry = f"{int(expires_at.timestamp()):08x}"
        payload = f"{action.value}.{subject}.{expiry}.{self._new_nonce()}.{bound or '000000'}"
        data = f"{payload}.{self._signature(payload)}"
        assert len(data.encode()) <= DATA_BYTES, data
        return MessageButton(translate_composed(label), data)

    def read(self, data: str, now: datetime) -> SignedButton | ButtonFault:
        """Return the meaning of a press, or why it does nothing."""
        found = _SHAPE.fullmatch(data)
        if found is None or not data.isascii():
            return ButtonFault.FORGED
        payload, _, signature = data.rpartition(".")
        if not hmac.compare_digest(signature, self._signature(payload)) or found[1] not in set(ButtonAction):
            return ButtonFault.FORGED
        if now >= datetime.fromtimestamp(int(found[3], 16), UTC):
            return ButtonFault.LATE
        bound = "" if found[5] == "000000" else found[5]
        return SignedButton(action=ButtonAction(found[1]), subject=found[2], bound=bound, data=data)

    def _signature(self, payload: str) -> str:
        digest = hmac.digest(self._secret, f"{self._chat}\n{payload}".encode(), "sha256")
        return urlsafe_b64encode(digest[:12]).decode()  # 96 bits: too many to guess by pressing


class AlertButtons:
    """Selects the buttons of an alert (see `ports.alerts.ButtonSource`).

    Args:
        approval_of: returns an approval by its id.
        can_rent: whether gpuwatch can rent at a provider.
    """

    def __init__(
        self,
        signer: ButtonSigner,
        approval_of: Callable[[str], Approval | None],
        clock: Callable[[], datetime],
        can_rent: Callable[[str], bool] = lambda provider: False,
    ) -> None:
        self._can_rent = can_rent
        self._signer = signer
        self._approval_of = approval_of
        self._clock = clock

    def buttons_for(self, alert: Alert) -> ButtonRows:
        """See `ButtonSource`."""
        now = self._clock()
        try:
            return [row for row in self._rows(alert, now) if row]
        except StoreError:  # the alert's text names the command to type instead
            return []

    def _rows(self, alert: Alert, now: datetime) -> Iterator[list[MessageButton]]:
        if alert.parts:
            for part in alert.parts[:_PARTS]:
                yield self._approval(part, now, (part.watch or "")[:_LABEL])
            return
        yield self._approval(alert, now)
        if alert.watch and alert.kind.rules.is_offer:
            yield [
                self._signer.button(
                    texts.SILENCE, ButtonAction.SILENCE, subject_key(alert.watch), now + _SILENCE_OFFERED_FOR
                ),
                self._signer.button(texts.WHY, ButtonAction.WHY, alert.alert_id, now + LIVES_FOR),
                *self._rent(alert, now),
            ]
        elif (job_id := job_id_of(alert)) is not None and _JOB_ID.fullmatch(job_id):
            yield [self._signer.button(label, action, job_id, now + LIVES_FOR) for label, action in _of_job(alert)]
        elif (launch_id := launch_id_of(alert)) is not None:
            yield [
                self._signer.button(label, action, launch_id, now + LIVES_FOR) for label, action in _of_launch(alert)
            ]

    def _rent(self, alert: Alert, now: datetime) -> Iterator[MessageButton]:
        """The button that rents the best offer of an alert about which gpuwatch does nothing itself."""
        idle = tuple(map(translate_composed, (NOTHING, ONLY_ALERTS)))  # the alert is in the reader's language
        if alert.offers and alert.did.startswith(idle) and self._can_rent(alert.offers[0].provider):
            yield self._signer.button(texts.RENT, ButtonAction.RENT, alert.alert_id, now + LIVES_FOR)

    def _approval(self, alert: Alert, now: datetime, of: str = "") -> list[MessageButton]:
        ask = self._approval_of(alert.approval_id) if alert.approval_id else None
        if ask is None or ask.state_at(now) is not ApprovalState.OPEN:
            return []
        return approval_buttons(ask, self._signer, of)


def _of_launch(alert: Alert) -> tuple[tuple[str, ButtonAction], ...]:
    """Of a machine that is stopped: start it, too. Its alert names the command."""
    is_stopped = any("gpuwatch launches start " in one for one in alert.can_do)
    return ((texts.START, ButtonAction.START),) * is_stopped + _OF_LAUNCHES.get(alert.kind, ())


def _of_job(alert: Alert) -> tuple[tuple[str, ButtonAction], ...]:
    """A finished job: its log. A failed one: retry, or cancel. Actions that cost money ask for confirmation."""
    if alert.kind is AlertKind.END:
        return (_LOG,)
    return (_CANCEL, _LOG) if goes_on(alert) else (_RETRY, _CANCEL, _LOG)


def approval_binding(ask: Approval) -> str:
    """Return a digest of the quote: the offer, its price and its deadline."""
    offer, price = ask.match.offer.identity, ask.match.price.price_microusd_hour
    return bound_to(ask.approval_id, offer, price, int(ask.deadline.timestamp()))


def approval_buttons(ask: Approval, signer: ButtonSigner, of: str = "") -> list[MessageButton]:
    """Return the buttons that approve and deny it. `of`: which approval, in a message with several."""
    binding = approval_binding(ask)
    return [
        signer.button(
            texts.APPROVE.format(what=of).strip(), ButtonAction.APPROVE, ask.approval_id, ask.deadline, binding
        ),
        signer.button(texts.DENY.format(what=of).strip(), ButtonAction.DENY, ask.approval_id, ask.deadline, binding),
    ]
