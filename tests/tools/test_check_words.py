"""The word check: what it rejects, and what it ignores."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.check_words import WordList, complaints, of_document, of_python

WORDS = WordList()


@pytest.mark.parametrize(
    "source",
    [
        "told = 1",
        "class PriceTape: ...",
        "def reckon_price(): ...",
        "DESK = None",
        "# the owner is told of it",
        '"""The price is reckoned here."""',
        'log.warning("nothing is asked of it")',
        "# the parser is mended",
    ],
)
def test_private_words_are_refused_in_names_and_texts(source: str) -> None:
    assert list(of_python(source, WORDS))


@pytest.mark.parametrize(
    "source",
    [
        "heartbeat = upbeat = 1",
        "class Spelling: ...",
        "shelfless = tapered = 2",
        'row = {"status": "told"}',  # data
        "# a look-up by id; it looks like a price",
        '"""Report an event to the owner."""',
        '"""Args: mend: how to fix it; `mend` is a field of the JSON."""',
        'text = f"{one.text}: {one.mend}"',
    ],
)
def test_words_of_the_field_and_data_are_left_alone(source: str) -> None:
    assert list(of_python(source, WORDS)) == []


def test_a_line_may_be_allowed_with_its_reason() -> None:
    assert list(of_python("told = 1  # word-check: allow - a field of the marketplace", WORDS)) == []


def test_a_complaint_names_the_line_and_the_better_word() -> None:
    assert list(of_document("fine\nthe owner is told of it\n", WORDS)) == [
        (2, "'is told': write reported, logged, sent"),
        (2, "'told of': write reported, logged, sent"),
    ]


def test_the_reason_may_stand_in_the_line_above() -> None:
    assert list(of_python("# word-check: allow - a value\ntold = 1", WORDS)) == []


def test_each_tracked_file_is_read_and_named_but_data_is_not(tmp_path: Path) -> None:
    """`make check`, which `make test` also runs, checks the project itself."""
    for name in ("gpuwatch/a.py", "docs/b.md", "tests/recorded/c.py", "d.txt", "untracked.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("# the owner is told of it\n", encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "gpuwatch", "docs", "tests", "d.txt"], cwd=tmp_path, check=True)
    assert {line.partition(" ")[0] for line in complaints(tmp_path)} == {"gpuwatch/a.py:1:", "docs/b.md:1:"}
