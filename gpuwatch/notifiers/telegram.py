"""Telegram, over the Bot API (source: core.telegram.org/bots/api, read 2026-11)."""

from __future__ import annotations

import html
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.toolkit import CHECK_S, TEMPLATES, Line, Piece, Role, as_text, checked, footer, lines, own_text
from gpuwatch.ports import Alert, ChannelSettings
from gpuwatch.ports.declarations import ChannelInfo, OptionSpec, parse_line, parse_token, parse_url
from gpuwatch.ports.http import NetError
from gpuwatch.redaction import redact, register_secret

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient, HttpReply


def _chat_id(value: object) -> str:
    return parse_line(str(value) if isinstance(value, int) and not isinstance(value, bool) else value)


INFO = ChannelInfo(
    name="telegram",
    title="Telegram",
    options=(
        OptionSpec(
            name="bot_token",
            kind="text",
            about="Secret; the bot's token from @BotFather.",
            secret=True,
            needed=True,
            parse=parse_token,
        ),
        OptionSpec(
            name="chat_id",
            kind="id",
            about="Chat that gets the alerts: a number, or @channel.",
            needed=True,
            parse=_chat_id,
        ),
        OptionSpec(
            name="base_url",
            kind="text",
            about="http(s) address of the Bot API.",
            default="https://api.telegram.org",
            is_url=True,
            parse=parse_url,
        ),
        TEMPLATES,
    ),
    template="chat_id = 123456789             # and the secret GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN\n",
    docs="alerts.md#telegram",
    doctor=lambda settings, http: checked("telegram", build(settings, http).check),
)
MAX_UNITS = 4096  # UTF-16 code units after the entities are parsed
_SPACING_S = 1.05  # at most one message per chat and second (source: Bot FAQ)
_DEADLINE_S = 10.0  # three requests at most (plain text, a moved chat) stay within a lease
_MORE = Line(Role.ITEM, (Piece("… truncated; the whole alert: gpuwatch alerts"),))


def build(settings: ChannelSettings, http: HttpClient) -> TelegramChannel:
    """The channel of `[notify.telegram]`."""
    options: dict[str, Any] = dict(settings.options)
    return TelegramChannel(TelegramSettings(**options), http)


class _Parameters(msgspec.Struct):
    migrate_to_chat_id: int | None = None
    retry_after: float | None = None


class _BotApiAnswer(msgspec.Struct):
    ok: bool = False
    description: str = ""
    parameters: _Parameters | None = None


class TelegramSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[notify.telegram]`. `bot_token` is a secret."""

    bot_token: str
    chat_id: str
    base_url: str = "https://api.telegram.org"
    templates: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        return f"TelegramSettings({self.chat_id!r}, {self.base_url!r})"


class TelegramChannel:
    """One chat. `new_address` is set once Telegram says that the chat has another id."""

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
        register_secret(settings.bot_token)
        self.address = settings.chat_id
        self.new_address: str | None = None
        self._url = f"{settings.base_url.rstrip('/')}/bot{settings.bot_token}/"
        self._templates = settings.templates
        self._http = http
        self._monotonic = monotonic
        self._sleep = sleep
        self._jitter = jitter
        self._turn = threading.Lock()
        self._next_at = float("-inf")

    def send(self, alert: Alert) -> None:
        """Deliver once: as HTML; as plain text if Telegram cannot read that; to the new chat if it has moved.

        Raises:
            DeliverLater: a limit, a server's fault, or an answer that never came (it may have been delivered).
            DeliveryRefused: the token, the chat or the message is not accepted.
        """
        self._send(alert, silently=False)

    def send_silently(self, alert: Alert, taken: Sequence[str] = ()) -> None:
        """`send`, without a sound on the owner's devices. One chat: `taken` is always empty."""
        self._send(alert, silently=True)

    def _send(self, alert: Alert, silently: bool) -> None:
        how: dict[str, object] = {"disable_notification": True} if silently else {}
        answered, answer = self._post({"text": render(alert, self._templates), "parse_mode": "HTML", **how})
        if _is_unreadable(answered, answer):
            answered, answer = self._post({"text": _cut_text(as_text(alert)), **how})
        if answered.status != 200 or not answer.ok:
            self._fail(answered, answer)

    def check(self) -> str:
        """Whether Telegram knows the token and the chat; nothing is sent. Raises DeliverLater, DeliveryRefused."""
        answered, answer = self._call("getChat", {"chat_id": self.address}, CHECK_S)
        if answered.status != 200 or not answer.ok:
            self._fail(answered, answer)
        return "its bot knows the chat"

    def _post(self, message: dict[str, object]) -> tuple[HttpReply, _BotApiAnswer]:
        answered, answer = self._ask(message)
        moved = answer.parameters.migrate_to_chat_id if answer.parameters else None
        if answered.status == 400 and moved is not None:
            self.new_address = str(moved)
            answered, answer = self._ask(message)
        return answered, answer

    def _ask(self, message: dict[str, object]) -> tuple[HttpReply, _BotApiAnswer]:
        body = {
            "chat_id": self.new_address or self.address,
            "link_preview_options": {"is_disabled": True},
            **message,
        }
        self._wait_for_turn()
        return self._call("sendMessage", body, _DEADLINE_S)

    def _call(self, method: str, body: dict[str, object], deadline_s: float) -> tuple[HttpReply, _BotApiAnswer]:
        try:
            answered = self._http.ask("POST", self._url + method, json=body, deadline_s=deadline_s, max_bytes=1_000_000)
        except NetError as error:
            raise DeliverLater(f"telegram: {redact(str(error))}") from None
        try:
            return answered, msgspec.json.decode(answered.body, type=_BotApiAnswer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return answered, _BotApiAnswer(description="an answer that is not Telegram's")

    def _wait_for_turn(self) -> None:
        with self._turn:
            self._sleep(max(self._next_at - self._monotonic(), 0.0))
            self._next_at = self._monotonic() + _SPACING_S

    def _fail(self, answered: HttpReply, answer: _BotApiAnswer) -> NoReturn:
        said = redact(f"telegram: {answered.status} {answer.description}".strip())[:300]
        if answered.status == 429:
            wait_s = _retry_after(answered, answer)
            # up to 5 %, 3 s at most: not all waiting alerts come back in the same second
            raise DeliverLater(said, None if wait_s is None else wait_s + self._jitter() * min(3.0, wait_s * 0.05))
        if 400 <= answered.status < 500 and answered.status != 408:
            raise DeliveryRefused(said)
        raise DeliverLater(said)


def render(alert: Alert, templates: Mapping[str, str] | None = None) -> str:
    """The message as Telegram's HTML, at most 4096 characters as shown; cut between two lines.

    Args:
        templates: the owner's own texts by kind; what Telegram would not take whole is not used.
    """
    own = own_text(templates, alert, _marked_up)
    if own and len(own.encode("utf-16-le")) // 2 <= MAX_UNITS:
        return own
    ending = footer(alert)
    room = MAX_UNITS - sum(_units(line) for line in (_MORE, *ending))
    kept: list[Line] = []
    whole = lines(alert)
    for line in whole:
        room -= _units(line)
        if room < 0:
            kept.append(_MORE)
            break
        kept.append(line)
    return "\n".join(_marked_up(line) for line in (*kept, *ending))


def _units(line: Line) -> int:
    return sum(len(piece.text.encode("utf-16-le")) // 2 for piece in line.pieces) + 1


def _marked_up(line: Line) -> str:
    return "".join(map(_mark_up, line.pieces))


def _mark_up(piece: Piece) -> str:
    if piece.url:
        marked = f'<a href="{html.escape(piece.url)}">{_escaped(piece.text)}</a>'
        return f"<b>{marked}</b>" if piece.bold else marked
    if piece.code:
        return f"<code>{_escaped(piece.text)}</code>"
    stretches = _LINKS_ITSELF.split(piece.text)  # every second one would become a link
    return "".join(
        f"<code>{_escaped(text)}</code>" if index % 2 else _emphasised(text, piece.bold)
        for index, text in enumerate(stretches)
        if text
    )


# Telegram turns bare domains, @names, #tags, $TICKERS and /commands into links by itself, but never inside <code>.
_LINKS_ITSELF = re.compile(r"(\S*(?:(?<!\w)[@#/]\w|\$[^\W\d]|\w\.[^\W\d_]{2}|://|\d\.\d+\.\d+\.\d)\S*)")


def _emphasised(text: str, bold: bool) -> str:
    return f"<b>{_escaped(text)}</b>" if bold and text.strip() else _escaped(text)


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


def _retry_after(answered: HttpReply, answer: _BotApiAnswer) -> float | None:
    if answer.parameters and answer.parameters.retry_after is not None:
        return answer.parameters.retry_after
    header = answered.headers.get("retry-after", "")
    return float(header) if header.isdecimal() else None


def _is_unreadable(answered: HttpReply, answer: _BotApiAnswer) -> bool:
    said = answer.description.lower()
    return answered.status == 400 and ("can't parse" in said or "too long" in said)


def _cut_text(text: str) -> str:
    units = text.encode("utf-16-le")[: (MAX_UNITS - 1) * 2]
    cut = units.decode("utf-16-le", "ignore")
    return cut if cut == text else cut + "…"
