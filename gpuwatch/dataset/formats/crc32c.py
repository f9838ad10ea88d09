"""CRC-32C (Castagnoli; RFC 3720, appendix B.4), as TFRecord files use it: masked.

The checksum is linear: each byte contributes what a table says for its value and its distance from the end. numpy looks
up a block at a time, at some hundred megabytes per second; a loop in Python is fifty times slower.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

_POLYNOMIAL: Final = 0x82F63B78  # reversed
_BLOCK: Final = 1_024  # bytes
_MASK_DELTA: Final = 0xA282EAD8  # tensorflow/core/lib/hash/crc32c.h

_Table = np.ndarray[Any, np.dtype[np.uint32]]


def crc32c(data: bytes) -> int:
    """The checksum of some bytes."""
    tables = _tables()
    state = np.uint32(0xFFFFFFFF)
    whole = np.frombuffer(data, np.uint8)
    for start in range(0, len(whole), _BLOCK):
        block = whole[start : start + _BLOCK].copy()
        carried = np.frombuffer(int(state).to_bytes(4, "little"), np.uint8)
        head = min(4, len(block))
        block[:head] ^= carried[:head]
        found = np.bitwise_xor.reduce(tables[np.arange(len(block) - 1, -1, -1), block])
        state = np.uint32(int(found) ^ (int(state) >> 8 * head if head < 4 else 0))
    return int(state) ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The checksum as TFRecord stores it: a checksum of bytes that contain checksums would be weak."""
    found = crc32c(data)
    return ((found >> 15 | found << 17) + _MASK_DELTA) & 0xFFFFFFFF


@lru_cache(maxsize=1)
def _tables() -> _Table:
    """Contribution of a byte: by its distance from the end of a block, and its value."""
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, first >> 1 ^ np.uint32(_POLYNOMIAL), first >> 1).astype(np.uint32)
    tables = np.empty((_BLOCK, 256), np.uint32)
    tables[0] = first
    for distance in range(1, _BLOCK):
        tables[distance] = tables[distance - 1] >> 8 ^ first[tables[distance - 1] & 255]
    return tables
