"""Tables: complete in a pipe; on a terminal whole columns are dropped, and no id, price, date or GPU is truncated."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.cli.output import displayable, make_output_safe
from gpuwatch.cli.terminal_tables import Column, cell_width, left, right, table_lines, text

COLUMNS = (left("id"), right("price"), left("place", drop=2), text("why", drop=1))
ROWS = [("k3f7q2mzt5ab", "1.125", "Frankfurt am Main, Germany", "the price rose above the limit of the watch")]


def test_a_pipe_gets_everything() -> None:
    heading, row = table_lines(COLUMNS, ROWS, None)
    assert heading.split() == ["id", "price", "place", "why"]
    assert row.startswith("k3f7q2mzt5ab  1.125  Frankfurt am Main, Germany  the price rose above the limit")


def test_free_text_is_shortened_before_a_column_is_dropped() -> None:
    assert table_lines(COLUMNS, ROWS, 70) == [
        "id            price  place                       why",
        "k3f7q2mzt5ab  1.125  Frankfurt am Main, Germany  the price rose above…",
    ]


def test_the_column_with_the_highest_number_goes_first_and_is_named() -> None:
    assert table_lines(COLUMNS, ROWS, 58) == [
        "id            price  why",
        "k3f7q2mzt5ab  1.125  the price rose above the limit of th…",
        "(… hidden at this width: place)",
    ]


def test_below_the_width_of_what_must_stay_each_row_is_a_block() -> None:
    assert table_lines(COLUMNS, [*ROWS, ("2", "–", "", "")], 18) == [
        "id     k3f7q2mzt5ab",
        "price  1.125",
        "place  Frankfurt am Main, Germany",
        "why    the price rose above the limit of the watch",
        "",
        "id     2",
    ]


def test_wide_letters_take_two_columns() -> None:
    assert cell_width("東京") == 4
    rows = table_lines((left("place"), left("id")), [("東京", "1"), ("Oslo", "2")], None)
    assert rows == ["place  id", "東京   1", "Oslo   2"]


CELL = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=30).filter(lambda cell: cell not in "–-")


@given(st.lists(st.tuples(CELL, CELL, CELL, CELL, CELL), min_size=1, max_size=5), st.integers(10, 220))
def test_no_cell_but_free_text_is_ever_cut(rows: list[tuple[str, ...]], width: int) -> None:
    columns: tuple[Column, ...] = (left("id"), right("$/h"), left("when", drop=1), left("place", drop=3), text("why"))
    lines = table_lines(columns, rows, width)
    shown = "\n".join(lines)
    for row in rows:
        assert displayable(row[0]) in shown
        assert displayable(row[1]) in shown
    for at, name in ((2, "when"), (3, "place")):
        assert all(displayable(row[at]) in shown for row in rows) or f"{name}" in lines[-1]
    is_stacked = lines[0].startswith("id  ") and "$/h" not in lines[0]
    assert is_stacked or all(cell_width(line) <= width for line in lines if not line.startswith("(…"))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_no_encoding_makes_printing_fail(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding)
    monkeypatch.setattr("sys.stdout", out)
    make_output_safe()
    out.write("4× H100 – 1 → 2 … 中 é\n")
    out.flush()
    shown = raw.getvalue().decode(encoding)
    if encoding == "ascii":
        assert shown == "4x H100 - 1 -> 2 ... \\u4e2d e\n"
    assert displayable("4× H100").startswith("4× H100" if encoding != "ascii" else "4x H100")
