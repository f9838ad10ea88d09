"""TFRecord files: records with checksums that hold a `tf.train.Example`, read without TensorFlow.

A record is its length (8 bytes), the masked CRC-32C of the length, the content, and the masked CRC-32C of the content.
The content is a message of protocol buffers: feature name → bytes, floats or integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from gpuwatch.dataset.formats.cell_json import row_json
from gpuwatch.dataset.formats.crc32c import masked_crc32c
from gpuwatch.dataset.formats.file_lines import MAX_LINE_BYTES, TOO_LONG, DamagedFile, FileLine, byte_extent, open_bytes

HEAD: Final = 12  # bytes: the length and its checksum
_TAIL: Final = 4
_PIECE: Final = 1 << 20
_NOT_AN_EXAMPLE: Final = "not a tf.train.Example"
_VARINT_BYTES: Final = 10
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5  # wire types


def begins_a_record(head: bytes) -> bool:
    """Do these bytes begin a record? Their checksum makes it all but certain."""
    return len(head) >= HEAD and masked_crc32c(head[:8]) == int.from_bytes(head[8:HEAD], "little")


def read_records(path: Path, number: int, offset: int) -> Iterator[FileLine]:
    """The records from one on, which starts at this byte.

    Raises:
        DamagedFile: a record is cut off, or its length has a wrong checksum.
    """
    size = byte_extent(path)
    with open_bytes(path) as file:
        file.seek(offset)
        while head := file.read(HEAD):
            where = f"record {number + 1:,} at byte {offset:,}"
            if len(head) == HEAD and not begins_a_record(head):
                raise DamagedFile(f"{where}: the checksum of its length is wrong")
            length = int.from_bytes(head[:8], "little")
            after = offset + HEAD + length + _TAIL
            if len(head) < HEAD or (size and after > size):
                raise DamagedFile(f"{where} is cut off")
            content = _content(file, length, where)
            yield FileLine(number, content, after - offset, after)
            number, offset = number + 1, after


def _content(file: IO[bytes], length: int, where: str) -> bytes | str:
    left = length + _TAIL
    if length > MAX_LINE_BYTES:
        while left and (piece := file.read(min(left, _PIECE))):
            left -= len(piece)
        if left:
            raise DamagedFile(f"{where} is cut off")
        return TOO_LONG
    record = file.read(left)
    if len(record) < left:
        raise DamagedFile(f"{where} is cut off")
    if masked_crc32c(record[:length]) != int.from_bytes(record[length:], "little"):
        return "wrong checksum"
    try:
        return row_json(example_values(record[:length]))
    except ValueError:
        return _NOT_AN_EXAMPLE


# --- protocol buffers: tensorflow/core/example/example.proto and feature.proto ----------------------------------------


def example_values(record: bytes) -> dict[str, Any]:
    """The features of an Example or a SequenceExample: one value, or a list. Raises ValueError: it is neither."""
    features: dict[str, Any] = {}
    for field, wire, value in _fields(memoryview(record)):
        if wire != _BYTES:
            raise ValueError(_NOT_AN_EXAMPLE)
        for inner, entry in _messages(value):
            if inner != 1:
                raise ValueError(_NOT_AN_EXAMPLE)
            name, feature = _map_entry(entry)
            values = _feature(feature) if field == 1 else [_feature(one) for _, one in _messages(feature)]
            features[name] = values[0] if len(values) == 1 and field == 1 else values
    return features


def _map_entry(entry: memoryview) -> tuple[str, memoryview]:
    name, value = "", memoryview(b"")
    for field, part in _messages(entry):
        if field == 1:
            name = bytes(part).decode("utf-8")
        elif field == 2:
            value = part
    return name, value


def _feature(feature: memoryview) -> list[Any]:
    """The values of a feature: bytes, floats or integers."""
    values: list[Any] = []
    for kind, found in _messages(feature):  # the last kind counts
        if kind not in {1, 2, 3}:
            raise ValueError(_NOT_AN_EXAMPLE)
        values = [one for field, wire, part in _fields(found) if field == 1 for one in _listed(kind, wire, part)]
    return values


def _listed(kind: int, wire: int, part: Any) -> list[Any]:
    """One part of a list; numbers may be packed."""
    if kind == 1 and wire == _BYTES:
        return [bytes(part)]
    if kind == 2 and wire in {_BYTES, _FIXED_32}:
        return list(np.frombuffer(part, "<f4").tolist())
    if kind == 3 and wire == _VARINT:
        return [_signed(part)]
    if kind == 3 and wire == _BYTES:
        numbers, at = [], 0
        while at < len(part):
            number, at = _varint(part, at)
            numbers.append(_signed(number))
        return numbers
    raise ValueError(_NOT_AN_EXAMPLE)


def _messages(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    for field, wire, value in _fields(data):
        if wire != _BYTES:
            raise ValueError(_NOT_AN_EXAMPLE)
        yield field, value


def _fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Field number, wire type and value: an integer, or the bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        value: int | memoryview
        if wire == _VARINT:
            value, at = _varint(data, at)
        else:
            if wire == _BYTES:
                length, at = _varint(data, at)
            else:
                length = {_FIXED_64: 8, _FIXED_32: 4}.get(wire, len(data) + 1)
            value = data[at : at + length]
            at += length
        if at > len(data) or not key >> 3:
            raise ValueError(_NOT_AN_EXAMPLE)
        yield key >> 3, wire, value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    number = 0
    for place in range(_VARINT_BYTES):
        if at + place >= len(data):
            break
        byte = data[at + place]
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number & (1 << 64) - 1, at + place + 1
    raise ValueError(_NOT_AN_EXAMPLE)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
