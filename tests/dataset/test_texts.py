"""Which text a row contains, and which lines are not rows."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.dataset.text_rows import (
    FieldSelection,
    ReadRow,
    UnusableLine,
    parse_json_line,
    read_text_row,
    select_fields,
)
from gpuwatch.errors import UsageError


def row_text(row: Any, fields: tuple[str, ...]) -> ReadRow:
    return read_text_row(row, FieldSelection(fields=fields, guessed=False))


CHAT = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
SHAREGPT = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}
PICTURES = {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]}


@pytest.mark.parametrize(
    ("row", "fields", "text"),
    [
        ({"text": "a", "title": "b"}, ("text",), "a"),
        (CHAT, ("messages",), "Hi\nHello"),
        (SHAREGPT, ("conversations",), "Hi\nHello"),
        (PICTURES, ("messages",), "What is it?"),
        ({"instruction": "i", "input": "", "output": "o"}, ("instruction", "input", "output"), "i\no"),
        ({"prompt": "p", "completion": "c", "text": "t"}, ("prompt", "completion"), "p\nc"),
        ({"prompt": "p", "chosen": "c", "rejected": "r"}, ("prompt", "chosen", "rejected"), "p\nc\nr"),
        ({"question": "q", "answer": "a"}, ("question", "answer"), "q\na"),
        ({"id": "7", "body": "the longest", "lang": "en"}, ("body",), "the longest"),
    ],
)
def test_known_shapes_are_read_whole(row: dict[str, Any], fields: tuple[str, ...], text: str) -> None:
    reading = select_fields([row] * 3, ())
    assert (reading.fields, reading.guessed) == (fields, True)
    assert row_text(row, reading.fields)[0] == text


def test_what_is_not_looked_at_is_named() -> None:
    assert select_fields([{"text": "a", "title": "b", "n": 1}], ()).others == ("n", "title")


def test_a_field_that_is_named_is_taken_and_a_wrong_one_reported() -> None:
    assert select_fields([{"text": "a", "title": "b"}], ("title",)).fields == ("title",)
    with pytest.raises(
        UsageError, match="no text in nope of the first 1 rows; --field may name one of these: text, title"
    ):
        select_fields([{"text": "a", "title": "b"}], ("nope",))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\n", "empty line"),
        (b"  \r\n", "empty line"),
        (b"hello", "not JSON"),
        (b'{"text": "cut', "not JSON"),
        (b'{"text": "\xff\xfe"}', "not UTF-8"),
        (b'["text"]', "not a JSON object"),
        (b"1", "not a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b'{"text":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON"),
        (b'{"n": 1' + b"0" * 10_000 + b', "text": ""}', "not JSON"),
        ('{"text": "a"}'.encode("utf-16"), "not UTF-8"),
    ],
)
def test_hostile_lines_have_a_reason(line: bytes, reason: str) -> None:
    with pytest.raises(UnusableLine, match=reason):
        row_text(parse_json_line(line), ("text",))


@pytest.mark.parametrize("value", ["null", "7", '""', '" \\n"', "[]", "[1]", "{}", "[{}]", '[{"content": [1]}]'])
def test_a_row_without_text_is_none(value: str) -> None:
    with pytest.raises(UnusableLine, match="no text in text"):
        row_text(parse_json_line(f'{{"text": {value}}}'.encode()), ("text",))


def test_what_python_writes_is_read() -> None:
    assert row_text(parse_json_line(b'\xef\xbb\xbf{"text": "a", "score": NaN}'), ("text",))[0] == "a"
    assert row_text(parse_json_line(rb'{"text": "half \ud83d of a pair"}'), ("text",))[0] == "half ? of a pair"


@given(
    line=st.binary(max_size=60)
    | st.text(max_size=40).map(lambda text: f'{{"text": "{text}"}}'.encode("utf-8", "replace"))
)
def test_no_line_is_a_surprise(line: bytes) -> None:
    with suppress(UnusableLine):
        assert row_text(parse_json_line(line), ("text",))[0].strip()


def test_rows_whose_parts_differ_are_not_the_same_though_their_text_is() -> None:
    fields = ("prompt", "completion")
    rows = [("a\nb", "c"), ("a", "b\nc"), ("a\nb\nc", ""), ("a\nb", "c")]
    found = [row_text(dict(zip(fields, row, strict=True)), fields) for row in rows]
    assert {row.text for row in found} == {"a\nb\nc"}
    assert len({row.digest for row in found}) == 3
    assert found[0] == found[3]
