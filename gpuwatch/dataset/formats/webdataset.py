"""WebDataset shards: tar archives in which the files of one name are one row, `0001.json`, `0001.txt`, `0001.jpg`.

Nothing is extracted. A row is a stretch of the archive, so that its copy is exact, headers included.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec

from gpuwatch.dataset.formats.cell_json import bytes_value, digest_value, row_json
from gpuwatch.dataset.formats.file_lines import MAX_LINE_BYTES, TOO_LONG, DamagedFile, FileLine, byte_extent, open_bytes
from gpuwatch.domain.market.offer import clean

BLOCK: Final = 512  # bytes
END: Final = bytes(2 * BLOCK)
_PIECE: Final = 1 << 20
_MAX_HEADER: Final = 1 << 20  # of a long name
_MAX_FILES: Final = 1_000  # of one row
_MAX_ROW_BYTES: Final = 4 << 30
_NAME = re.compile(r"((?:.*/|)[^.]+)\.([^/]*)", re.DOTALL)  # as the library webdataset splits it
_TEXT_KINDS: Final = frozenset({"json", "txt", "text"})
_EXTENDED = frozenset({tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME})
_KINDS = {
    tarfile.DIRTYPE: "a folder",
    tarfile.SYMTYPE: "a link",
    tarfile.LNKTYPE: "a link",
    tarfile.GNUTYPE_SPARSE: "a file with holes",
}


def is_archive(head: bytes) -> bool:
    """Does a file with these first bytes begin with a header of a tar archive?"""
    return len(head) >= BLOCK and head[257:262] == b"ustar"


class _Member(NamedTuple):
    """A file of the archive; its content has been read."""

    name: str
    value: Any
    fault: str | None  # why the row cannot be judged
    is_file: bool  # False: a folder, a link
    end: int


class _SampleFiles:
    """The files of one name so far."""

    def __init__(self, key: str, start: int) -> None:
        self.key, self.start, self.end = key, start, start
        self.values: dict[str, Any] = {}
        self.fault: str | None = None

    def add(self, kind: str, member: _Member) -> None:
        if kind in self.values:
            self.fault = "two files with one name"
        elif len(self.values) >= _MAX_FILES:
            self.fault = f"more than {_MAX_FILES:,} files"
        else:
            self.values[kind] = member.value
        self.fault = member.fault or self.fault
        self.end = member.end

    def line(self, number: int) -> FileLine:
        length = self.end - self.start
        fault = self.fault or ("longer than 4 GiB" if length >= _MAX_ROW_BYTES else None)
        return FileLine(number, fault or row_json(_joined(self.values)), length, self.end)


def _joined(values: dict[str, Any]) -> dict[str, Any]:
    """The keys of a JSON file are fields like the other files, unless one has the same name."""
    inner = values.get("json")
    if not isinstance(inner, dict) or inner.keys() & (values.keys() - {"json"}):
        return values
    return {**inner, **{kind: value for kind, value in values.items() if kind != "json"}}


def read_samples(path: Path, number: int, offset: int) -> Iterator[FileLine]:
    """The rows from one on, which starts at this byte.

    Raises:
        DamagedFile: the archive is cut off or damaged, or a name leads out of its folder.
    """
    row: _SampleFiles | None = None
    with open_bytes(path) as file:
        for start, member in _Archive(file, byte_extent(path)).members(offset):
            found = _NAME.fullmatch(member.name)
            key = found[1] if found is not None and member.is_file else None
            if row is not None and key != row.key:
                yield row.line(number)
                number, row = number + 1, None
            if found is None or key is None:
                fault = "a file without an ending" if member.is_file else member.fault or ""
                yield FileLine(number, fault, member.end - start, member.end)
                number += 1
                continue
            row = row or _SampleFiles(key, start)
            row.add(found[2].lower(), member)
        if row is not None:
            yield row.line(number)


class _Archive:
    """The headers and contents of a tar archive, in order; names and sizes are checked before they are used."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size = file, size
        self._at = 0
        self._has_end = False

    def members(self, offset: int) -> Iterator[tuple[int, _Member]]:
        """Where each file of the archive begins, with its long name, and what it holds."""
        self._file.seek(offset)
        self._at = start = offset
        extended: dict[str, str] = {}
        while (info := self._header()) is not None:
            if info.type in _EXTENDED or info.type == tarfile.GNUTYPE_LONGLINK:
                extended |= self._extended(info)
                continue
            info.name, info.linkname = extended.get("path", info.name), extended.get("linkpath", info.linkname)
            info.size = int(extended["size"]) if extended.get("size", "").isdecimal() else info.size
            yield start, self._member(info, is_sparse=any(name.startswith("GNU.sparse.") for name in extended))
            start, extended = self._at, {}
        if extended or not self._has_end:
            raise DamagedFile(f"the end of the archive is missing at byte {self._at:,}: it is cut off")

    def _header(self) -> tarfile.TarInfo | None:
        """The next header; blocks of zeros end an archive, and another one may follow."""
        while block := self._file.read(BLOCK):
            if len(block) < BLOCK:
                raise DamagedFile(f"the archive is cut off at byte {self._at:,}")
            if not any(block):
                self._has_end = True
                self._at += BLOCK
                continue
            try:
                info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.HeaderError:
                raise DamagedFile(f"no valid header at byte {self._at:,}") from None
            self._at += BLOCK
            self._has_end = False
            return info
        return None

    def _extended(self, info: tarfile.TarInfo) -> dict[str, str]:
        """A long name, or the records of a pax header."""
        if not 0 <= info.size <= _MAX_HEADER:
            raise DamagedFile(f"a header of {info.size:,} bytes before byte {self._at:,}")
        content = b"".join(self._pieces(info.size))
        if info.type == tarfile.GNUTYPE_LONGNAME:
            return {"path": _name(content)}
        if info.type == tarfile.GNUTYPE_LONGLINK:
            return {"linkpath": _name(content)}
        return {} if info.type == tarfile.XGLTYPE else dict(_pax_records(content, self._at))

    def _member(self, info: tarfile.TarInfo, *, is_sparse: bool) -> _Member:
        """A file with its content, or another member."""
        _refuse_outside(info)
        fault = _KINDS.get(info.type, None if info.type in tarfile.REGULAR_TYPES else "a device")
        if is_sparse:
            fault = _KINDS[tarfile.GNUTYPE_SPARSE]
        is_file = fault is None
        has_content = info.isreg() or info.type not in tarfile.SUPPORTED_TYPES
        size = info.size if has_content else 0
        if size < 0 or (self._size and self._at + size > self._size):
            raise DamagedFile(f"{clean(info.name)}: {size:,} bytes at byte {self._at:,}, more than the file has")
        kind = info.name.rpartition(".")[2].lower()
        if fault is None and kind in _TEXT_KINDS and size > MAX_LINE_BYTES:
            fault = TOO_LONG
        value, unread = self._value(kind, size, is_read=fault is None)
        return _Member(info.name, value, fault or unread, is_file, self._at)

    def _value(self, kind: str, size: int, *, is_read: bool) -> tuple[Any, str | None]:
        """The content of a file, and why it is none."""
        if not is_read or size > MAX_LINE_BYTES:
            digest = hashlib.blake2b(digest_size=16)
            for piece in self._pieces(size):
                digest.update(piece)
            return digest_value(size, digest.hexdigest()), None
        content = b"".join(self._pieces(size))
        return _json_value(content) if kind == "json" else (bytes_value(content), None)

    def _pieces(self, size: int) -> Iterator[bytes]:
        """The content of a file, and the rest of its last block."""
        left, padded = size, -(-size // BLOCK) * BLOCK
        while padded:
            piece = self._file.read(min(padded, _PIECE))
            if not piece:
                raise DamagedFile(f"the archive is cut off at byte {self._at:,}")
            self._at += len(piece)
            padded -= len(piece)
            yield piece[:left]
            left = max(0, left - len(piece))


def _json_value(content: bytes) -> tuple[Any, str | None]:
    try:
        return msgspec.json.decode(content), None
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    try:
        return json.loads(content), None  # NaN, and single surrogates
    except (ValueError, RecursionError):
        return None, "not JSON"


def _name(content: bytes) -> str:
    return content.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _pax_records(content: bytes, at: int) -> Iterator[tuple[str, str]]:
    """Records of the form `LENGTH NAME=VALUE` and a line end (POSIX.1-2001, pax)."""
    while content.strip(b"\0"):
        length = content.partition(b" ")[0]
        size = int(length) if length.isdigit() and len(length) < 10 else 0
        record = content[len(length) + 1 : size]
        name, equals, value = record.partition(b"=")
        if not equals or not record.endswith(b"\n") or size > len(content):
            raise DamagedFile(f"a damaged pax header before byte {at:,}")
        yield name.decode("utf-8", "surrogateescape"), value[:-1].decode("utf-8", "surrogateescape")
        content = content[size:]


def _refuse_outside(info: tarfile.TarInfo) -> None:
    """A copy of such an archive would still write elsewhere when somebody unpacks it. Raises DamagedFile."""
    for name in (info.name, info.linkname):
        if name.startswith("/") or ".." in re.split(r"[/\\]", name):
            raise DamagedFile(f"{clean(info.name)}: its path leads out of the archive's folder")
