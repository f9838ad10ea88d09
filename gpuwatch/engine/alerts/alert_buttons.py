"""The buttons of an alert: what its owner can do with one tap."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from gpuwatch.domain.launches.life.approval import Approval, ApprovalState
from gpuwatch.engine.alerts.signed_buttons import ButtonAction, ButtonSigner, bound_to, subject_key
from gpuwatch.engine.alerts.work_alerts import goes_on, job_id_of
from gpuwatch.errors import StoreError
from gpuwatch.ports import Alert, AlertKind
from gpuwatch.ports.buttons import ButtonRows, MessageButton

LIVES_FOR = timedelta(days=7)  # validity of buttons whose subject sets no end; a store keeps presses for longer
SILENCE_FOR = timedelta(hours=6)
_SILENCE_OFFERED_FOR = timedelta(days=2)
_PARTS = 5  # approvals of one message that get buttons
_LABEL = 20  # characters of a watch's name in a button
_LAUNCH_ID = re.compile(r"[a-z2-7]{12}")
_OF_LAUNCHES = {
    AlertKind.RENT: (("Stop", ButtonAction.STOP), ("Extend", ButtonAction.EXTEND), ("Cost", ButtonAction.COST)),
    AlertKind.HELD: (("Stop", ButtonAction.STOP), ("Cost", ButtonAction.COST)),
    AlertKind.END: (("Cost", ButtonAction.COST),),
}

_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,18}")
_LOG = ("Log", ButtonAction.JOB_LOG)
_CANCEL = ("Cancel", ButtonAction.JOB_CANCEL)
_RETRY = ("Retry", ButtonAction.JOB_RETRY)


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
        signer.button(f"Approve {of}".strip(), ButtonAction.APPROVE, ask.approval_id, ask.deadline, binding),
        signer.button(f"Deny {of}".strip(), ButtonAction.DENY, ask.approval_id, ask.deadline, binding),
    ]


class AlertButtons:
    """Selects the buttons of an alert (see `ports.buttons.ButtonSource`).

    Args:
        approval_of: returns an approval by its id.
    """

    def __init__(
        self, signer: ButtonSigner, approval_of: Callable[[str], Approval | None], clock: Callable[[], datetime]
    ) -> None:
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
        if alert.watch and alert.kind in {AlertKind.MATCH, AlertKind.APPROVAL}:
            yield [
                self._signer.button(
                    "Silence 6 h", ButtonAction.SILENCE, subject_key(alert.watch), now + _SILENCE_OFFERED_FOR
                ),
                self._signer.button("Why", ButtonAction.WHY, alert.alert_id, now + LIVES_FOR),
            ]
        elif (job_id := job_id_of(alert)) is not None and _JOB_ID.fullmatch(job_id):
            yield [self._signer.button(label, action, job_id, now + LIVES_FOR) for label, action in _of_job(alert)]
        elif alert.subject != alert.watch and _LAUNCH_ID.fullmatch(alert.subject):
            yield [
                self._signer.button(label, action, alert.subject, now + LIVES_FOR)
                for label, action in _OF_LAUNCHES.get(alert.kind, ())
            ]

    def _approval(self, alert: Alert, now: datetime, of: str = "") -> list[MessageButton]:
        ask = self._approval_of(alert.approval_id) if alert.approval_id else None
        if ask is None or ask.state_at(now) is not ApprovalState.OPEN:
            return []
        return approval_buttons(ask, self._signer, of)
