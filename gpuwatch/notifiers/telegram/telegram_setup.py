"""Sets up a bot for `gpuwatch init`: its name, and the chat that writes to it."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.notifiers.telegram.bot_api import BASE_URL, BotApi, BotApiReply
from gpuwatch.ports.dialog import ChannelAnswers, Dialog
from gpuwatch.ports.settings import Option, parse_token

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient

_TOKEN = re.compile(r"\d{5,20}:[\w-]{30,60}", re.ASCII)
_POLL_S = 20  # how long Telegram holds an empty request open
_WAIT_S = 300.0
_CALL_S = 10.0
_GREETING = (
    "This is gpuwatch. It watches GPU markets and sends its alerts to this chat. The setup at your terminal continues;"
    " once gpuwatch run is running, /help lists what you can type here."
)


class BotUser(msgspec.Struct, frozen=True):
    """The bot, or a person; `username` without its @."""

    id: int
    first_name: str = ""
    username: str = ""

    @property
    def title(self) -> str:
        """ "Ada (@ada)"."""
        shown = "".join(character for character in self.first_name if character.isprintable())[:40]
        return f"{shown} (@{self.username})" if self.username else shown or str(self.id)


class _Chat(msgspec.Struct, frozen=True):
    id: int
    type: str = ""
    title: str = ""


class _Message(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    chat: _Chat
    sender: BotUser | None = None
    text: str = ""


class _Update(msgspec.Struct, frozen=True):
    update_id: int
    message: _Message | None = None


def ask_telegram(
    dialog: Dialog,
    http: HttpClient,
    given: Mapping[str, str],
    new_code: Callable[[], str] = lambda: secrets.token_hex(4),
) -> ChannelAnswers | None:
    """Ask for the token, show the bot's name, and wait for a message to it; None: given up."""
    base_url = given.get("base_url", BASE_URL)
    named = _ask_bot(dialog, http, given, base_url)
    if named is None:
        return None
    token, bot = named
    values = _registered_chat(dialog, BotApi(token, http, base_url), bot, new_code())
    if not values:
        chat_id = dialog.ask("Chat id (the bot @userinfobot tells yours; Enter: another channel)")
        values = {"chat_id": chat_id} if chat_id else {}
    return ChannelAnswers(values=values, secrets={"bot_token": token}) if values else None


def _ask_bot(dialog: Dialog, http: HttpClient, given: Mapping[str, str], base_url: str) -> tuple[str, BotUser] | None:
    """The token, and the bot that Telegram knows by it."""
    token = given.get("bot_token", "")
    if not token:
        dialog.say("In Telegram, write /newbot to @BotFather; it answers with a token.")
    while True:
        token = token or dialog.ask_secret("Paste the token (not shown; Enter: another channel)")
        if not token:
            return None
        if not _TOKEN.fullmatch(token.strip()):  # a password, perhaps: it must not go to anybody
            dialog.say("That is no bot's token: it looks like 123456789:AA… and has 35 characters after the colon.")
            token = ""
            continue
        try:
            reply = BotApi(parse_token(token), http, base_url).call("getMe", {}, _CALL_S)
        except ValueError as error:
            reply = BotApiReply(status=0, ok=False, description=str(error))
        if reply.ok:
            bot = msgspec.json.decode(reply.result, type=BotUser)
            dialog.say(f"The bot is {bot.title}.")
            return token, bot
        wrong = "is not a bot's token" if reply.status in {401, 404} else f"could not be checked: {reply.text}"
        dialog.say(f"That {wrong}.")
        token = ""


def _registered_chat(
    dialog: Dialog, api: BotApi, bot: BotUser, code: str, monotonic: Callable[[], float] = time.monotonic
) -> dict[str, Option]:
    """Wait for the message with the code of the link, or for one whose sender the person at the terminal knows.

    Returns the keys of `[notify.telegram]`; empty: none came.
    """
    dialog.say(f"Now open https://t.me/{bot.username}?start={code} and press Start, or send the bot any message.")
    offset, ends_at = None, monotonic() + _WAIT_S
    while monotonic() < ends_at:
        with dialog.waiting("waiting for your message to the bot"):
            request: dict[str, object] = {"timeout": _POLL_S, "allowed_updates": ["message"]}
            reply = api.call("getUpdates", request | ({} if offset is None else {"offset": offset}), _POLL_S + 8.0)
        if not reply.ok:
            dialog.say(_why_no_updates(reply))
            return {}
        for update in msgspec.json.decode(reply.result, type=list[_Update]):
            offset = update.update_id + 1
            if update.message is not None and _is_wanted(dialog, update.message, code):
                api.call("getUpdates", {"timeout": 0, "offset": offset, "limit": 1}, _CALL_S)  # it is settled
                chat, sender = update.message.chat, update.message.sender
                api.call("sendMessage", {"chat_id": chat.id, "text": _GREETING}, _CALL_S)
                is_group = chat.type != "private" and sender is not None  # there, only the named ones may press
                return {"chat_id": str(chat.id)} | ({"users": (str(sender.id),)} if is_group and sender else {})
    dialog.say("No message came within five minutes.")
    return {}


def _is_wanted(dialog: Dialog, message: _Message, code: str) -> bool:
    """Only the owner knows the code of the link; anybody can write to a bot, and call themselves as the owner does."""
    words = message.text.split()
    if words[:1] == ["/start"] and code in words[1:]:
        return True
    sender = message.sender.title if message.sender else message.chat.title or str(message.chat.id)
    where = "" if message.chat.type == "private" else f" in the group {message.chat.title!r}"
    return dialog.confirm(f"A message from {sender}{where}. Is that you?", default=False)


def _why_no_updates(reply: BotApiReply) -> str:
    if reply.status == 409 and "webhook" in reply.description.lower():
        return "The bot has a webhook, so its messages go there: make another bot, or enter the chat's id."
    if reply.status == 409:
        return "Another program polls this bot: stop it (gpuwatch run?), make another bot, or enter the chat's id."
    return f"Cannot read the bot's messages ({reply.text})."
