"""Parses Telegram's updates: only the few fields that gpuwatch uses (source: core.telegram.org/bots/api#update)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

KINDS = ("message", "callback_query")  # others are not requested


class ChatUser(msgspec.Struct, frozen=True):
    """The person who wrote or pressed."""

    id: int


class ChatPlace(msgspec.Struct, frozen=True):
    """The chat; a private chat has the id of its user."""

    id: int
    type: str = ""


class PressableButton(msgspec.Struct, frozen=True):
    """A button under a message; `callback_data` None: a link."""

    text: str
    callback_data: str | None = None


class MessageKeyboard(msgspec.Struct, frozen=True):
    """The buttons under a message, by row."""

    inline_keyboard: tuple[tuple[PressableButton, ...], ...] = ()


class ChatMessage(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """A message; without `text` it is a picture, or too old to be included."""

    message_id: int
    chat: ChatPlace
    sender: ChatUser | None = None
    text: str | None = None
    entities: tuple[dict[str, object], ...] = ()
    reply_markup: MessageKeyboard | None = None


class ButtonPress(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """A callback query."""

    id: str
    sender: ChatUser
    message: ChatMessage | None = None
    data: str = ""


class ChatUpdate(msgspec.Struct, frozen=True):
    """One update; other kinds than these two have neither field."""

    update_id: int
    message: ChatMessage | None = None
    callback_query: ButtonPress | None = None


class _OnlyId(msgspec.Struct, frozen=True):
    update_id: int


class ReadUpdates(msgspec.Struct, frozen=True):
    """Updates in order; `next_id`: the next offset; None: there were no updates. `unread`: number of invalid ones."""

    updates: Sequence[ChatUpdate]
    next_id: int | None
    unread: int = 0


def read_updates(result: bytes | msgspec.Raw) -> ReadUpdates:
    """Parse the result of `getUpdates`. Invalid updates are skipped, so that they do not come again forever.

    Raises:
        ValueError: it is not a list of updates.
    """
    try:
        raws = msgspec.json.decode(result, type=tuple[msgspec.Raw, ...])
        ids = [msgspec.json.decode(raw, type=_OnlyId).update_id for raw in raws]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a list of updates: {error}") from error
    read = [update for update in map(_read, raws) if update is not None]
    read.sort(key=lambda update: update.update_id)
    return ReadUpdates(read, max(ids) + 1 if ids else None, len(raws) - len(read))


def _read(raw: msgspec.Raw) -> ChatUpdate | None:
    try:
        return msgspec.json.decode(raw, type=ChatUpdate)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
