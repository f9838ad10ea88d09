"""Rows of Parquet and Arrow files are those of pyarrow, and a copy keeps their columns."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.dataset.formats.arrow_files import ARROW_MAGIC, PARQUET_MAGIC, ColumnFile
from gpuwatch.dataset.formats.row_files import extent_of, read_lines
from tests.dataset.format_files import IN_ANY_FOLDER, SCHEMA, copied, read_table, rows_of, write_columns

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "text": st.one_of(st.none(), st.text(max_size=20)),
            "number": st.integers(-(2**63), 2**63 - 1),
            "inner": st.fixed_dictionaries({"a": st.lists(st.text(max_size=3), max_size=3)}),
        }
    ),
    max_size=30,
)


@IN_ANY_FOLDER
@given(rows=ROWS, group=st.integers(1, 9), ending=st.sampled_from(["parquet", "arrow", "feather"]), keep=st.integers(0))
def test_rows_of_columns_are_those_of_pyarrow(
    rows: list[dict[str, Any]], group: int, ending: str, keep: int, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{ending}"
    table = pa.Table.from_pylist(rows, SCHEMA)
    write_columns(table, path, group)
    lines = list(read_lines(path))
    assert rows_of(path) == rows
    assert extent_of(path) in {len(rows), 0}
    for line in lines:
        assert list(read_lines(path, line.number + 1, line.after)) == lines[line.number + 1 :]
    copied(path, tmp_path / f"out.{ending}", lambda line: bool(keep >> line.number & 1))
    found = read_table(tmp_path / f"out.{ending}")
    assert found.to_pylist() == [row for at, row in enumerate(rows) if keep >> at & 1]
    assert found.schema.equals(SCHEMA, check_metadata=False)
    assert found.schema.metadata[b"made by"] == b"a test"


def test_columns_that_python_cannot_hold_are_read(tmp_path: Path) -> None:
    names = ["text", "text", "when", "day", "picture", "half", "kind"]
    table = pa.Table.from_arrays(
        [
            pa.array(["a", "b"]),
            pa.array(["c", "d"]),
            pa.array([2**62, None], pa.timestamp("ns", "UTC")),
            pa.array([-(2**31), 1], pa.date32()),
            pa.array([b"\xff\xd8", b"text"], pa.binary()),
            pa.array([float("nan"), 0.5]),
            pa.array(["x", "y"]).dictionary_encode(),
        ],
        names=names,
    )
    write_columns(table, tmp_path / "a.arrow", 2)
    first, other = rows_of(tmp_path / "a.arrow")
    assert (first["text"], first["text (2)"], first["when"], first["day"]) == ("a", "c", 2**62, -(2**31))
    assert first["picture"] == {
        "bytes": 2,
        "data": f"data:;blake2b,{hashlib.blake2b(bytes([255, 216]), digest_size=16).hexdigest()}",
    }
    assert (first["half"], other["half"], other["picture"], other["kind"]) == ({"data": "data:,nan"}, 0.5, "text", "y")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_rows_with_pictures_are_read_a_few_at_a_time(ending: str, tmp_path: Path) -> None:
    """500 rows of 3 MB at once would be 1.5 GB."""
    table = pa.table(
        {"text": [f"row {at}" for at in range(90)], "picture": [bytes([at]) * 1_000_000 for at in range(90)]}
    )
    write_columns(table, tmp_path / f"a.{ending}", 90)
    file = ColumnFile(tmp_path / f"a.{ending}", PARQUET_MAGIC if ending == "parquet" else ARROW_MAGIC)
    sizes = [batch.num_rows for _, batch in file.batches(0)]
    assert sum(sizes) == 90
    assert max(sizes) <= 34
