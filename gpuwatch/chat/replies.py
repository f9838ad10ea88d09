"""What a command or a press answers: lines and buttons, laid out by each messenger in its own way. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.engine.alert_buttons import LIVES_FOR
from gpuwatch.engine.signed_buttons import ButtonAction, ButtonSigner
from gpuwatch.notifiers.toolkit import Line, Piece, Role, cleaned
from gpuwatch.ports.buttons import ButtonRows, MessageButton
from gpuwatch.settings import Settings

CONFIRM_WITHIN = timedelta(minutes=5)
_A_ROW = 3  # buttons that a phone shows side by side
_MOST = 24  # buttons under one message
_LABEL = 40


class ChatContext(msgspec.Struct, frozen=True, kw_only=True):
    """What every action gets. `actor`: who typed or pressed, and by what way, for the audit event."""

    settings: Settings
    signer: ButtonSigner
    now: datetime
    actor: str = "chat"

    def button(self, label: str, action: ButtonAction, subject: str, bound: str = "") -> MessageButton:
        """One that works for a week."""
        return self.signer.button(cleaned(label, _LABEL), action, subject, self.now + LIVES_FOR, bound)

    def launch_buttons(self, launch_id: str) -> list[MessageButton]:
        """What can be done about a living launch."""
        return [
            self.button("Stop", ButtonAction.STOP, launch_id),
            self.button("Extend", ButtonAction.EXTEND, launch_id),
            self.button("Cost", ButtonAction.COST, launch_id),
        ]

    def confirming(
        self, label: str, action: ButtonAction, subject: str, bound: str = "", *, otherwise: str = "Cancel"
    ) -> ButtonRows:
        """The question "are you sure?" under a message; it is open for some minutes."""
        until = self.now + CONFIRM_WITHIN
        sure = self.signer.button(cleaned(label, _LABEL), action, subject, until, bound)
        return [[sure, self.signer.button(otherwise, ButtonAction.CANCEL, subject, until)]]


class ChatReply(msgspec.Struct, frozen=True, kw_only=True):
    """One message.

    Attributes:
        notice: a few words for the one who pressed; empty: the first line.
        picture: PNG; the lines are its caption.
        is_question: the press asks once more: the message it came from gets these buttons, and keeps its text.
    """

    lines: tuple[Line, ...]
    rows: ButtonRows = ()
    notice: str = ""
    picture: bytes | None = None
    is_question: bool = False


def said(text: str, rows: ButtonRows = (), *, notice: str = "") -> ChatReply:
    """A reply of plain text, one line for each of its lines. Foreign text in it is cleaned here, escaped later."""
    return ChatReply(lines=tuple(plain_line(line) for line in text.splitlines()), rows=rows, notice=notice)


def question(text: str, rows: ButtonRows) -> ChatReply:
    """Ask once more before something that costs money or ends something."""
    return ChatReply(lines=tuple(plain_line(line) for line in text.splitlines()), rows=rows, is_question=True)


def listing(title: str, items: Iterable[tuple[str, str]], rows: ButtonRows = ()) -> ChatReply:
    """A heading, and items of a bold head and the rest."""
    body = (Line(Role.ITEM, (Piece(cleaned(head), bold=True), Piece(cleaned(rest, 600)))) for head, rest in items)
    return ChatReply(lines=(Line(Role.TITLE, (Piece(cleaned(title), bold=True),)), *body), rows=rows)


def plain_line(text: str) -> Line:
    """One line; what is behind ": gpuwatch " can be copied."""
    what, found, command = cleaned(text, 900).partition(": gpuwatch ")
    if not found:
        return Line(Role.ITEM, (Piece(what),))
    return Line(Role.ITEM, (Piece(f"{what}: "), Piece(f"gpuwatch {command}", code=True)))


def rows_of(buttons: Sequence[MessageButton], a_row: int = _A_ROW) -> ButtonRows:
    """Buttons in rows."""
    shown = buttons[:_MOST]
    return [shown[start : start + a_row] for start in range(0, len(shown), a_row)]
