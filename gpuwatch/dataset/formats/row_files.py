"""The format of a file, by its first bytes and its name, and its rows: JSON lines, Parquet, Arrow, TFRecord, tar."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from gpuwatch.dataset.formats import tfrecord, webdataset
from gpuwatch.dataset.formats.arrow_files import ARROW_MAGIC, PARQUET_MAGIC, STREAM_MAGIC, ColumnCopier, ColumnFile
from gpuwatch.dataset.formats.file_lines import (
    ByteCopier,
    DamagedFile,
    FileLine,
    JsonLineCopier,
    RowCopier,
    byte_extent,
    is_packed,
    open_bytes,
    read_json_lines,
)
from gpuwatch.errors import UsageError

_ENDINGS: Final = re.compile(
    r"\.(?:(?P<lines>jsonl|ndjson|json)|(?P<parquet>parquet|pq)|(?P<arrow>arrow|feather|ipc)"
    r"|(?P<tfrecord>tfrecords?)(?:-\d+-of-\d+)?|(?P<tar>tar))(?:\.gz)?$|(?P<packed_tar>\.tgz)$",
    re.IGNORECASE,
)
ENDINGS_TEXT: Final = ".jsonl, .ndjson, .json, .tfrecord, .tar (also with .gz), .parquet, .arrow"
_NAMES: Final = {
    "lines": "JSON lines",
    "parquet": "Parquet",
    "arrow": "Arrow",
    "tfrecord": "TFRecord",
    "tar": "a tar archive",
}

_PACKED: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "zip",
    b"\x78\x01": "zlib",  # a TFRecord file of TensorFlow may be compressed without a sign in its name
    b"\x78\x5e": "zlib",
    b"\x78\x9c": "zlib",
    b"\x78\xda": "zlib",
}
_JSON_ARRAY: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*(?:\{|$)")
_TABLE_ENDING: Final = re.compile(r"\.[ct]sv(?:\.gz)?$", re.IGNORECASE)


class RowFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How the rows of one file are read and copied.

    Attributes:
        name: "lines", "parquet", "arrow", "tfrecord" or "tar".
        read: number and place of a row → the rows from it on.
        extent: where the last row ends; 0: unknown.
        next_row: a place → where the next row starts; None: rows can only be read from the beginning.
        copier: a new file → what copies rows to it.
    """

    name: str
    read: Callable[[int, int], Iterator[FileLine]]
    extent: Callable[[], int]
    next_row: Callable[[int], int] | None
    copier: Callable[[IO[bytes]], RowCopier]

    @property
    def has_byte_sizes(self) -> bool:
        """Do its rows have a size in the file?"""
        return self.name not in {"parquet", "arrow"}


def is_row_file(name: str) -> bool:
    """Does a file of this name hold rows?"""
    return _ENDINGS.search(name) is not None


def format_of(path: Path) -> RowFormat:
    """The format of a file. Raises UsageError: it cannot be read, or is not what its name says."""
    try:
        with open_bytes(path) as file:
            head = file.read(webdataset.BLOCK)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(_unreadable(path, error)) from error
    kind, stated = _kind_of(head), _stated_kind(path.name)
    if stated == "tar" and head and not any(head):
        kind = "tar"  # only the blocks that end an archive: one without files
    if kind == "lines" and (other := _other_format(path, head)) is not None:
        raise UsageError(f"{path}: cannot be read: {other}")
    if kind == "lines" and stated is not None and stated != kind:
        if head or stated != "tfrecord":  # no bytes are no records
            raise UsageError(f"{path}: cannot be read: its name says {_NAMES[stated]}, but it does not begin like one")
        kind = stated
    try:
        return _format(path, kind, head)
    except DamagedFile as error:
        raise UsageError(_unreadable(path, error)) from error


def _other_format(path: Path, head: bytes) -> str | None:
    """What a file is that holds rows in a form which is not read, and how to convert it."""
    if (packer := next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)) is not None:
        again = "; its name must end in .gz" if packer == "gzip" and not is_packed(path) else "; unpack it first"
        return f"it is compressed with {packer}{again}"
    if _JSON_ARRAY.match(head):
        return "it is one JSON array, not a row per line; convert it: jq -c '.[]' FILE > rows.jsonl"
    if head.startswith(b"FEA1"):
        return "it is Feather version 1; write it again with pyarrow.feather.write_feather"
    if _TABLE_ENDING.search(path.name):
        return "tables of text (CSV) are not read; write them as Parquet or JSON lines"
    return None


def check_ending(source: Path, target: Path) -> None:
    """Refuse a name that promises another format than a copy of the source has. Raises UsageError."""
    own, stated = format_of(source), _stated_kind(target.name)
    if stated is not None and stated != own.name:
        raise UsageError(f"{target}: a copy of {source.name} is {_NAMES[own.name]}, too; choose such a name")
    if not own.has_byte_sizes and is_packed(target):
        raise UsageError(f"{target}: {_NAMES[own.name]} is compressed inside; choose a name without .gz")


def read_lines(path: Path, number: int = 0, offset: int = 0) -> Iterator[FileLine]:
    """Read from line `number` on, which starts at `offset`.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        yield from format_of(path).read(number, offset)
    except (OSError, EOFError, zlib.error, DamagedFile) as error:
        raise UsageError(_unreadable(path, error)) from error


def extent_of(path: Path) -> int:
    """Where the last row of a file ends; 0: unknown. Raises UsageError: the file cannot be read."""
    try:
        return format_of(path).extent()
    except (OSError, EOFError, zlib.error, DamagedFile) as error:
        raise UsageError(_unreadable(path, error)) from error


def _unreadable(path: Path, error: Exception) -> str:
    reason = " ".join(str(getattr(error, "strerror", None) or error).split())
    return f"{path}: cannot be read: {reason[:300]}"


def _kind_of(head: bytes) -> str:
    if head.startswith(PARQUET_MAGIC):
        return "parquet"
    if head.startswith((ARROW_MAGIC, STREAM_MAGIC)):
        return "arrow"
    if webdataset.is_archive(head):
        return "tar"
    return "tfrecord" if tfrecord.begins_a_record(head) else "lines"


def _stated_kind(name: str) -> str | None:
    found = _ENDINGS.search(name)
    kind = found.lastgroup if found else None
    return "tar" if kind == "packed_tar" else kind


def _format(path: Path, kind: str, head: bytes) -> RowFormat:
    if kind in {"parquet", "arrow"}:
        magic = next((one for one in (PARQUET_MAGIC, ARROW_MAGIC) if head.startswith(one)), STREAM_MAGIC)
        columns = ColumnFile(path, magic)
        return RowFormat(
            name=kind,
            read=columns.lines,
            extent=columns.extent,
            next_row=lambda place: place,
            copier=lambda target: ColumnCopier(columns, target),
        )
    if kind == "lines":
        return RowFormat(
            name=kind,
            read=lambda number, offset: read_json_lines(path, number, offset),
            extent=lambda: byte_extent(path),
            next_row=None if is_packed(path) else lambda place: _next_line(path, place),
            copier=lambda target: JsonLineCopier(path, target),
        )
    read = tfrecord.read_records if kind == "tfrecord" else webdataset.read_samples
    end = webdataset.END if kind == "tar" else b""
    return RowFormat(
        name=kind,
        read=lambda number, offset: read(path, number, offset),
        extent=lambda: byte_extent(path),
        next_row=None,
        copier=lambda target: ByteCopier(path, target, end),
    )


def _next_line(path: Path, place: int) -> int:
    return next((line.after for line in read_json_lines(path, 0, place)), place)
