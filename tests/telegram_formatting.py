"""Telegram's formatting as a reader sees it; as strict as Telegram (core.telegram.org/bots/api#html-style)."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    """The text after "can't parse entities:"."""


@dataclass(frozen=True)
class Entity:
    kind: str
    text: str
    url: str | None = None


def parse(text: str, parse_mode: str | None) -> tuple[str, list[Entity]]:
    """Return the visible text with its entities, including those that Telegram finds itself."""
    if parse_mode is None:
        return text, _detected([(text, False)])
    assert parse_mode == "HTML"
    return _Html(text).parse()


class _Html:
    """Parse Telegram's HTML: few tags, each closed in order; a bare `<` always starts a tag."""

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
    # text inside code or a link is not a link of its own
    bare = "".join(" " * len(text) if inside else text for text, inside in stretches)
    return [Entity(kind, found[0]) for kind, pattern in _DETECTED.items() for found in pattern.finditer(bare)]


def form_fields(body: bytes) -> dict[str, bytes]:
    """Return the fields of a request that uploads a file."""
    parts = body.split(body.split(b"\r\n", 1)[0])
    return {
        part.split(b'name="')[1].split(b'"')[0].decode(): part.split(b"\r\n\r\n", 1)[1][:-2] for part in parts[1:-1]
    }
