"""A Bot API server on loopback, built from the API's documented answers; strict where Telegram is strict.

`sendMessage` and `getChat`. Formatting: core.telegram.org/bots/api#html-style; failures: #responseparameters, and the
texts that the API sends with 400, 401, 403 and 429.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "8123456789:AAH-TelegramTokenOfATest_0123456789ab"
CHAT = "-4001"

_TAGS = {
    "b", "strong", "i", "em", "u", "ins", "s", "strike", "del", "code", "pre", "a", "tg-spoiler", "span",
    "blockquote", "tg-emoji",
}  # fmt: skip
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_DETECTED = {
    "url": re.compile(r"(?:[a-z][a-z0-9+.-]*://\S+)|(?<![\w@.])(?:[\w-]+\.)+[^\W\d_]{2,}|\b\d+\.\d+\.\d+\.\d+\b", re.I),
    "mention": re.compile(r"(?<!\w)@\w{3,}"),
    "hashtag": re.compile(r"(?<!\w)#\w*[^\W\d]\w*"),
    "cashtag": re.compile(r"(?<!\w)\$[A-Z]{1,8}\b"),
    "bot_command": re.compile(r"(?<![\w/<>])/[A-Za-z0-9_]{1,64}"),
}


class CannotParse(Exception):
    """What stands behind "can't parse entities:"."""


@dataclass(frozen=True)
class Entity:
    kind: str
    text: str
    url: str | None = None


@dataclass(frozen=True)
class Shown:
    """A message as a reader gets it."""

    chat_id: str
    text: str
    entities: tuple[Entity, ...]
    parse_mode: str | None
    previews: bool
    silent: bool = False


@dataclass(frozen=True)
class Fault:
    """One answer out of turn. `accepted`: the message is shown all the same."""

    status: int = 200
    description: str = ""
    parameters: dict[str, int] = field(default_factory=dict)
    accepted: bool = False
    hangs_up: bool = False  # closes the connection without an answer
    hangs_s: float = 0.0
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


class TelegramDouble:
    """What was asked and shown, and what goes wrong next."""

    def __init__(self) -> None:
        self.base_url = ""
        self.token = TOKEN
        self.chats = {CHAT}
        self.faults: list[Fault] = []
        self.always: Fault | None = None
        self.shown: list[Shown] = []
        self.asked: list[dict[str, Any]] = []
        self.asked_at_s: list[float] = []
        self.released = threading.Event()
        self._lock = threading.Lock()

    def answer(self, path: str, body: bytes) -> tuple[Fault, bytes]:
        with self._lock:
            request = json.loads(body)
            self.asked.append(request)
            self.asked_at_s.append(time.monotonic())
            fault = self.faults.pop(0) if self.faults else self.always
            method = path.removeprefix(f"/bot{self.token}/")
            if method not in {"sendMessage", "getChat"}:
                return _no(401, "Unauthorized")
            if fault is not None and not fault.accepted:
                return fault, _refusal(fault)
            if method == "getChat":
                return self._chat(str(request.get("chat_id")))
            return self._take(request, fault or Fault())

    def _chat(self, chat_id: str) -> tuple[Fault, bytes]:
        if chat_id not in self.chats:
            return _no(400, "Bad Request: chat not found")
        return Fault(), json.dumps({"ok": True, "result": {"id": int(chat_id), "type": "private"}}).encode()

    def _take(self, request: dict[str, Any], fault: Fault) -> tuple[Fault, bytes]:
        chat_id = str(request.get("chat_id"))
        if chat_id not in self.chats:
            return _no(400, "Bad Request: chat not found")
        try:
            text, entities = parse(request["text"], request.get("parse_mode"))
        except CannotParse as error:
            return _no(400, f"Bad Request: can't parse entities: {error}")
        if not text.strip():
            return _no(400, "Bad Request: message text is empty")
        if len(text.encode("utf-16-le", "surrogatepass")) // 2 > 4096:
            return _no(400, "Bad Request: message is too long")
        previews = not request.get("link_preview_options", {}).get("is_disabled", False)
        silent = bool(request.get("disable_notification"))
        self.shown.append(Shown(chat_id, text, tuple(entities), request.get("parse_mode"), previews, silent))
        result = {"message_id": len(self.shown), "chat": {"id": int(chat_id)}, "text": text}
        return fault, json.dumps({"ok": True, "result": result}).encode()


def parse(text: str, parse_mode: str | None) -> tuple[str, list[Entity]]:
    """The visible text with its entities, those that Telegram finds by itself included."""
    if parse_mode is None:
        return text, _detected([(text, False)])
    assert parse_mode == "HTML"
    return _Html(text).parse()


class _Html:
    """Telegram's HTML: few tags, each closed in order; a bare `<` always starts a tag."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.out: list[tuple[str, bool]] = []  # text, and whether it is inside code or a link
        self.open: list[tuple[str, int, str | None]] = []
        self.entities: list[Entity] = []

    def parse(self) -> tuple[str, list[Entity]]:
        while self.at < len(self.source):
            character = self.source[self.at]
            if character == "<":
                self._tag()
            elif character == "&":
                self._emit(self._reference())
            else:
                self._emit(character)
                self.at += 1
        if self.open:
            raise CannotParse(f'Can\'t find end tag corresponding to start tag "{self.open[-1][0]}"')
        return self._text(0), self.entities + _detected(self.out)

    def _emit(self, text: str) -> None:
        inside = any(tag in {"code", "pre", "a"} for tag, _, _ in self.open)
        self.out.append((text, inside))

    def _text(self, since: int) -> str:
        return "".join(text for text, _ in self.out[since:])

    def _offset(self) -> int:
        return len(self.source[: self.at].encode("utf-8", "surrogatepass"))

    def _tag(self) -> None:
        closing = re.compile(r"</([a-z0-9-]*)\s*>", re.I).match(self.source, self.at)
        opening = re.compile(
            r"<([a-z0-9-]*)((?:\s+[a-z-]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s>\"']+))?)*)\s*>", re.I
        ).match(self.source, self.at)
        if closing:
            self._close(closing)
        elif opening and opening[1].lower() in _TAGS:
            self._start(opening)
        else:
            name = re.match(r"</?([^\s>]*)", self.source[self.at :])
            raise CannotParse(f'Unsupported start tag "{name[1] if name else ""}" at byte offset {self._offset()}')

    def _start(self, found: re.Match[str]) -> None:
        tag = found[1].lower()
        if any(name in {"code", "pre"} for name, _, _ in self.open):
            raise CannotParse(f'Unsupported start tag "{tag}" inside code at byte offset {self._offset()}')
        href = re.search(r"href\s*=\s*(?:\"([^\"]*)\"|'([^']*)')", found[2])
        url = _unescaped(next((g for g in href.groups() if g is not None), "")) if href else None
        self.open.append((tag, len(self.out), url))
        self.at = found.end()

    def _close(self, found: re.Match[str]) -> None:
        if not self.open:
            raise CannotParse(f"Unexpected end tag at byte offset {self._offset()}")
        tag, since, url = self.open.pop()
        if found[1].lower() not in {tag, ""}:
            raise CannotParse(f'Unmatched end tag at byte offset {self._offset()}, expected "</{tag}>"')
        self.entities.append(Entity("text_link" if tag == "a" else tag, self._text(since), url))
        self.at = found.end()

    def _reference(self) -> str:
        found = re.compile(r"&(?:#x([0-9a-f]{1,6})|#([0-9]{1,7})|([a-z]+));", re.I).match(self.source, self.at)
        text = _decoded(found) if found else None
        if found is None or text is None:
            self.at += 1
            return "&"
        self.at = found.end()
        return text


def _decoded(found: re.Match[str]) -> str | None:
    if found[3]:
        return _NAMED.get(found[3])
    return chr(int(found[1], 16) if found[1] else int(found[2]))


def _unescaped(text: str) -> str:
    return re.sub(
        r"&(?:#x([0-9a-f]{1,6})|#([0-9]{1,7})|([a-z]+));", lambda found: _decoded(found) or found[0], text, flags=re.I
    )


def _detected(stretches: list[tuple[str, bool]]) -> list[Entity]:
    # what is inside code or a link is no link of its own
    bare = "".join(" " * len(text) if inside else text for text, inside in stretches)
    return [Entity(kind, found[0]) for kind, pattern in _DETECTED.items() for found in pattern.finditer(bare)]


def _refusal(fault: Fault) -> bytes:
    if fault.raw is not None:
        return fault.raw
    said: dict[str, Any] = {"ok": False, "error_code": fault.status, "description": fault.description}
    if fault.parameters:
        said["parameters"] = fault.parameters
    return json.dumps(said).encode()


def _no(status: int, description: str) -> tuple[Fault, bytes]:
    fault = Fault(status, description)
    return fault, _refusal(fault)


@contextmanager
def telegram() -> Iterator[TelegramDouble]:
    """The double, listening on a free port until the block ends."""
    double = TelegramDouble()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            fault, body = double.answer(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            if fault.hangs_s:
                double.released.wait(fault.hangs_s)
            if fault.hangs_up or fault.hangs_s:
                self.close_connection = True
                return
            self.send_response(fault.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in fault.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keeps quiet."""

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
