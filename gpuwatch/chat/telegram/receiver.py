"""Carries out updates from Telegram: authorised, genuine, and once. Every press is answered within two seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import msgspec

from gpuwatch.chat.chat_actions import COMMANDS, answer_command, run_press
from gpuwatch.chat.replies import ChatContext, ChatReply
from gpuwatch.chat.telegram.sender import MessageSender
from gpuwatch.chat.telegram.start_replies import foreign_start_text, help_reply, start_reply
from gpuwatch.chat.telegram.updates import ButtonPress, ChatMessage, ChatUpdate
from gpuwatch.engine.alerts.alert_buttons import ButtonAction, ButtonFault, ButtonSigner, SignedButton
from gpuwatch.engine.alerts.page_links import LAUNCH_ID
from gpuwatch.errors import StoreError
from gpuwatch.language import translate_composed, use_language
from gpuwatch.ports.alerts import ButtonRows, MessageButton
from gpuwatch.settings import Settings
from gpuwatch.storage.alerts.chat_inbox import ChatInbox, ReceivedUpdate, StoredUpdate

log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 1.0  # of the two promised seconds; the way to Telegram takes the rest
INTERRUPTED_FOR = timedelta(hours=1)  # interrupted work that is older is dropped
_WORKERS = 4  # a stop waits for its provider; other presses do not wait for it
FOREIGN = "You are not authorised to use this gpuwatch. Nothing was done."
AGAIN = "This button was already pressed. Nothing more was done."
WORKING = "Working on it; the result will appear in this message."
_DECIDED = {ButtonAction.APPROVE, ButtonAction.DENY}


class ChatMembers(msgspec.Struct, frozen=True):
    """Who may use the bot, and in which chats."""

    chats: frozenset[str]
    users: frozenset[str]

    def allow(self, chat_id: int | None, user_id: int | None) -> bool:
        """Whether this user may act in this chat."""
        return str(chat_id) in self.chats and str(user_id) in self.users


class PressAnswer:
    """Answers one press exactly once and in time, even without a result."""

    def __init__(self, press_id: str, send: Callable[[str, str], None], within_s: float = ANSWER_WITHIN_S) -> None:
        self._press_id = press_id
        self._send = send
        self._is_answered = threading.Event()
        self._lock = threading.Lock()
        self._timer = threading.Timer(within_s, self.send_once, (WORKING,))
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Do not answer."""
        self._timer.cancel()

    def send_once(self, notice: str) -> None:
        """Answer, unless an answer was already sent."""
        with self._lock:
            if self._is_answered.is_set():
                return
            self._is_answered.set()
        self._timer.cancel()
        self._send(self._press_id, notice)


class UpdateReceiver:
    """Decides which updates the caller stores, and carries them out."""

    def __init__(  # noqa: PLR0913 each is a separate port
        self,
        settings: Settings,
        signer: ButtonSigner,
        members: Callable[[], ChatMembers],
        inbox: ChatInbox,
        sender: MessageSender,
        clock: Callable[[], datetime],
        *,
        answer_within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        self._answer_within_s = answer_within_s
        self._settings = settings
        self._signer = signer
        self._members = members
        self._inbox = inbox
        self._sender = sender
        self._clock = clock
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="chat")
        self._in_order = ThreadPoolExecutor(1, thread_name_prefix="chat")  # typed commands, in order
        self._answers: dict[int, PressAnswer] = {}
        self._foreign: set[int | None] = set()

    def begin(self) -> None:
        """Finish interrupted updates, and send the menu, because this daemon takes the updates from now on."""
        for stored in self._inbox.unfinished(self._clock() - INTERRUPTED_FOR):
            self.carry_out(stored)
        self.show_menu()

    def show_menu(self) -> None:
        """Send the list of commands to Telegram's app."""

        def send() -> None:
            menu = [
                {"command": name, "description": translate_composed(command.about)}
                for name, command in COMMANDS.items()
            ]
            self._sender.try_once("setMyCommands", {"commands": menu})

        self._in_background(send)

    def close(self) -> None:
        """Start nothing more; running work continues, and waiting work follows after the next start."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._in_order.shutdown(wait=False, cancel_futures=True)

    # --- incoming updates -------------------------------------------------------------------------------------------

    def accepted(self, update: ChatUpdate) -> ReceivedUpdate | None:
        """Return what to store and carry out; None: nothing, and a press has its answer."""
        if update.callback_query is not None:
            return self._accepted_press(update, update.callback_query)
        message = update.message
        if message is None or message.text is None:
            return None
        if not self._members().allow(message.chat.id, message.sender.id if message.sender else None):
            if self._report_foreign(message.sender.id if message.sender else None):
                self._answer_foreign_start(message)
            return None
        return ReceivedUpdate(update_id=update.update_id, body=_body(update))

    def _accepted_press(self, update: ChatUpdate, press: ButtonPress) -> ReceivedUpdate | None:
        chat_id = press.message.chat.id if press.message else None
        if not self._members().allow(chat_id, press.sender.id):
            self._report_foreign(press.sender.id)
            self._in_background(lambda: self._sender.answer(press.id, FOREIGN))
            return None
        button = self._signer.read(press.data, self._clock())
        if isinstance(button, ButtonFault):
            self._in_background(lambda: self._sender.answer(press.id, button.value))
            return None
        self._answers[update.update_id] = PressAnswer(press.id, self._notify, self._answer_within_s)
        return ReceivedUpdate(
            update_id=update.update_id, body=_body(update), button=button.data if button.works_once else None
        )

    def _notify(self, press_id: str, notice: str) -> None:
        with use_language(self._settings.language):  # perhaps on the thread of a timer
            self._sender.answer(press_id, notice)

    def _report_foreign(self, user_id: int | None) -> bool:
        """Log a user who is not authorised; return whether it is the first time."""
        if user_id in self._foreign:
            return False
        self._foreign.add(user_id)
        log.warning("user %s is not authorised: not in [notify.telegram] users, or not in its chat", user_id)
        return True

    def _answer_foreign_start(self, message: ChatMessage) -> None:
        """Explain the bot once to somebody who starts it: it may be its owner, who has not set this chat."""
        if message.chat.type == "private" and command_in(message.text or "")[0] == "start":
            chat_id = message.chat.id
            self._in_background(
                lambda: self._sender.try_once("sendMessage", {"chat_id": chat_id, "text": foreign_start_text(chat_id)})
            )

    # --- carrying out -----------------------------------------------------------------------------------------------

    def carry_out(self, stored: StoredUpdate) -> None:
        """Carry it out in the background: presses in parallel, typed commands in order."""
        update = msgspec.json.decode(stored.body, type=ChatUpdate)
        pool = self._in_order if update.callback_query is None else self._pool
        self._in_background(lambda: self._carry_out(stored, update), pool)

    def leave(self, update_id: int) -> None:
        """Leave it to another daemon, but answer a press here, in time."""
        answer = self._answers.pop(update_id, None)
        if answer is not None:
            self._in_background(lambda: answer.send_once(WORKING))

    def forget(self, update_id: int) -> None:
        """Drop a repeated update: its press is answered elsewhere."""
        answer = self._answers.pop(update_id, None)
        if answer is not None:
            answer.cancel()

    def _in_background(self, work: Callable[[], object], pool: ThreadPoolExecutor | None = None) -> None:
        try:
            (pool or self._pool).submit(self._run_logged, work)
        except RuntimeError:  # it is stopping
            log.debug("the chat is stopping; the update is processed after the next start")

    def _run_logged(self, work: Callable[[], object]) -> None:
        try:
            with use_language(self._settings.language):
                work()
        except Exception:
            log.exception("an update from the chat failed")

    def _carry_out(self, stored: StoredUpdate, update: ChatUpdate) -> None:
        answer = self._answers.pop(stored.update_id, None)
        if update.callback_query is not None:
            self._press(update.callback_query, answer, stored.is_again)
        elif update.message is not None:
            self._command(update.message)
        try:
            self._inbox.finish(stored.update_id, self._clock())
        except StoreError as error:
            log.warning("an update may be processed again after a restart: %s", error)

    def _press(self, press: ButtonPress, answer: PressAnswer | None, is_again: bool) -> None:
        send_once = answer.send_once if answer is not None else _ignore_notice
        if is_again:
            send_once(AGAIN)
            return
        button = self._signer.read(press.data, self._clock())
        if isinstance(button, ButtonFault):  # it has expired meanwhile
            send_once(button.value)
            return
        log.info("user %s pressed: %s %s", press.sender.id, button.action.name.lower(), button.subject)
        reply = run_press(self._context(press.sender.id), button)
        send_once(reply.outcome)
        if press.message is None:
            return
        if reply.picture is not None:
            self._sender.send(str(press.message.chat.id), reply)
            return
        self._sender.edit(press.message, reply, self._rows_after(press.message, button, reply))

    def _rows_after(self, message: ChatMessage, button: SignedButton, reply: ChatReply) -> ButtonRows:
        """Return the reply's buttons, or those of the message without the ones that this press settled."""
        if reply.rows and (reply.is_question or button.action in _DECIDED):
            return reply.rows
        keyboard = message.reply_markup.inline_keyboard if message.reply_markup else ()
        left = [
            [
                MessageButton(old_button.text, old_button.callback_data)
                for old_button in row
                if old_button.callback_data and self._keeps_button(old_button.callback_data, button)
            ]
            for row in keyboard
        ]
        return [*(row for row in left if row), *reply.rows]

    def _keeps_button(self, data: str, pressed: SignedButton) -> bool:
        button = self._signer.read(data, self._clock())
        if isinstance(button, ButtonFault):
            return False
        if pressed.action is ButtonAction.CANCEL or button.action is ButtonAction.CANCEL:
            return False
        if pressed.action in _DECIDED and button.action in _DECIDED:
            return button.subject != pressed.subject
        return button.data != pressed.data or not pressed.works_once

    def _command(self, message: ChatMessage) -> None:
        name, argument = command_in(message.text or "")
        chat = str(message.chat.id)
        if name is None:
            if message.chat.type != "private":
                return
            name = "help"
        user = message.sender.id if message.sender is not None else None
        if name == "help" or (name == "start" and not _names_launch(argument)):
            self._sender.send(chat, help_reply() if name == "help" else start_reply(self._settings))
        else:
            self._sender.send(chat, answer_command(self._context(user), name, argument))

    def _context(self, user: int | None) -> ChatContext:
        actor = "Telegram" if user is None else f"Telegram (user {user})"
        return ChatContext(settings=self._settings, signer=self._signer, now=self._clock(), actor=actor)


def _names_launch(argument: str) -> bool:
    """Whether `/start` is about a launch: a messenger also sends it, with any word, when a person opens the chat."""
    return LAUNCH_ID.fullmatch(argument.partition(" ")[0]) is not None


def command_in(text: str) -> tuple[str | None, str]:
    """Return the command of a message and its argument; None: no command. `/stop@some_bot ID` is `/stop ID`."""
    head, *rest = text.split() or [""]
    if not head.startswith("/") or len(head) < 2:
        return None, text
    return head[1:].partition("@")[0].lower(), " ".join(rest)


def _body(update: ChatUpdate) -> str:
    return msgspec.json.encode(update).decode()


def _ignore_notice(notice: str) -> None:
    """Do nothing: the press was answered before a restart; the message shows the result."""
