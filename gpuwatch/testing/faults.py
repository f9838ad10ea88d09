"""What any server may answer, or not, and which error that is at every provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from gpuwatch.errors import (
    KeyRejected,
    OfferGone,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderDown,
    ProviderError,
    ProviderMoved,
    RateLimited,
)
from gpuwatch.testing.loopback import ReplyWriter

RETRY_AFTER_S: Final = 7.0  # in every faulty answer
_PAGE: Final = b"<html><title>maintenance</title></html>"
_DEEP: Final = b"[" * 200_000


class ServerFault(NamedTuple):
    """An answer, or the loss of one.

    Args:
        reading: the error of a request that only reads.
        ordering: the errors, of which one is that of a request that changes something.
        ending: writes bytes that are no answer, or closes the connection; None: `status` and `body` are the answer.
    """

    name: str
    reading: type[Exception]
    ordering: tuple[type[Exception], ...]
    status: int = 0
    body: bytes = b"{}"
    ending: Callable[[ReplyWriter], None] | None = None

    def answer(self, writer: ReplyWriter) -> None:
        """Answer one request with it."""
        if self.ending is None:
            writer.answer(self.status, self.body, retry_after=f"{RETRY_AFTER_S:g}")
        else:
            self.ending(writer)


def _cut(writer: ReplyWriter) -> None:
    writer.raw(b'HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{"offers": [')
    writer.close()


def _garbled(writer: ReplyWriter) -> None:
    writer.raw(b"nonsense\r\n\r\n")
    writer.close()


_REFUSED: Final = (OrderRefused,)
NOT_CREATED: Final = (OrderRefused, OfferGone)
_UNKNOWN: Final = (OutcomeUnknown,)

STATUSES: Final = (
    ServerFault("a redirect", ProviderMoved, _REFUSED, 307),
    ServerFault("400", PayloadChanged, NOT_CREATED, 400),
    ServerFault("401", KeyRejected, _REFUSED, 401),
    ServerFault("402", ProviderError, _REFUSED, 402),
    ServerFault("403", KeyRejected, _REFUSED, 403),
    ServerFault("404", ProviderError, NOT_CREATED, 404),
    ServerFault("404 without a body", PayloadChanged, NOT_CREATED, 404, b""),
    ServerFault("404, a page", PayloadChanged, NOT_CREATED, 404, _PAGE),
    ServerFault("408", ProviderDown, _UNKNOWN, 408),
    ServerFault("409", PayloadChanged, NOT_CREATED, 409),
    ServerFault("422", PayloadChanged, NOT_CREATED, 422),
    ServerFault("500", ProviderDown, _UNKNOWN, 500, b""),
    ServerFault("502, a page", ProviderDown, _UNKNOWN, 502, _PAGE),
    ServerFault("503", ProviderDown, _UNKNOWN, 503),
    ServerFault("429", RateLimited, (OrderRateLimited,), 429, b"too many"),  # last, because it delays later requests
)
UNREADABLE: Final = tuple(
    ServerFault(f"200, {name}", PayloadChanged, _UNKNOWN, 200, body)
    for name, body in {
        "nothing": b"",
        "a page": _PAGE,
        "null": b"null",
        "a number": b"17",
        "an empty object": b"{}",
        "half an object": b'{"a": [{"b": ',
        "deep nesting": _DEEP,
        "deep nesting in a key": b'{"data":' * 100_000,
        "no UTF-8": b'{"data": "\xff\xfe"}',
    }.items()
)
LOSSES: Final = (
    ServerFault("a closed connection", ProviderDown, _UNKNOWN, ending=ReplyWriter.close),
    ServerFault("a reset connection", ProviderDown, _UNKNOWN, ending=ReplyWriter.reset),
    ServerFault("half an answer", ProviderDown, _UNKNOWN, ending=_cut),
    ServerFault("no HTTP", ProviderDown, _UNKNOWN, ending=_garbled),
)
NOWHERE: Final = "http://127.0.0.1:1"  # no server listens here: nothing can be sent
MALFORMED_LISTS: Final = (b"", b"{}", b"[]", b"null", b"17", b'"x"', b"<html>", _DEEP)
