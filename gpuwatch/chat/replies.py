"""Replies to commands and presses: lines and buttons that each messenger lays out. Pure.

Registers paths of gpuwatch's web server to which messengers send a bot's updates, as an alternative to polling.

Chats beside a running daemon: one folder per messenger, with the name of its channel, by which it is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

import msgspec

from gpuwatch.bootstrap.service import Service
from gpuwatch.daemon.task_progress import TaskProgress
from gpuwatch.engine.alerts.alert_buttons import LIVES_FOR, ButtonAction, ButtonSigner
from gpuwatch.notifiers.toolkit import Line, Piece, Role, cleaned
from gpuwatch.ports.alerts import ButtonChannel, ButtonRows, MessageButton
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


def simple_reply(text: str, rows: ButtonRows = (), *, notice: str = "") -> ChatReply:
    """Return a reply of plain text, with the same lines. Foreign text is cleaned here, and escaped later."""
    return ChatReply(lines=tuple(plain_line(line) for line in text.splitlines()), rows=rows, notice=notice)


def question(text: str, rows: ButtonRows) -> ChatReply:
    """Ask for confirmation before something that costs money or ends something."""
    return ChatReply(lines=tuple(plain_line(line) for line in text.splitlines()), rows=rows, is_question=True)


def listing(title: str, items: Iterable[tuple[str, str]], rows: ButtonRows = ()) -> ChatReply:
    """Return a reply with a heading, and items with a bold start."""
    body = (Line(Role.ITEM, (Piece(cleaned(head), bold=True), Piece(cleaned(rest, 600)))) for head, rest in items)
    return ChatReply(lines=(Line(Role.TITLE, (Piece(cleaned(title), bold=True),)), *body), rows=rows)


def plain_line(text: str) -> Line:
    """Return one line; text after ": gpuwatch " becomes a command to copy."""
    text_before, separator, command = cleaned(text, 900).partition(": gpuwatch ")
    if not separator:
        return Line(Role.ITEM, (Piece(text_before),))
    return Line(Role.ITEM, (Piece(f"{text_before}: "), Piece(f"gpuwatch {command}", code=True)))


def button_rows(buttons: Sequence[MessageButton], per_row: int = _BUTTONS_PER_ROW) -> ButtonRows:
    """Arrange buttons in rows."""
    visible = buttons[:_MAX_BUTTONS]
    return [visible[start : start + per_row] for start in range(0, len(visible), per_row)]


class WebhookHandler(Protocol):
    """Accepts the requests of one messenger at one path.

    Attributes:
        path: of the request, such as "/telegram/8123456789".
        host: the host name by which the messenger calls this server.
    """

    path: str
    host: str

    def is_genuine(self, headers: Mapping[str, str]) -> bool:
        """Whether the request contains the messenger's secret."""

    def receive(self, body: bytes) -> None:
        """Store the update; then the messenger may delete it. Raises ValueError (no update), StoreError."""


class Webhooks:
    """The currently open paths: chats open and close them, the web server reads them. Thread-safe."""

    def __init__(self) -> None:
        self._handlers: dict[str, WebhookHandler] = {}

    def open(self, handler: WebhookHandler) -> Callable[[], None]:
        """Register the target at its path; call the returned function to remove it."""
        self._handlers = {**self._handlers, handler.path: handler}
        return lambda: self._close(handler)

    def at(self, path: str) -> WebhookHandler | None:
        """Return the target at this path, or None."""
        return self._handlers.get(path)

    def _close(self, handler: WebhookHandler) -> None:
        self._handlers = {path: registered for path, registered in self._handlers.items() if registered is not handler}


class ChatInterface:
    """Accepts commands and presses while a service runs (see `daemon.process.Interface`).

    A folder's `chat.py` holds `open_chat(settings, store, channel)`, a context manager.

    Args:
        webhooks: served by the web server beside the same daemon.
    """

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    @contextmanager
    def __call__(self, service: Service, _progress: TaskProgress) -> Iterator[None]:
        """Run the chats while the service runs."""
        webhooks = self._webhooks if service.settings.web.enabled else None
        with ExitStack() as chats:
            for name, channel in service.channels.items():
                if isinstance(channel, ButtonChannel) and channel.users and find_spec(f"{__package__}.{name}"):
                    messenger = import_module(f"{__package__}.{name}.chat")
                    chats.enter_context(
                        messenger.open_chat(service.settings, service.store, channel, webhooks=webhooks)
                    )
            yield
