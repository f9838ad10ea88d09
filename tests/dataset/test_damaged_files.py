"""Files of any format that are cut off, damaged, or not what their name says; and copies of whole ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.dataset.formats.file_lines import FileLine
from gpuwatch.dataset.formats.row_files import is_row_file, read_lines
from gpuwatch.errors import UsageError
from tests.dataset.format_files import IN_ANY_FOLDER, RECORDED, SCHEMA, copied, write_columns


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a small file of each format."""
    folder = tmp_path_factory.mktemp("samples")
    rows = [{"text": f"row {at}", "number": at, "inner": {"a": ["x"]}} for at in range(9)]
    for ending in ("parquet", "arrow", "feather"):
        write_columns(pa.Table.from_pylist(rows, SCHEMA), folder / f"a.{ending}", 4)
    for name, recorded in (("a.tar", "shard.tar"), ("a.tfrecord", "examples.tfrecord")):
        content = (RECORDED / recorded).read_bytes()
        (folder / name).write_bytes(content)
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    return folder


NAMES = ["a.parquet", "a.arrow", "a.feather", "a.tar", "a.tfrecord", "a.tar.gz", "a.tfrecord.gz"]


@pytest.mark.parametrize("name", NAMES)
@IN_ANY_FOLDER
@given(place=st.floats(0, 1, exclude_max=True))
def test_a_file_that_is_cut_off_is_refused(samples: Path, name: str, place: float, tmp_path: Path) -> None:
    """A TFRecord file and a stream may end after any record, since they state no number of rows."""
    whole = (samples / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(place * len(whole))])
    rows = rows_or_refusal(tmp_path / name)
    if rows is not None:
        assert name in {"a.tfrecord", "a.feather"} or (name == "a.tfrecord.gz" and not (tmp_path / name).stat().st_size)
        assert len(rows) < 12


def rows_or_refusal(path: Path) -> list[FileLine] | None:
    """The rows; None: the file is refused in one line that names it."""
    try:
        return list(read_lines(path))
    except UsageError as fault:
        refusal = str(fault)
    assert refusal.startswith(f"{path}: cannot be read: ")
    assert "\n" not in refusal
    return None


@pytest.mark.parametrize("name", NAMES[:5])
@IN_ANY_FOLDER
@given(changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_damaged_file_is_refused_or_its_rows_are_named(
    samples: Path, name: str, changes: list[tuple[float, int]], tmp_path: Path
) -> None:
    content = bytearray((samples / name).read_bytes())
    for place, bits in changes:
        content[int(place * len(content))] ^= bits
    (tmp_path / name).write_bytes(content)
    for line in rows_or_refusal(tmp_path / name) or ():
        assert isinstance(line.content, str) or json.loads(line.content) is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_of_all_rows_is_the_same_rows(samples: Path, name: str, tmp_path: Path) -> None:
    out = tmp_path / f"out.{name.removesuffix('.gz')}"
    assert copied(samples / name, out, lambda _line: True) == [line.content for line in read_lines(out)]


WRONG_NAMES = [
    ("a.parquet", b'{"text": "a"}\n', "its name says Parquet, but it does not begin like one"),
    ("a.tar", b"", "its name says a tar archive, but it does not begin like one"),
    ("a.parquet.gz", gzip.compress(b"PAR1", mtime=0), "Parquet and Arrow in a .gz; unpack it first"),
    ("a.tfrecord-00000-of-00010", b"x" * 40, "its name says TFRecord, but it does not begin like one"),
]


@pytest.mark.parametrize(("name", "content", "reason"), WRONG_NAMES, ids=[name for name, _, _ in WRONG_NAMES])
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert is_row_file(name)
    with pytest.raises(UsageError, match=f"cannot be read: {reason}"):
        list(read_lines(tmp_path / name))
