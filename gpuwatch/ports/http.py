"""The port for HTTP: the client, requests, replies and errors."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypedDict, Unpack

import msgspec

from gpuwatch.errors import GpuwatchError
from gpuwatch.redaction import redact


class HttpReply(msgspec.Struct, frozen=True):
    """A complete reply, whatever its status. Header names are lower-case; the body is decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"HttpReply({self.status}, {len(self.body)} bytes)"  # bodies and headers may contain secrets


class NetError(GpuwatchError):
    """No reply. The text is one line, redacted: the server, and what went wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(redact(message))


class NotSent(NetError):
    """The request was not sent: no such host, refused, TLS, no free connection. It cannot have had an effect."""


class NoReply(NetError):
    """The request was sent, but no complete reply came: timeout, reset, truncated or oversized. It may have worked."""


class UnusableReply(NoReply):
    """The reply is oversized or wrongly compressed: a retry would return the same."""


class RequestOptions(TypedDict, total=False):
    """Options of a request: `json` is sent as a JSON body, `content` unchanged.

    `deadline_s` bounds the whole request, from connecting to the last byte of the reply. `max_bytes` bounds the decoded
    reply. The client has defaults for both.
    """

    headers: Mapping[str, str]
    params: Mapping[str, str]
    json: object
    content: bytes
    deadline_s: float
    max_bytes: int


class StreamingReply:
    """A reply whose body is still arriving: `status`, `headers` (lower-case), and `chunks` of decoded bytes."""

    def __init__(self, status: int, headers: Mapping[str, str], chunks: Iterator[bytes]) -> None:
        self.status = status
        self.headers = headers
        self.chunks = chunks

    def read(self, max_bytes: int | None = None) -> bytes:
        """The rest of the body, up to `max_bytes`."""
        body = io.BytesIO()
        for chunk in self.chunks:
            body.write(chunk if max_bytes is None else chunk[: max_bytes - body.tell()])
            if max_bytes is not None and body.tell() >= max_bytes:
                break
        return body.getvalue()


class HttpClient(Protocol):
    """Sends one request within a deadline and a size limit, and never retries. Thread-safe."""

    def ask(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpReply:
        """Send one request and read the complete reply, whatever its status.

        Raises:
            NotSent: nothing was sent.
            NoReply: it may have arrived.
        """
        ...

    def stream(
        self, method: str, url: str, **options: Unpack[RequestOptions]
    ) -> AbstractContextManager[StreamingReply]:
        """Like `ask`, but with the body as it arrives; `chunks` raises NoReply if the body is incomplete."""
        ...
