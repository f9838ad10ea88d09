"""Decompresses an answer piece by piece, so that the size limit stops a small body before it becomes a huge one.

Decoding a whole chunk at once would turn 64 KB of gzip into 64 MB before the size is checked.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

_PIECE = 256 * 1024
_BOMB_FROM = 4 * 2**20  # from this size on, the compression ratio is checked
_BOMB_RATIO = 200  # lists of offers compress 7 to 10 times; 300 MB of zeros a thousand times
_AUTO = zlib.MAX_WBITS | 32  # gzip or zlib, detected by the header
_GZIP_HEAD = b"\x1f\x8b"


class UnreadableBody(Exception):
    """The body is truncated, oversized, or has an encoding that the request did not accept."""


def decode_bounded(chunks: Iterable[bytes], encoding: str, max_bytes: int) -> Iterator[bytes]:
    """Yield decoded pieces of a body. Raises UnreadableBody: the text says why; the pieces so far are incomplete."""
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        pieces: Iterable[bytes] = chunks
    elif encoding in {"gzip", "x-gzip", "deflate"}:
        pieces = _inflated(chunks)
    else:
        raise UnreadableBody(f"content-encoding {encoding[:20]!r} was not accepted by the request")
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > max_bytes:
            raise UnreadableBody(f"the answer is larger than {max_bytes} bytes")
        yield piece


def _inflated(chunks: Iterable[bytes]) -> Iterator[bytes]:
    inflater = _Inflater()
    for chunk in chunks:
        yield from inflater.pieces(chunk)
    inflater.finish()


class _Inflater:
    def __init__(self) -> None:
        self._state = zlib.decompressobj(_AUTO)
        self._began = False
        self._taken = 0
        self._given = 0

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        self._taken += len(chunk)
        rest, full = chunk, False
        while rest or full:
            if self._state.eof:  # gzip may have several members; other data after the end is ignored
                if not rest.startswith(_GZIP_HEAD):
                    return
                self._state = zlib.decompressobj(_AUTO)
            piece = self._next(rest)
            full = len(piece) == _PIECE  # more output may be pending although the input is consumed
            rest = self._state.unused_data if self._state.eof else self._state.unconsumed_tail
            if piece:
                yield piece

    def finish(self) -> None:
        if self._taken and not self._state.eof:
            raise UnreadableBody("the compressed answer is cut short")

    def _next(self, rest: bytes) -> bytes:
        try:
            piece = self._state.decompress(rest, _PIECE)
        except zlib.error as error:
            if self._began:
                raise UnreadableBody(f"the compressed answer is damaged ({error})") from error
            self._began = True
            self._state = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers send deflate without its header
            return self._next(rest)
        self._began = True
        self._given += len(piece)
        if self._given > _BOMB_FROM and self._given > self._taken * _BOMB_RATIO:
            raise UnreadableBody("the compressed answer grows without bounds")
        return piece
