"""Files of any format that are cut off, damaged, or not what their name says; and copies of whole ones."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import tarfile
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

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
    ("a.tfrecord", gzip.compress(b"x" * 40, mtime=0), "it is compressed with gzip; its name must end in .gz"),
    ("a.tfrecords", zlib.compress(b"x" * 40), "it is compressed with zlib; unpack it first"),
    ("a.jsonl", lzma.compress(b'{"text": "a"}\n'), "it is compressed with xz; unpack it first"),
    ("b.jsonl", bz2.compress(b'{"text": "a"}\n'), "it is compressed with bzip2; unpack it first"),
    ("a.jsonl.gz", gzip.compress(bytes.fromhex("28b52ffd20"), mtime=0), "it is compressed with zstd; unpack it first"),
    ("a.json", b'[\n{"text": "a"},\n{"text": "b"}\n]\n', "it is one JSON array, not a row per line"),
    ("b.json", b"\xef\xbb\xbf [", "it is one JSON array, not a row per line"),
    ("a.feather", b"FEA1" + bytes(40), "it is Feather version 1"),
]


@pytest.mark.parametrize(("name", "content", "reason"), WRONG_NAMES, ids=[name for name, _, _ in WRONG_NAMES])
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert is_row_file(name)
    with pytest.raises(UsageError, match=f"cannot be read: {reason}"):
        list(read_lines(tmp_path / name))


def test_an_archive_without_files_has_no_rows(tmp_path: Path) -> None:
    tarfile.open(tmp_path / "a.tar", "w").close()
    assert list(read_lines(tmp_path / "a.tar")) == []


def test_a_name_in_capitals_is_unpacked_too(tmp_path: Path) -> None:
    (tmp_path / "A.JSONL.GZ").write_bytes(gzip.compress(b'{"text": "a"}\n'))
    assert [line.content for line in read_lines(tmp_path / "A.JSONL.GZ")] == [b'{"text": "a"}\n']


def test_a_page_of_parquet_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    table = pa.table({"text": [f"row {at}" for at in range(900)]})
    parquet.write_table(table, tmp_path / "a.parquet", compression="none", use_dictionary=False,
                        write_page_checksum=True)  # fmt: skip
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content.replace(b"row 500", b"row 600", 1))
    with pytest.raises(UsageError, match=r"cannot be read.*checksum"):
        list(read_lines(tmp_path / "a.parquet"))
