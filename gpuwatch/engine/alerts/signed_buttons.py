"""The signed data of a button: its action, subject and expiry. Pure; at most 64 bytes.

`ACTION.SUBJECT.EXPIRY.NONCE.BOUND.SIGNATURE`: BOUND is a digest of what the action was offered for (a quote, the end of
a launch), so that the button cannot act on anything else. The nonce makes every button unique: it works once.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from gpuwatch.ports.buttons import DATA_BYTES, MessageButton

_SHAPE = re.compile(r"([a-z]{1,2})\.([A-Za-z0-9_-]{0,18})\.([0-9a-f]{8})\.([a-z0-9]{6})\.([0-9a-f]{6})\.([\w-]{16})")


class ButtonAction(StrEnum):
    """The action of a press; the values are in data sent long ago. `…_NOW`: confirmed after a question."""

    APPROVE = "a"
    DENY = "d"
    SILENCE = "s"
    WHY = "w"
    STOP = "x"
    STOP_NOW = "xx"
    EXTEND = "e"
    EXTEND_BY = "eb"
    EXTEND_NOW = "ee"
    COST = "c"
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


# These change something; the others read, or only ask for confirmation.
_WORKS_ONCE = frozenset(
    {
        ButtonAction.APPROVE,
        ButtonAction.DENY,
        ButtonAction.SILENCE,
        ButtonAction.STOP_NOW,
        ButtonAction.EXTEND_NOW,
        ButtonAction.PAUSE,
        ButtonAction.RESUME,
        ButtonAction.JOB_CANCEL_NOW,
        ButtonAction.JOB_RETRY_NOW,
    }
)


class ButtonFault(StrEnum):
    """Why a press does nothing; shown to the person who pressed."""

    FORGED = "This button does not belong to this gpuwatch. Nothing was done."
    LATE = "This button has expired. Nothing was done; /help shows the available commands."


class SignedButton(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of a press.

    Attributes:
        subject: the id of an approval, a launch, a job or an alert; the `subject_key` of a watch or GPU.
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
        return MessageButton(label, data)

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
