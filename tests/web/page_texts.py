"""What a person reads or hears on a page, and the words of it that are for programs, or of another language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import NamedTuple

_SKIPPED = frozenset({"script", "style", "svg"})
_CODE = frozenset({"code", "pre", "kbd", "textarea", "samp"})
_VOID = frozenset({"meta", "link", "input", "br", "img", "hr", "source", "wbr", "use"})
_LABELS = ("aria-label", "title", "placeholder", "alt", "data-confirm", "aria-valuetext")
# Two words in a row are a sentence, or a part of one. These are names.
_NAMES = re.compile(
    r"\"[^\"]*\"|RTX \w+|vast\.ai|gpuwatch( \w+)*|Europe/\w+|H100 \w+|A100 \w+|Prime Intellect|Hot Aisle"
)
_ENGLISH = re.compile(r"[A-Za-z]{2,}[,;:]? [a-z]{2,}")
# Words that are the same in every language: names, units, and what stays as its owner or a host wrote it.
_SAME = re.compile(
    r"\"[^\"]*\"|[“«][^”»]*[”»]|\S*[/\\*]\S*|[\w.-]+@[\w.]+|@\w+|[A-Z][A-Za-z ]+, [A-Z]{2}\b"  # a place has a country
    r"|\b(exit code \d+|POST|[Cc]onnection refused)\b"  # of programs
    r"|\b(Norway|Washington|Viet Nam|Portugal|budget for next month|its owner|ckpt|train\.py|python)\b"
    r"|\b(h100-night|a100-ask|a100-cheap|h200-deal|b200-eu|render|llama-ft|eval|train|tokenize|cheap|job)\b"
    r"|\b(vast\.?ai|[Rr]un[Pp]od|gpuwatch-\w+|gpuwatch( init| doctor| ssh)?)\b"
    r"|\b(systemd|Telegram|Slack|Discord|ntfy|BotFather|Sat-Sun)\b"
    r"|\b(RTX|SXM|PCIe|NVL|NVLink|GPU|CPU|vCPU|SSH|UTC|CES?T|USD|API|ASCII|CUDA|DLPerf|T?FLOP|LoRA|QLoRA|adamw)\b"
    r"|\b(FP\d+|[bf]?fp?\d+|int\d|llama-[\w.-]+|\d*(GB|GiB)|[A-Z]{2}|spot|Spot|torchtune|memory and training speed)\b"
    # values that are typed as in the settings file, in the help of a field
    r"|\b(true|false|never|auto|arm64|alert|ask|launch|block|warn|hours|percentile|active|ssh -p)\b|_direct|_proxy"
)
_WORD = re.compile(r"[A-Za-z]{2,}")
_FOR_PROGRAMS = {
    "key": re.compile(r"(?<![\w/.-])[a-z]\w*_\w+(?![\w/])"),
    "dotted key": re.compile(r"\b(?:budget|launch|job|notify|providers|web|record|history|watch)\.[a-z]\w*"),
    "flag": re.compile(r"(?<![\w-])--[a-z][\w-]*"),
    "id": re.compile(r"\b(?=[a-z]*\d)[a-z0-9]{12}\b|\b\d{7,}\b"),
}


class PageText(NamedTuple):
    """One text. `is_code`: within code; `is_link`: within a link; `is_name`: marked as not to be translated."""

    text: str
    is_code: bool
    is_link: bool
    is_name: bool


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[PageText] = []
        self._open: list[tuple[str, bool]] = []  # tag, whether its content is a name

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self._open.append((tag, ("translate", "no") in attrs))
        if not self._is_within(_SKIPPED):
            labels = [(name, value) for name, value in attrs if name in _LABELS and value]
            self.texts += [self._seen(text, name == "placeholder") for name, text in labels]  # an example is code

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not self._is_within(_SKIPPED) and data.strip():
            self.texts.append(self._seen(" ".join(data.split())))

    def _seen(self, text: str, is_code: bool = False) -> PageText:
        is_name = any(is_name for _, is_name in self._open)
        return PageText(text, is_code or self._is_within(_CODE), self._is_within({"a"}), is_name)

    def _is_within(self, tags: frozenset[str] | set[str]) -> bool:
        return any(tag in tags for tag, _ in self._open)


def page_texts(page: str) -> list[PageText]:
    """Return what a page says, also what its labels say."""
    reader = _Reader()
    reader.feed(page)
    return reader.texts


def english_in(page: str) -> list[str]:
    """Return the texts of a page with words of English."""
    return [
        one.text
        for one in page_texts(page)
        if not one.is_code and not one.is_name and _ENGLISH.search(_NAMES.sub("", one.text))
    ]


def english_words_in(page: str) -> list[str]:
    """Return the texts of a page with a word of English that no list allows."""
    return [
        one.text
        for one in page_texts(page)
        if not one.is_code and not one.is_name and _WORD.search(_SAME.sub("", one.text))
    ]


def words_for_programs(page: str) -> Iterator[str]:
    """Yield each key, value, flag or id in the content of a page that stands in no code, and what it stands in."""
    main = page.partition("<main")[2].partition("</main>")[0]
    for one in page_texts(f"<main{main}"):
        for kind, pattern in _FOR_PROGRAMS.items():
            found = pattern.search(one.text)
            if found and not one.is_code and not (kind == "id" and one.is_link):
                yield f"{kind} {found[0]} in {one.text[:120]!r}"
