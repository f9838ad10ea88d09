"""Values of any format as JSON: texts stay texts, and what is not text stays different if it differs.

Bytes that are not text become their size and a hash. Rows with the same text and different pictures are then never the
same, and no picture is read into a report.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpuwatch.dataset.formats.file_lines import MAX_LINE_BYTES, TOO_LONG

_DIGEST: Final = "data:;blake2b,"  # as an address of data it is not text, see `text_rows`
_NUMBER: Final = "data:,"


def row_json(row: Mapping[str, Any]) -> bytes | str:
    """A row as JSON, or why it has none."""
    try:
        plain = {str(name): _plain(value) for name, value in row.items()}
        content = _encoded(plain)
    except RecursionError:
        return "nested too deeply"
    return content if len(content) <= MAX_LINE_BYTES else TOO_LONG


def bytes_value(content: bytes) -> Any:
    """The text that these bytes are, otherwise their size and hash."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    return (
        text if "\0" not in text else digest_value(len(content), hashlib.blake2b(content, digest_size=16).hexdigest())
    )


def digest_value(size: int, digest: str) -> dict[str, Any]:
    """What stands for bytes that are not text."""
    return {"bytes": size, "data": _DIGEST + digest}


def holds_bytes(value: Any) -> bool:
    """Does a value of a row stand for bytes, or contain such a value?"""
    if isinstance(value, dict):
        data = value.get("data")
        return (isinstance(data, str) and data.startswith(_DIGEST)) or any(map(holds_bytes, value.values()))
    return isinstance(value, list) and any(map(holds_bytes, value))


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # single surrogates
        return json.dumps(value).encode()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"data": f"{_NUMBER}{value}"}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes_value(bytes(value))
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return {"data": f"{_NUMBER}{value}"}  # a time, a decimal number: no text, but a difference
