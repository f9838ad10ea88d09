"""Rejects private words in names and texts (part of `make check`). The list is `private_words.toml`, next to this file.

It checks what people read: identifiers, comments, docstrings and sentences in the package, its tests and its tools,
and the documents. Data is not checked: recorded answers, golden files, and strings without a space.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = Path(__file__).with_name("private_words.toml")
NOT_READ = (
    "tests/recorded/",
    "migrations/versions/",  # released: never edited
    "requirements/",
    "tests/tools/test_check_words.py",
    "tools/",
    "LICENSE",
)
PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
IDENTIFIER = re.compile(r"[^\W\d]\w*")
ALLOWED = re.compile(r"word-check: allow")


class WordList:
    """Patterns for names and for texts, each with its replacement."""

    def __init__(self, path: Path = WORDS) -> None:
        lists = tomllib.loads(path.read_text(encoding="utf-8"))
        self.names = [(re.compile(rf"(?:{word})\Z"), better) for word, better in lists["names"].items()]
        self.texts = [(re.compile(word, re.IGNORECASE), better) for word, better in lists["texts"].items()]
        self._better: dict[str, list[str]] = {}  # a cache: part of a name → replacements

    def in_name(self, name: str) -> Iterator[str]:
        """Yield a complaint for each private word of an identifier."""
        for part in PART.findall(name):
            if part not in self._better:
                self._better[part] = [better for word, better in self.names if word.match(part.lower())]
            for better in self._better[part]:
                yield f"name {name!r}: write {better}"

    def in_text(self, text: str) -> Iterator[str]:
        """Yield a complaint for each private phrase of a text."""
        line = " ".join(text.split())
        for phrase, better in self.texts:
            for found in phrase.finditer(line):
                yield f"{found[0]!r}: write {better}"


def of_python(source: str, words: WordList) -> Iterator[tuple[int, str]]:
    """Yield (line, complaint) for each private word of a Python file."""
    seen: set[str] = set()
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        found: list[str] = []
        if token.type == tokenize.NAME and token.string not in seen:
            seen.add(token.string)  # once per file is enough
            found = list(words.in_name(token.string))
        elif token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            found = list(words.in_text(token.string))
        for complaint in found:
            here = lines[max(token.start[0] - 2, 0) : token.start[0]]  # this line and the one above it
            if not any(map(ALLOWED.search, here)):
                yield token.start[0], complaint


def of_document(text: str, words: WordList) -> Iterator[tuple[int, str]]:
    """Yield (line, complaint) for each private phrase of a document."""
    for number, line in enumerate(text.splitlines(), 1):
        for complaint in words.in_text(line):
            yield number, complaint


def complaints(root: Path = ROOT) -> Iterator[str]:
    """Return all complaints as file:line: text; sorted by file."""
    words = WordList()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
    for name in sorted(filter(None, listed.stdout.split("\0"))):
        path = root / name
        if name.startswith(NOT_READ) or not path.is_file():
            continue
        if path.suffix == ".py":
            found = of_python(path.read_text(encoding="utf-8"), words)
        elif path.suffix == ".md":
            found = of_document(path.read_text(encoding="utf-8"), words)
        else:
            continue
        yield from (f"{name}:{line}: {complaint}" for line, complaint in found)


def main() -> int:
    """Print every complaint; return exit code 1 if there is any."""
    found = list(complaints())
    for line in found:
        print(line)
    if found:
        print(f"{len(found)} private words; docs: CONTRIBUTING.md, Words", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
