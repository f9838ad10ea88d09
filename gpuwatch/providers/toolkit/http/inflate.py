"""Decompresses an answer piece by piece, so that the size limit stops a small body before it becomes a huge one.

Decoding a whole chunk at once would turn 64 KB of gzip into 64 MB before the size is checked.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

_CHUNK_BYTES = 256 * 1024
_RATIO_CHECK_BYTES = 4 * 2**20  # from this size on, the compression ratio is checked
_BOMB_RATIO = 200  # lists of offers compress 7 to 10 times; 300 MB of zeros a thousand times
_AUTO = zlib.MAX_WBITS | 32  # gzip or zlib, detected by the header
_GZIP_MAGIC = b"\x1f\x8b"


class UnreadableBody(Exception):
    """The body is truncated, oversized, or has an encoding that the request did not accept."""


def decode_bounded(chunks: Iterable[bytes], encoding: str, max_bytes: int) -> Iterator[bytes]:
    """Yield decoded pieces of a body. Raises UnreadableBody: the text says why; the pieces so far are incomplete."""
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        decoded: Iterable[bytes] = chunks
    elif encoding in {"gzip", "x-gzip", "deflate"}:
        decoded = _inflate(chunks)
    else:
        raise UnreadableBody(f"content-encoding {encoding[:20]!r} was not accepted by the request")
    total = 0
    for decoded_chunk in decoded:
        total += len(decoded_chunk)
        if total > max_bytes:
            raise UnreadableBody(f"the answer is larger than {max_bytes} bytes")
        yield decoded_chunk


def _inflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    inflater = _Inflater()
    for chunk in chunks:
        yield from inflater.decode(chunk)
    inflater.finish()


class _Inflater:
    def __init__(self) -> None:
        self._state = zlib.decompressobj(_AUTO)
        self._is_started = False
        self._bytes_in = 0
        self._bytes_out = 0

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        self._bytes_in += len(chunk)
        remaining, is_full = chunk, False
        while remaining or is_full:
            if self._state.eof:  # gzip may have several members; other data after the end is ignored
                if not remaining.startswith(_GZIP_MAGIC):
                    return
                self._state = zlib.decompressobj(_AUTO)
            decoded_chunk = self._decompress(remaining)
            is_full = len(decoded_chunk) == _CHUNK_BYTES  # more output may be pending although the input is consumed
            remaining = self._state.unused_data if self._state.eof else self._state.unconsumed_tail
            if decoded_chunk:
                yield decoded_chunk

    def finish(self) -> None:
        if self._bytes_in and not self._state.eof:
            raise UnreadableBody("the compressed answer is cut short")

    def _decompress(self, remaining: bytes) -> bytes:
        try:
            decoded_chunk = self._state.decompress(remaining, _CHUNK_BYTES)
        except zlib.error as error:
            if self._is_started:
                raise UnreadableBody(f"the compressed answer is damaged ({error})") from error
            self._is_started = True
            self._state = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers send deflate without its header
            return self._decompress(remaining)
        self._is_started = True
        self._bytes_out += len(decoded_chunk)
        if self._bytes_out > _RATIO_CHECK_BYTES and self._bytes_out > self._bytes_in * _BOMB_RATIO:
            raise UnreadableBody("the compressed answer grows without bounds")
        return decoded_chunk
