"""Replies to commands and presses: lines and buttons that each messenger lays out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.engine.alerts.alert_buttons import LIVES_FOR, ButtonAction, ButtonSigner
from gpuwatch.language import translate_composed
from gpuwatch.notifiers.toolkit import Line, Piece, Role, cleaned
from gpuwatch.notifiers.toolkit.layout import MAX_TEXT
from gpuwatch.ports.alerts import ButtonRows, MessageButton
from gpuwatch.settings import Settings

CONFIRM_WITHIN = timedelta(minutes=5)
_BUTTONS_PER_ROW = 3  # buttons that fit side by side on a phone
_MAX_BUTTONS = 24  # maximum number of buttons under one message
_LABEL = 40


class ChatContext(msgspec.Struct, frozen=True, kw_only=True):
    """The input of every action. `actor`: who typed or pressed, and by which interface, for the audit event."""

    settings: Settings
    signer: ButtonSigner
    now: datetime
    actor: str = "chat"

    def button(self, label: str, action: ButtonAction, subject: str, bound: str = "") -> MessageButton:
        """Return a button that is valid for a week."""
        return self.signer.button(cleaned(label, _LABEL), action, subject, self.now + LIVES_FOR, bound)

    def launch_buttons(self, launch_id: str) -> list[MessageButton]:
        """Return the buttons of an active launch."""
        return [
            self.button("Stop", ButtonAction.STOP, launch_id),
            self.button("Extend", ButtonAction.EXTEND, launch_id),
            self.button("Cost", ButtonAction.COST, launch_id),
        ]

    def confirmation(
        self, label: str, action: ButtonAction, subject: str, bound: str = "", *, otherwise: str = "Cancel"
    ) -> ButtonRows:
        """Return the buttons of a confirmation, valid for some minutes."""
        until = self.now + CONFIRM_WITHIN
        confirm = self.signer.button(cleaned(label, _LABEL), action, subject, until, bound)
        return [[confirm, self.signer.button(otherwise, ButtonAction.CANCEL, subject, until)]]


class ChatReply(msgspec.Struct, frozen=True, kw_only=True):
    """One message.

    Attributes:
        notice: a few words shown to the person who pressed; empty: the first line.
        picture: PNG; the lines are its caption.
        is_question: a confirmation is needed: the original message gets these buttons, and keeps its text.
    """

    lines: tuple[Line, ...]
    rows: ButtonRows = ()
    notice: str = ""
    picture: bytes | None = None
    is_question: bool = False

    @property
    def outcome(self) -> str:
        """What happened, in a few words: the notice, or the first line."""
        if self.notice or not self.lines:
            return translate_composed(self.notice or "Done.")
        return "".join(piece.text for piece in self.lines[0].pieces)


def simple_reply(text: str, rows: ButtonRows = (), *, notice: str = "") -> ChatReply:
    """Return a reply of plain text, with the same lines. Foreign text is cleaned here, and escaped later."""
    return ChatReply(lines=tuple(plain_line(line) for line in text.splitlines()), rows=rows, notice=notice)


def question(text: str, rows: ButtonRows) -> ChatReply:
    """Ask for confirmation before something that costs money or ends something."""
    return ChatReply(lines=tuple(plain_line(line) for line in text.splitlines()), rows=rows, is_question=True)


def listing(title: str, items: Iterable[tuple[str, str]], rows: ButtonRows = ()) -> ChatReply:
    """Return a reply with a heading, and items with a bold start."""
    body = (
        Line(Role.ITEM, (Piece(_translated(head), bold=True), Piece(_translated(rest, 600)))) for head, rest in items
    )
    return ChatReply(lines=(Line(Role.TITLE, (Piece(_translated(title), bold=True),)), *body), rows=rows)


def plain_line(text: str) -> Line:
    """Return one line; text after ": gpuwatch " becomes a command to copy."""
    text_before, separator, command = _translated(text, 900).partition(": gpuwatch ")
    if not separator:
        return Line(Role.ITEM, (Piece(text_before),))
    return Line(Role.ITEM, (Piece(f"{text_before}: "), Piece(f"gpuwatch {command}", code=True)))


def _translated(text: str, max_length: int = MAX_TEXT) -> str:
    """Clean a text, and translate it: actions compose theirs in English, as use cases and alerts do."""
    return translate_composed(cleaned(text, max_length))


def button_rows(buttons: Sequence[MessageButton], per_row: int = _BUTTONS_PER_ROW) -> ButtonRows:
    """Arrange buttons in rows."""
    visible = buttons[:_MAX_BUTTONS]
    return [visible[start : start + per_row] for start in range(0, len(visible), per_row)]
