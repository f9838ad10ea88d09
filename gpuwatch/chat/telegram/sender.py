"""Sends and edits messages: within Telegram's limits, after the pauses it requests, never twice on purpose."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable

from tenacity import (
    RetryError,
    Retrying,
    retry_if_result,
    sleep_using_event,
    stop_after_attempt,
    stop_when_event_set,
    wait_chain,
    wait_fixed,
)

from gpuwatch.chat.replies import ChatReply
from gpuwatch.chat.telegram.updates import ChatMessage
from gpuwatch.language import translate_composed
from gpuwatch.notifiers.telegram.bot_api import BotApi, BotApiReply, keyboard
from gpuwatch.notifiers.telegram.telegram_html import MAX_UNITS, line_html
from gpuwatch.notifiers.toolkit import Line, Piece, Role, plain
from gpuwatch.ports.alerts import ButtonRows
from gpuwatch.redaction import redact

log = logging.getLogger(__name__)

NOTICE_LENGTH = 200  # characters of the answer to a press (source: core.telegram.org/bots/api#answercallbackquery)
CAPTION_UNITS = 1024  # maximum length of a picture's caption
_MARK = "\n\n▸ "  # precedes the result of a press, which replaces an earlier one
_DEADLINE_S = 10.0
_ANSWER_DEADLINE_S = 5.0
_TRIES = 3
_MAX_PAUSE_S = 60.0
_RATE_LIMIT_PAUSE_S = 3.0  # if Telegram names none
_BACKOFF = wait_chain(wait_fixed(1.0), wait_fixed(3.0))
_NO_PREVIEW = {"is_disabled": True}
_KEPT_ENTITIES = frozenset({"bold", "italic", "underline", "strikethrough", "code", "pre", "text_link"})


class MessageSender:
    """Sends the messages of one chat. Thread-safe.

    Args:
        stopping: the program ends: nothing is retried any more.
        sleep: None: waits on `stopping`.
    """

    def __init__(
        self,
        api: BotApi,
        stopping: threading.Event,
        *,
        sleep: Callable[[float], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._stopping = stopping
        self._sleep = sleep or sleep_using_event(stopping)
        self._monotonic = monotonic
        self._not_before_s = float("-inf")
        self._lock = threading.Lock()

    def answer(self, press_id: str, notice: str) -> None:
        """Answer a press at once and without a retry: late answers are useless."""
        text = translate_composed(redact(notice))[:NOTICE_LENGTH]
        body: dict[str, object] = {"callback_query_id": press_id, "text": text, "show_alert": len(text) > 60}
        reply = self._api.call("answerCallbackQuery", body, _ANSWER_DEADLINE_S)
        if not reply.ok:
            log.info("cannot answer a button press: %s", reply.text)

    def send(self, chat: str, reply: ChatReply) -> None:
        """Send one new message: a picture with its caption, or text."""
        if reply.picture is not None:
            self._send_picture(chat, reply, reply.picture)
            return
        body: dict[str, object] = {"chat_id": chat, "text": _html(reply), "parse_mode": "HTML"}
        body["link_preview_options"] = _NO_PREVIEW
        if reply.rows:
            body["reply_markup"] = keyboard(reply.rows)
        self._call("sendMessage", body)

    def edit(self, message: ChatMessage, reply: ChatReply, rows: ButtonRows) -> None:
        """Add the result of a press to its message, and replace its buttons."""
        if message.text is None:  # a picture, or too old to be edited
            self.send(str(message.chat.id), reply)
            return
        text = redact("\n".join(plain(line) for line in reply.lines))
        new_text, entities = _append_text(message, text)
        body = {
            "chat_id": message.chat.id,
            "message_id": message.message_id,
            "text": new_text,
            "entities": entities,
            "reply_markup": keyboard(rows),
            "link_preview_options": _NO_PREVIEW,
        }
        answer = self._call("editMessageText", body)
        if not answer.ok and "not modified" not in answer.description:
            self.send(str(message.chat.id), reply)

    def try_once(self, method: str, body: dict[str, object]) -> None:
        """Call another method, ignoring failures."""
        self._api.call(method, body, _ANSWER_DEADLINE_S)

    def _send_picture(self, chat: str, reply: ChatReply, picture: bytes) -> None:
        caption = _cut("\n".join(redact(plain(line)) for line in reply.lines), CAPTION_UNITS)
        fields = {"chat_id": chat, "caption": caption}
        if reply.rows:
            fields["reply_markup"] = json.dumps(keyboard(reply.rows))
        answer = self._with_retry("sendPhoto", lambda: self._api.send_photo(fields, picture, _DEADLINE_S * 2))
        if not answer.ok:
            self.send(chat, ChatReply(lines=reply.lines, rows=reply.rows))

    def _call(self, method: str, body: dict[str, object]) -> BotApiReply:
        return self._with_retry(method, lambda: self._api.call(method, body, _DEADLINE_S))

    def _with_retry(self, method: str, work: Callable[[], BotApiReply]) -> BotApiReply:
        """Retry after a rate limit or a server error; a rejection is final."""
        retrying = Retrying(
            retry=retry_if_result(_is_temporary),
            stop=stop_after_attempt(_TRIES) | stop_when_event_set(self._stopping),
            wait=_BACKOFF,
            sleep=self._sleep,
        )
        try:
            reply = retrying(self._send_once, work)
        except RetryError as error:
            reply = error.last_attempt.result()
        if not reply.ok and "not modified" not in reply.description:
            log.warning("%s failed: %s", method, reply.text)
        return reply

    def _send_once(self, work: Callable[[], BotApiReply]) -> BotApiReply:
        with self._lock:
            left_s = self._not_before_s - self._monotonic()
        if left_s > 0:  # the rest of a pause that Telegram requested after this or another message
            self._sleep(left_s)
        reply = work()
        if reply.status == 429:
            self._pause(reply.retry_after_s or _RATE_LIMIT_PAUSE_S)
        return reply

    def _pause(self, seconds: float) -> None:
        with self._lock:
            until_s = self._monotonic() + min(seconds, _MAX_PAUSE_S)
            self._not_before_s = max(self._not_before_s, until_s)


def _is_temporary(reply: BotApiReply) -> bool:
    return not reply.ok and (reply.status == 429 or not 400 <= reply.status < 500)


def _html(reply: ChatReply) -> str:
    """Return as much as one message may contain, truncated between two lines."""
    parts: list[str] = []
    units_left = MAX_UNITS - 40
    for line in reply.lines:
        pieces = (Piece(redact(piece.text), piece.bold, piece.url, piece.code) for piece in line.pieces)
        clean = Line(line.role, tuple(pieces))
        units_left -= _units(plain(clean)) + 1
        if units_left < 0:
            parts.append(line_html(Line(Role.ITEM, (Piece("… truncated"),))))
            break
        parts.append(line_html(clean))
    return "\n".join(parts)


def _append_text(message: ChatMessage, text: str) -> tuple[str, list[dict[str, object]]]:
    """Return the message's own text with its formatting, followed by `text`."""
    own = (message.text or "").partition(_MARK)[0]
    units_left = MAX_UNITS - _units(_MARK)
    text = _cut(text, units_left // 2)
    own = _cut(own, units_left - _units(text))
    end = _units(own)
    entities = [entity for entity in message.entities if _is_kept(entity, end)]
    return f"{own}{_MARK}{text}", entities


def _is_kept(entity: dict[str, object], end: int) -> bool:
    offset, length = entity.get("offset"), entity.get("length")
    is_inside = isinstance(offset, int) and isinstance(length, int) and offset + length <= end
    return is_inside and entity.get("type") in _KEPT_ENTITIES


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "replace")) // 2


def _cut(text: str, max_units: int) -> str:
    if _units(text) <= max_units:
        return text
    return text.encode("utf-16-le", "replace")[: max(max_units - 1, 0) * 2].decode("utf-16-le", "ignore") + "…"
