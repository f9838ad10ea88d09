"""The way to a server: the client, what it sends, what comes back, and why nothing does."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypedDict, Unpack

import msgspec

from gpuwatch.errors import GpuwatchError
from gpuwatch.redaction import redact


class HttpReply(msgspec.Struct, frozen=True):
    """A whole answer, whatever its status. Header names are lower-case; the body is decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"HttpReply({self.status}, {len(self.body)} bytes)"  # bodies and headers may hold secrets


class NetError(GpuwatchError):
    """No answer. The text is one line, redacted: which server, and what went wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(redact(message))


class NotSent(NetError):
    """The request never left: no such host, refused, TLS, no free connection. Nothing can have happened there."""


class NoReply(NetError):
    """The request left, and no whole answer came: a timeout, a reset, a cut or oversized body. It may have worked."""


class UnusableReply(NoReply):
    """An answer came that is oversized or wrongly compressed: a retry would bring the same."""


class RequestOptions(TypedDict, total=False):
    """What a request may carry: `json` is sent as a JSON body, `content` as it is.

    `deadline_s` bounds everything: connecting, sending, and the last byte of the answer. `max_bytes` bounds the decoded
    answer. Both have a default of the client's.
    """

    headers: Mapping[str, str]
    params: Mapping[str, str]
    json: object
    content: bytes
    deadline_s: float
    max_bytes: int


class StreamingReply:
    """An answer whose body is still arriving: `status`, `headers` (lower-case), and `chunks` of decoded bytes."""

    def __init__(self, status: int, headers: Mapping[str, str], chunks: Iterator[bytes]) -> None:
        self.status = status
        self.headers = headers
        self.chunks = chunks

    def read(self, max_bytes: int | None = None) -> bytes:
        """The rest of the body, at most `max_bytes` of it."""
        body = io.BytesIO()
        for chunk in self.chunks:
            body.write(chunk if max_bytes is None else chunk[: max_bytes - body.tell()])
            if max_bytes is not None and body.tell() >= max_bytes:
                break
        return body.getvalue()


class HttpClient(Protocol):
    """Sends one request within a deadline and a size, and never repeats it. For all threads."""

    def ask(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpReply:
        """Send one request and read the whole answer, whatever its status.

        Raises:
            NotSent: nothing has left.
            NoReply: it may have arrived.
        """
        ...

    def stream(
        self, method: str, url: str, **options: Unpack[RequestOptions]
    ) -> AbstractContextManager[StreamingReply]:
        """Like `ask`, with the body as it arrives; `chunks` raises NoReply if it does not end well."""
        ...
