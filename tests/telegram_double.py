"""A Bot API server on loopback, built from the API's documented answers; as strict as Telegram.

`sendMessage` and `getChat`; commands and buttons: `getUpdates`, `answerCallbackQuery`, `editMessageText`, `sendPhoto`
and `setMyCommands`; `getMe` and webhooks: `tests/telegram_webhook.py`.
Formatting: core.telegram.org/bots/api#html-style; failures: #responseparameters, and the texts
that the API sends with 400, 401, 403, 409 and 429.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

from tests.telegram_formatting import CannotParse, Entity, form_fields, parse
from tests.telegram_webhook import Refused, WebhookSender

TOKEN = "8123456789:AAH-TelegramTokenOfATest_0123456789ab"
CHAT = "-4001"
_OF_THE_BOT = {"getMe", "setMyCommands", "getWebhookInfo", "setWebhook", "deleteWebhook"}


@dataclass(frozen=True)
class Shown:
    """A message as a reader gets it."""

    chat_id: str
    text: str
    entities: tuple[Entity, ...]
    parse_mode: str | None
    previews: bool
    silent: bool = False
    message_id: int = 0
    buttons: tuple[tuple[tuple[str, str], ...], ...] = ()  # (label, data), by row
    replies_to: int | None = None

    @property
    def labels(self) -> list[str]:
        return [label for row in self.buttons for label, _ in row]

    def data(self, label: str) -> str:
        return next(data for row in self.buttons for text, data in row if text.startswith(label))


@dataclass(frozen=True)
class Fault:
    """One special answer. `accepted`: the message is shown anyway."""

    status: int = 200
    description: str = ""
    parameters: dict[str, int] = field(default_factory=dict)
    accepted: bool = False
    hangs_up: bool = False  # closes the connection without an answer
    hangs_s: float = 0.0
    slow_s: float = 0.0  # answers after so long
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


def too_many(retry_after: int) -> Fault:
    return Fault(429, f"Too Many Requests: retry after {retry_after}", {"retry_after": retry_after})


def moved(new_chat_id: int) -> Fault:
    said = "Bad Request: group chat was upgraded to a supergroup chat"
    return Fault(400, said, {"migrate_to_chat_id": new_chat_id})


BLOCKED = Fault(403, "Forbidden: bot was blocked by the user")
BAD_GATEWAY = Fault(502, "Bad Gateway")
UNREADABLE = Fault(400, "Bad Request: can't parse entities: Can't find end tag corresponding to start tag \"b\"")
REPLY_LOST = Fault(accepted=True, hangs_up=True)


class TelegramDouble(WebhookSender):
    """Received requests, shown messages, and the next faults."""

    def __init__(self) -> None:
        super().__init__()
        self.base_url = ""
        self.token = TOKEN
        self.chats = {CHAT}
        self.faults: list[Fault] = []
        self.always: Fault | None = None
        self.shown: list[Shown] = []
        self.asked: list[dict[str, Any]] = []
        self.asked_at_s: list[float] = []
        self.offsets: list[int] = []
        self.answers: dict[str, tuple[str, float]] = {}  # press → text, seconds after the press was given out
        self.edits: list[tuple[int, str]] = []  # (message, text)
        self.photos: list[bytes] = []
        self.photo_fault: Fault | None = None
        self.methods: list[str] = []
        self.hanging: dict[int, str] = {}  # requests that get no answer, by number: their methods
        self.conflicts = 0  # requests that another getUpdates ended
        self._numbers = count()
        self._next_update = 700_000_001
        self._lock = threading.Lock()

    def answer(self, path: str, body: bytes) -> tuple[Fault, bytes]:
        method = path.removeprefix(f"/bot{self.token}/")
        if method == "sendPhoto":
            return self._photo(body)
        if method == "getUpdates":
            return self._poll(json.loads(body or b"{}"))
        with self._lock:
            self.methods.append(method)
            known = {
                "sendMessage": self._take,
                "getChat": self._chat,
                "editMessageText": self._edit,
                "answerCallbackQuery": self._press_answered,
                "setMyCommands": self._yes,
            } | {name: _answered(work) for name, work in self.webhook_methods.items()}
            request = json.loads(body)
            if method not in _OF_THE_BOT | {"answerCallbackQuery"}:
                self.asked.append(request)
                self.asked_at_s.append(time.monotonic())
            if method not in known:
                return _no(401, "Unauthorized")
            fault = None if method in _OF_THE_BOT else self._next_fault()
            if fault is not None and not fault.accepted:
                return fault, refusal(fault)
            return known[method](request, fault or Fault())

    def hangs(self, method: str, seconds: float) -> None:
        """Let the program wait for an answer that never comes."""
        number = next(self._numbers)
        self.hanging[number] = method
        self.released.wait(seconds)
        del self.hanging[number]

    def _next_fault(self) -> Fault | None:
        return self.faults.pop(0) if self.faults else self.always

    # --- commands and buttons -----------------------------------------------------------------------------------------

    def write(self, text: str, user: int, chat: int | None = None) -> int:
        """Let a person write; return the id of the update."""
        chat_id = user if chat is None else chat
        message = {
            "message_id": 90_000,
            "date": int(time.time()),
            "from": {"id": user, "is_bot": False, "first_name": "A"},
            "chat": {"id": chat_id, "type": "private" if chat_id > 0 else "group"},
            "text": text,
        }
        return self._came_in({"message": message})

    def press(self, shown: Shown, label: str, user: int, data: str | None = None) -> str:
        """Let a person press a button of a message in its current state; return the id of the press."""
        shown = self.now(shown)
        press_id = f"press-{self._next_update}"
        markup = [[{"text": text, "callback_data": said} for text, said in row] for row in shown.buttons]
        query = {
            "id": press_id,
            "from": {"id": user, "is_bot": False, "first_name": "A"},
            "chat_instance": "77",
            "data": shown.data(label) if data is None else data,
            "message": {
                "message_id": shown.message_id,
                "date": int(time.time()),
                "chat": {"id": int(shown.chat_id), "type": "private" if int(shown.chat_id) > 0 else "group"},
                "text": shown.text,
                "entities": _wire_entities(shown),
                "reply_markup": {"inline_keyboard": markup},
            },
        }
        self._came_in({"callback_query": query})
        return press_id

    def now(self, shown: Shown) -> Shown:
        """Return the current state of the message."""
        return next(one for one in self.shown if one.message_id == shown.message_id)

    def _came_in(self, what: dict[str, Any]) -> int:
        with self._came:
            update_id = self._next_update
            self._next_update += 1
            self.updates.append({"update_id": update_id, **what})
            self._came.notify_all()
        return update_id

    def _poll(self, request: dict[str, Any]) -> tuple[Fault, bytes]:
        """The newest request ends earlier ones, like at Telegram."""
        if self.webhook:
            return _no(409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook first")
        if self.always is not None and not self.always.accepted:
            return self.always, refusal(self.always)
        ends_s = time.monotonic() + min(float(request.get("timeout", 0)), 1.0)
        with self._came:
            self._polls += 1
            mine = self._polls
            self._came.notify_all()
            self._confirm(request.get("offset", 0))
            self._came.wait_for(
                lambda: bool(self.updates) or self._polls != mine or self.released.is_set(),
                max(ends_s - time.monotonic(), 0.0),
            )
            if self._polls != mine:
                self.conflicts += 1
                said = (
                    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
                )
                return _no(409, said)
            found = self.updates[: request.get("limit", 100)]
            for one in found:
                if "callback_query" in one:
                    self._given_out_s.setdefault(one["callback_query"]["id"], time.monotonic())
        return Fault(), json.dumps({"ok": True, "result": found}).encode()

    def _confirm(self, offset: int) -> None:
        if offset > 0:
            self.offsets.append(offset)
            self.updates = [update for update in self.updates if update["update_id"] >= offset]

    def _press_answered(self, request: dict[str, Any], fault: Fault) -> tuple[Fault, bytes]:
        press_id, text = request["callback_query_id"], request.get("text", "")
        if press_id not in self._given_out_s or press_id in self.answers or len(text) > 200:
            return _no(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        self.answers[press_id] = (text, time.monotonic() - self._given_out_s[press_id])
        return self._yes(request, fault)

    def _yes(self, _request: dict[str, Any], _fault: Fault) -> tuple[Fault, bytes]:
        return Fault(), b'{"ok": true, "result": true}'

    def _edit(self, request: dict[str, Any], _fault: Fault) -> tuple[Fault, bytes]:
        found = [one for one in self.shown if one.message_id == request["message_id"]]
        if not found or found[0].chat_id != str(request["chat_id"]):
            return _no(400, "Bad Request: message to edit not found")
        text, buttons = request["text"], _markup(request)
        if len(text.encode("utf-16-le", "surrogatepass")) // 2 > 4096:
            return _no(400, "Bad Request: message is too long")
        if (text, buttons) == (found[0].text, found[0].buttons):
            return _no(400, "Bad Request: message is not modified")
        entities = tuple(_entity(text, one) for one in request.get("entities", ()))
        changed = replace(found[0], text=text, buttons=buttons, entities=entities, parse_mode=None)
        self.shown[self.shown.index(found[0])] = changed
        self.edits.append((request["message_id"], text))
        return Fault(), json.dumps({"ok": True, "result": {"message_id": request["message_id"]}}).encode()

    def _photo(self, body: bytes) -> tuple[Fault, bytes]:
        with self._lock:
            self.methods.append("sendPhoto")
            if self.photo_fault is not None and not self.photo_fault.accepted:
                return self.photo_fault, refusal(self.photo_fault)
            fields = form_fields(body)
            chat, caption = (fields[name].decode() for name in ("chat_id", "caption"))
            assert chat in self.chats
            assert len(caption.encode("utf-16-le")) // 2 <= 1024
            self.photos.append(fields["photo"])
            silent, replied = fields.get("disable_notification") == b"true", fields.get("reply_parameters", b"{}")
            picture = Shown(chat, caption, (), None, previews=False, silent=silent, message_id=len(self.shown) + 1)
            self.shown.append(replace(picture, replies_to=json.loads(replied).get("message_id")))
            if self.photo_fault is not None:
                return self.photo_fault, b""
        return Fault(), json.dumps({"ok": True, "result": {"message_id": len(self.shown)}}).encode()

    def _chat(self, request: dict[str, Any], _fault: Fault) -> tuple[Fault, bytes]:
        chat_id = str(request.get("chat_id"))
        if chat_id not in self.chats:
            return _no(400, "Bad Request: chat not found")
        return Fault(), json.dumps({"ok": True, "result": {"id": int(chat_id), "type": "private"}}).encode()

    def _take(self, request: dict[str, Any], fault: Fault) -> tuple[Fault, bytes]:
        chat_id = str(request.get("chat_id"))
        if chat_id not in self.chats:
            return _no(400, "Bad Request: chat not found")
        try:
            self.shown.append(replace(shown_message(request), message_id=len(self.shown) + 1))
        except CannotParse as error:
            return _no(400, f"Bad Request: {error}")
        result = {"message_id": len(self.shown), "chat": {"id": int(chat_id)}, "text": self.shown[-1].text}
        return fault, json.dumps({"ok": True, "result": result}).encode()


def shown_message(request: dict[str, Any]) -> Shown:
    """Return what a reader sees of a `sendMessage`. Raises CannotParse: Telegram refuses it."""
    try:
        text, entities = parse(request["text"], request.get("parse_mode"))
    except CannotParse as error:
        raise CannotParse(f"can't parse entities: {error}") from error
    if not text.strip():
        raise CannotParse("message text is empty")
    if len(text.encode("utf-16-le", "surrogatepass")) // 2 > 4096:
        raise CannotParse("message is too long")
    return Shown(
        str(request["chat_id"]),
        text,
        tuple(entities),
        request.get("parse_mode"),
        previews=not request.get("link_preview_options", {}).get("is_disabled", False),
        silent=bool(request.get("disable_notification")),
        buttons=_markup(request),
    )


def _markup(request: dict[str, Any]) -> tuple[tuple[tuple[str, str], ...], ...]:
    rows = request.get("reply_markup", {}).get("inline_keyboard", [])
    for row in rows:
        for one in row:
            assert 1 <= len(one["callback_data"].encode()) <= 64, one
            assert one["text"].strip(), one
    return tuple(tuple((one["text"], one["callback_data"]) for one in row) for row in rows)


def _wire_entities(shown: Shown) -> list[dict[str, Any]]:
    found, at = [], 0
    for entity in shown.entities:
        start = shown.text.find(entity.text, at)
        if start >= 0 and entity.kind in {"b", "code"}:
            offset = len(shown.text[:start].encode("utf-16-le")) // 2
            length = len(entity.text.encode("utf-16-le")) // 2
            found.append({"type": {"b": "bold"}.get(entity.kind, entity.kind), "offset": offset, "length": length})
            at = start
    return found


def _entity(text: str, given: dict[str, Any]) -> Entity:
    wire = text.encode("utf-16-le")
    start, length = given["offset"] * 2, given["length"] * 2
    assert 0 <= start < start + length <= len(wire), given
    return Entity({"bold": "b"}.get(given["type"], given["type"]), wire[start : start + length].decode("utf-16-le"))


def _answered(work: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any], Fault], tuple[Fault, bytes]]:
    def answer(request: dict[str, Any], _fault: Fault) -> tuple[Fault, bytes]:
        try:
            return Fault(), json.dumps({"ok": True, "result": work(request)}).encode()
        except Refused as error:
            return _no(400, f"Bad Request: {error}")

    return answer


def refusal(fault: Fault) -> bytes:
    """Return the body of a failure, as documented or as a proxy sends it."""
    if fault.raw is not None:
        return fault.raw
    said: dict[str, Any] = {"ok": False, "error_code": fault.status, "description": fault.description}
    if fault.parameters:
        said["parameters"] = fault.parameters
    return json.dumps(said).encode()


def _no(status: int, description: str) -> tuple[Fault, bytes]:
    fault = Fault(status, description)
    return fault, refusal(fault)


@contextmanager
def telegram() -> Iterator[TelegramDouble]:
    """Run the double on a free port until the block ends."""
    double = TelegramDouble()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            fault, body = double.answer(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            if fault.hangs_s:
                double.hangs(self.path.rpartition("/")[2], fault.hangs_s)
            double.released.wait(fault.slow_s)
            if fault.hangs_up or fault.hangs_s:
                self.close_connection = True
                return
            self.send_response(fault.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in fault.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(BrokenPipeError):  # a program that ended no longer waits for its updates
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    double.base_url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield double
    finally:
        double.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
