"""Telegram, over the Bot API (source: core.telegram.org/bots/api, read 2026-11)."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.telegram.bot_api import (
    BASE_URL,
    BotApi,
    BotApiReply,
    keyboard,
    message_id,
    parse_webhook,
    read_webhook_info,
)
from gpuwatch.notifiers.telegram.telegram_html import render, truncate_text
from gpuwatch.notifiers.telegram.telegram_setup import ask_telegram
from gpuwatch.notifiers.toolkit import CHECK_S, TEMPLATES, as_text, check_findings
from gpuwatch.ports import Alert, ChannelSettings
from gpuwatch.ports.alerts import ButtonSource, PictureSource
from gpuwatch.ports.declarations import ChannelInfo, OptionSpec
from gpuwatch.ports.dialog import ChannelSetup
from gpuwatch.ports.findings import Finding
from gpuwatch.ports.settings import Option, parse_line, parse_token, parse_url
from gpuwatch.redaction import redact

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient

log = logging.getLogger(__name__)

__all__ = ["INFO", "TelegramChannel", "TelegramSettings", "build", "render"]


def _chat_id(value: object) -> str:
    return parse_line(str(value) if isinstance(value, int) and not isinstance(value, bool) else value)


def _user_ids(value: object) -> tuple[str, ...]:
    """Parse whole numbers, alone or in a list; also text from the environment. Raises ValueError."""
    error = ValueError("expected user ids, whole numbers as shown by @userinfobot, such as [123456789]")
    raw = value.strip("[] ").split(",") if isinstance(value, str) else value
    items = [raw] if isinstance(raw, int) and not isinstance(raw, bool) else raw
    if not isinstance(items, list | tuple) or any(isinstance(item, bool) for item in items):
        raise error
    ids = tuple(str(item).strip(" \"'") for item in items)
    ids = tuple(one for one in ids if one)
    if not all(one.isascii() and one.isdecimal() for one in ids):
        raise error
    return ids


def _check(values: Mapping[str, Option]) -> None:
    if values.get("users") and str(values.get("chat_id", "")).startswith("@"):
        raise ValueError("a channel accepts no commands: users requires a private chat or a group as chat_id")


INFO = ChannelInfo(
    name="telegram",
    title="Telegram",
    options=(
        OptionSpec(
            name="bot_token",
            kind="text",
            about="Secret; bot token from @BotFather.",
            secret=True,
            needed=True,
            parse=parse_token,
        ),
        OptionSpec(
            name="chat_id",
            kind="id",
            about="Chat that receives the alerts: a number, or @channel.",
            needed=True,
            parse=_chat_id,
        ),
        OptionSpec(
            name="base_url",
            kind="text",
            about="http(s) address of the Bot API.",
            default=BASE_URL,
            is_url=True,
            parse=parse_url,
        ),
        OptionSpec(
            name="users",
            kind="ids",
            about="Ids of users who may press buttons and send commands; default: the private chat's user.",
            default=(),
            parse=_user_ids,
        ),
        OptionSpec(
            name="webhook",
            kind="text",
            about="Public https address of gpuwatch's web server; receives updates there instead of polling.",
            default="",
            parse=parse_webhook,
        ),
        TEMPLATES,
    ),
    check=_check,
    template="""\
chat_id = 123456789             # and the secret GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN
# users = [123456789]           # who may press buttons and send /commands; default: the private chat's user
""",
    docs="alerts.md#telegram",
    setups=(ChannelSetup(name="telegram", rank=1, ask=ask_telegram),),
    doctor=lambda settings, http: _findings(build(settings, http)),
)
_SPACING_S = 1.05  # at most one message per chat and second (source: Bot FAQ)
_REMEDIES = (
    ("blocked by the user", "unblock the bot in Telegram"),
    ("kicked", "add the bot to the chat again"),
    ("not a member", "add the bot to the chat"),
    ("chat not found", "check chat_id, and send the bot a message first"),
)  # words of Telegram's description, and what to do
_DEADLINE_S = 10.0  # at most three requests (plain text, a moved chat) fit into a lease


def build(settings: ChannelSettings, http: HttpClient) -> TelegramChannel:
    """Build the channel of `[notify.telegram]`."""
    options: dict[str, Any] = dict(settings.options)
    return TelegramChannel(TelegramSettings(**options), http)


def _findings(channel: TelegramChannel) -> Iterator[Finding]:
    yield from check_findings("telegram", channel.check)
    area = "commands by telegram"
    if not channel.users:
        mend = "list authorised users in [notify.telegram]: users = [ID]; a channel (@name) accepts no commands"
        yield Finding(area=area, state="note", text="nobody may press buttons or send commands", mend=mend)
    elif (fault := channel.webhook_fault()) is not None:
        yield Finding(area=area, state="fault", text=fault[0], mend=fault[1])
    else:
        number = count_text(len(channel.users), "user")
        yield Finding(area=area, state="ok", text=f"{number} may press buttons and send commands; /help lists them")


class TelegramSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[notify.telegram]`. `bot_token` is a secret."""

    bot_token: str
    chat_id: str
    base_url: str = BASE_URL
    users: tuple[str, ...] = ()
    webhook: str = ""
    templates: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        return f"TelegramSettings({self.chat_id!r}, {self.base_url!r})"


class TelegramChannel:
    """One chat. `new_address` is set once Telegram reports another id for the chat."""

    name = "telegram"
    address_option = "chat_id"

    def __init__(
        self,
        settings: TelegramSettings,
        http: HttpClient,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.address = settings.chat_id
        self.new_address: str | None = None
        self.base_url = settings.base_url
        self.button_secret = settings.bot_token
        self.users = _authorised_users(settings)
        self.webhook = settings.webhook
        self.buttons: ButtonSource | None = None
        self.pictures: PictureSource | None = None
        self._templates = settings.templates
        self._api = BotApi(settings.bot_token, http, settings.base_url)
        self._monotonic = monotonic
        self._sleep = sleep
        self._jitter = jitter
        self._turn_lock = threading.Lock()
        self._turns = 0
        self._next_at = float("-inf")

    def send(self, alert: Alert) -> None:
        """Deliver once: as HTML; as plain text if Telegram cannot parse that; to the new chat if it has moved.

        A picture follows in the background, as a silent reply: whatever happens to it, the alert is delivered.

        Raises:
            DeliverLater: a rate limit, a server error, or no answer (it may have been delivered).
            DeliveryRefused: the token, the chat or the message is rejected.
        """
        self._send(alert, silently=False)

    def send_silently(self, alert: Alert, taken: Sequence[str] = ()) -> None:
        """Like `send`, without a sound on the owner's devices. There is one chat, so `taken` is always empty."""
        self._send(alert, silently=True)

    def _send(self, alert: Alert, silently: bool) -> None:
        options: dict[str, object] = {"disable_notification": True} if silently else {}
        if rows := self.buttons.buttons_for(alert) if self.buttons else ():
            options["reply_markup"] = keyboard(rows)
        reply = self._post({"text": render(alert, self._templates), "parse_mode": "HTML", **options})
        if _is_unreadable(reply):
            reply = self._post({"text": truncate_text(as_text(alert)), **options})
        if not reply.ok:
            self._raise_error(reply)
        if self.pictures is not None:
            work = (self._send_picture, self.pictures, alert, reply, self._turns)
            # a daemon thread: a picture must not delay the exit of the program
            threading.Thread(target=copy_context().run, args=work, name="telegram-picture", daemon=True).start()

    def _send_picture(self, pictures: PictureSource, alert: Alert, sent: BotApiReply, turns: int) -> None:
        """Draw it and send it once, as a silent reply to the alert; its caption is for lists of chats and for readers
        who do not see it.
        """
        picture = pictures.picture_for(alert)
        if picture is None or self._turns != turns:  # other alerts go first
            return
        self._wait_for_turn()
        fields = {
            "chat_id": self.new_address or self.address,
            "caption": picture.text,
            "disable_notification": "true",
            "reply_parameters": json.dumps({"message_id": message_id(sent), "allow_sending_without_reply": True}),
        }
        reply = self._api.send_photo(fields, picture.png, _DEADLINE_S)
        if not reply.ok:
            log.warning("the picture of an alert was not sent: %s", reply.text)

    def check(self) -> str:
        """Check that Telegram accepts the token and the chat; sends nothing. Raises DeliverLater, DeliveryRefused."""
        reply = self._api.call("getChat", {"chat_id": self.address}, CHECK_S)
        if not reply.ok:
            self._raise_error(reply)
        return "its bot knows the chat"

    @property
    def webhook_address(self) -> str:
        """The address to which Telegram sends updates; empty: the bot is polled."""
        return self.webhook and self.webhook + self._api.webhook_path

    def webhook_fault(self) -> tuple[str, str] | None:
        """Return why updates do not arrive here, and what to do; None: they do, or that is unknown."""
        info = read_webhook_info(self._api, CHECK_S / 2)
        if info is None:
            return None
        if info.url and not info.url.endswith(self._api.webhook_path):
            text = f"the bot has a webhook ({redact(info.url)}): commands and presses go there, not to gpuwatch"
            return text, "remove it with deleteWebhook of the Bot API"
        if self.webhook and info.last_error_message and info.pending_update_count:
            text = f"Telegram cannot reach {self.webhook_address}: {redact(info.last_error_message)}"
            return text, "check the proxy, its certificate and the name; docs/telegram.md#a-webhook"
        return None

    def _post(self, message: dict[str, object]) -> BotApiReply:
        reply = self._send_message(message)
        if reply.status == 400 and reply.moved_to is not None:
            self.new_address = reply.moved_to
            reply = self._send_message(message)
        return reply

    def _send_message(self, message: dict[str, object]) -> BotApiReply:
        body = {
            "chat_id": self.new_address or self.address,
            "link_preview_options": {"is_disabled": True},
            **message,
        }
        self._wait_for_turn()
        reply = self._api.call("sendMessage", body, _DEADLINE_S)
        if not reply.status:
            raise DeliverLater(reply.text)
        return reply

    def _wait_for_turn(self) -> None:
        with self._turn_lock:
            self._turns += 1
            self._sleep(max(self._next_at - self._monotonic(), 0.0))
            self._next_at = self._monotonic() + _SPACING_S

    def _raise_error(self, reply: BotApiReply) -> NoReturn:
        if reply.status == 429:
            wait_s = reply.retry_after_s
            # up to 5 %, at most 3 s: waiting alerts should not all be retried in the same second
            raise DeliverLater(
                reply.text, None if wait_s is None else wait_s + self._jitter() * min(3.0, wait_s * 0.05)
            )
        if 400 <= reply.status < 500 and reply.status != 408:
            raise DeliveryRefused(_with_remedy(reply))
        raise DeliverLater(reply.text)


def _with_remedy(reply: BotApiReply) -> str:
    """Return why Telegram refuses, and what to do about it."""
    if reply.moved_to is not None:
        return f'{reply.text}; set chat_id = "{reply.moved_to}"'
    if reply.status in {401, 404}:  # a revoked token, and one of another form
        return f"{reply.text}; check bot_token"
    description = reply.description.lower()
    return "; ".join([reply.text, *[mend for words, mend in _REMEDIES if words in description][:1]])


def _authorised_users(settings: TelegramSettings) -> frozenset[str]:
    """The users who may press buttons and send commands; by default the user of a private chat: groups have negative
    ids, channels have names.
    """
    if settings.chat_id.startswith("@"):
        return frozenset()
    if settings.users:
        return frozenset(settings.users)
    return frozenset({settings.chat_id}) if settings.chat_id.isdecimal() else frozenset()


def _is_unreadable(reply: BotApiReply) -> bool:
    description = reply.description.lower()
    return reply.status == 400 and ("can't parse" in description or "too long" in description)
